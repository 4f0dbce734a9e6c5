"""A table as HTML: inline styles only, the notebook's own colours, everything escaped."""

import math
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # table.py renders through this module
    from commingle.services.display.table import Table

_LINE = "1px solid rgba(128,128,128,.35)"
_CELL = "padding:.25em .8em;border:none;background:none"
_TEXT = f"{_CELL};text-align:left"
_NUMBER = f"{_CELL};text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap"
_WARNING = "margin:.6em 0 0;padding:.4em .8em;border-left:3px solid #d9772b;background:rgba(217,119,43,.1)"


def to_html(table: "Table") -> str:
    """One `div` that scrolls sideways where it is wider than its page."""
    facts = " · ".join(f"{escape(name)} <b>{escape(value)}</b>" for name, value in table.facts)
    parts = [
        f'<div style="font-size:1.1em;font-weight:600">{escape(table.title)}</div>',
        f'<div style="opacity:.75;margin:.2em 0 .6em">{facts}</div>',
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:0">',
        f"<thead>{_row([table.heading, *(c.heading for c in table.columns)], cell='th')}</thead>",
        f"<tbody>{''.join(_body(table))}</tbody></table></div>",
        *(f'<div style="opacity:.75;margin-top:.5em">{escape(note)}</div>' for note in table.notes),
        *(f'<div style="{_WARNING}">{escape(warning)}</div>' for warning in table.warnings),
    ]
    return f'<div style="line-height:1.4;max-width:64em">{"".join(parts)}</div>'


def _body(table: "Table") -> Iterable[str]:
    for position, label in enumerate(map(_label, table.labels)):
        cells = [_number(float(c.numbers[position]), c.form) for c in table.columns]
        yield _row([label, *cells], cell="td")


def _row(texts: list[str], *, cell: str) -> str:
    first, *others = (escape(text) for text in texts)
    line = f"border-bottom:{_LINE}"
    numbers = "".join(f'<{cell} style="{_NUMBER}">{text}</{cell}>' for text in others)
    return f'<tr style="{line};background:none"><th style="{_TEXT};font-weight:500">{first}</th>{numbers}</tr>'


def _label(label: str | float) -> str:
    return label if isinstance(label, str) else _number(label, ".4g")


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form).replace("-", "\u2212")
