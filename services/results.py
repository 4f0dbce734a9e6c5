"""Results for people and programs: tables in notebooks and files, data frames, JSON. Nothing here computes.

`answer_of` makes a model of a result's JSON from its dataclass and from what its docstring says. `Result.to_dict` gives
what the model describes; tests hold every answer of a command or route against its model.
"""

import csv
import html
import io
import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, ClassVar, Union, get_args, get_origin

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, create_model
from typing_extensions import TypeAliasType

from commingle.services.plotting import Axes, Curves, Intervals, term_text
from commingle.shared.documents.model import words_of, words_of_fields
from commingle.shared.errors import MissingExtraError
from commingle.shared.text import printable

_LINE = "1px solid rgba(128,128,128,.35)"
_CELL = "padding:.25em .8em;border:none;background:none"
_TEXT = f"{_CELL};text-align:left"
_NUMBER = f"{_CELL};text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap"
_TEXT_WIDTH = 78
_TIED = "\N{NO-BREAK SPACE}"
_LEAST_P = 0.001
_LONG = 1e5  # numbers from here on are said with a power of ten
_PLAIN = (1e3, 1e7)  # numbers of these sizes are said without one, where digits are counted
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MARKDOWN = str.maketrans({"\\": r"\\", "|": r"\|"})
_LATEX = str.maketrans(
    # a row that begins with a bracket would be an option of the line's end before it
    {"[": "{[}", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {mark: f"\\{mark}" for mark in "&%#_{}$"}
)
_WARNING = "margin:.6em 0 0;padding:.4em .8em;border-left:3px solid #d9772b;background:rgba(217,119,43,.1)"


@dataclass(frozen=True, slots=True, eq=False)
class ResultColumn:
    """Numbers under one heading; NaN shows nothing.

    Attributes:
        numbers: (rows,).
        form: the form for people, for all rows or for each.
        interval: (rows, 2), in the same cell for people, and in columns of its own in a frame or a file.
    """

    heading: str
    numbers: NDArray[np.float64]
    form: str | tuple[str, ...] = ".4g"
    interval: NDArray[np.float64] | None = None

    @property
    def forms(self) -> tuple[str, ...]:
        return (self.form,) * len(self.numbers) if isinstance(self.form, str) else self.form

    def numerals(self) -> list[str]:
        """The numbers as people see them, without intervals."""
        return [number_text(x, form) for x, form in zip(self.numbers.tolist(), self.forms, strict=True)]

    def reaches(self) -> list[str]:
        """The intervals as people see them; an empty text where there is none."""
        if self.interval is None:
            return [""] * len(self.numbers)
        return [
            "" if math.isnan(low) else f"{number_text(low, form)} to {number_text(high, form)}"
            for form, (low, high) in zip(self.forms, self.interval.tolist(), strict=True)
        ]

    def texts(self) -> list[str]:
        """The numbers as people see them, with intervals in brackets."""
        return [f"{x} ({reach})" if reach else x for x, reach in zip(self.numerals(), self.reaches(), strict=True)]

    def parts(self) -> list[tuple[str, NDArray[np.float64]]]:
        """The numbers and both ends of their intervals, each with a heading."""
        if self.interval is None:
            return [(self.heading, self.numbers)]
        low, high = self.interval.T
        return [(self.heading, self.numbers), (f"{self.heading} low", low), (f"{self.heading} high", high)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTable:
    """A result as a table; `facts` are name and value of what holds for the whole table."""

    title: str
    heading: str
    labels: tuple[str, ...] | tuple[float, ...]
    columns: tuple[ResultColumn, ...]
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_frame(self) -> Any:  # noqa: ANN401 - pandas is optional, so its types cannot be named here
        """A `pandas.DataFrame` indexed by the labels. Raises MissingExtraError: pandas is not installed."""
        try:
            import pandas as pd  # noqa: PLC0415 - optional, and slow to import
        except ImportError:
            raise MissingExtraError("pandas", extra="notebook") from None
        labels = [printable(label) if isinstance(label, str) else label for label in self.labels]
        index = pd.Index(labels, name=self.heading)
        headings, numbers = zip(*self._parts(), strict=True)  # some may be alike
        return pd.DataFrame(np.column_stack(numbers), index=index, columns=list(map(printable, headings)))

    def to_html(self) -> str:
        """One `div` in the notebook's own colours and inline styles; escapes everything, and wide tables scroll."""
        facts = " · ".join(f"{_escape(name)} <b>{_escape(value)}</b>" for name, value in self.facts)
        head, *body = self.cells()
        parts = [
            f'<div style="font-size:1.1em;font-weight:600">{_escape(self.title)}</div>',
            f'<div style="opacity:.75;margin:.2em 0 .6em">{facts}</div>',
            '<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:0">',
            f"<thead>{_row(head, cell='th')}</thead>",
            f"<tbody>{''.join(_row(cells, cell='td') for cells in body)}</tbody></table></div>",
            *(f'<div style="opacity:.75;margin-top:.5em">{_escape(note)}</div>' for note in self.notes),
            *(f'<div style="{_WARNING}">{_escape(warning)}</div>' for warning in self.warnings),
        ]
        return f'<div style="line-height:1.4;max-width:64em">{"".join(parts)}</div>'

    def cells(self) -> list[list[str]]:
        """Heading and rows as text: numbers in their form, an empty text for NaN."""
        head = [self.heading, *(column.heading for column in self.columns)]
        rows = zip(map(_label, self.labels), *(column.texts() for column in self.columns), strict=True)
        return [[term_text(printable(text)) for text in row] for row in (head, *rows)]

    def _parts(self) -> list[tuple[str, NDArray[np.float64]]]:
        return [part for column in self.columns for part in column.parts()]

    def to_text(self) -> str:
        """Aligned columns below the title, notes and warnings after them, in lines that fit a terminal."""
        cells = self.cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(text.rjust(w) for text, w in zip(row[1:], widths[1:], strict=True))])
            for row in cells
        ]
        facts = " · ".join(f"{name} {value}".replace(" ", _TIED) for name, value in self.facts)
        said = (*self.notes, *(f"Warning: {warning}" for warning in self.warnings))
        width = max(_TEXT_WIDTH, *map(len, lines))
        above, *below = (
            textwrap.fill(term_text(each), width, break_long_words=False, break_on_hyphens=False)
            for each in (facts, *said)
        )
        return printable("\n".join([self.title, above.replace(_TIED, " "), "", *lines, "", *below]), keep_lines=True)

    def to_markdown(self) -> str:
        """A table of GitHub's Markdown."""
        head, *rows = self.cells()
        return "\n".join(map(markdown_row, (head, ["---", *("---:" for _ in self.columns)], *rows)))

    def to_csv(self) -> str:
        """Comma-separated and unrounded (RFC 4180). Marks as text what a spreadsheet would take for a formula."""
        out = io.StringIO()
        writer = csv.writer(out)
        headings, numbers = zip(*self._parts(), strict=True)
        writer.writerow(map(csv_text, [self.heading, *headings]))
        for label, *values in zip(self.labels, *(column.tolist() for column in numbers), strict=True):
            name = csv_text(label) if isinstance(label, str) else label
            writer.writerow([name, *("" if math.isnan(x) else repr(x) for x in values)])
        return out.getvalue()

    def to_latex(self) -> str:
        """A `tabular` with the rules of booktabs."""
        head, *rows = [" & ".join(map(_latex, row)) + r" \\" for row in self.cells()]
        begin = rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}"
        return "\n".join([begin, r"\toprule", head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"])


class Result(ABC):
    """A frozen dataclass of names, numbers and arrays, for notebooks, pandas and JSON.

    Some have a `sentence` that says the result in words, `warnings`, and `subjects`: how many people members hold and
    share, for keyed data sets.
    """

    __slots__ = ()
    computed: ClassVar[tuple[str, ...]] = ()
    """Properties that follow the fields in JSON."""

    @abstractmethod
    def table(self) -> ResultTable:
        """The result as a table."""

    def summary(self) -> str:
        """The table as text."""
        return self.table().to_text()

    def to_frame(self) -> Any:  # noqa: ANN401 - pandas is optional, so its types cannot be named here
        """The table as a `pandas.DataFrame`, its labels as the index. Raises MissingExtraError without pandas."""
        return self.table().to_frame()

    def to_dict(self) -> dict[str, Any]:
        """For JSON: lists for arrays, and None for numbers that are not finite."""
        return {name: json_value(getattr(self, name)) for name in json_names(type(self))}

    def _repr_html_(self) -> str:
        return self.table().to_html()


class Drawn(Result):
    """A result that has a picture."""

    __slots__ = ()

    def pictures(self) -> tuple[Intervals | Curves, ...]:
        """The pictures that `plot` and pages draw."""
        return ()

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the first picture, on `ax` or a new figure. Raises MissingExtraError without matplotlib."""
        return self.pictures()[0].draw(ax)


def json_names(kind: type) -> tuple[str, ...]:
    """The names of a dataclass in JSON: the fields that its repr shows, and its `computed` properties."""
    return (*(field.name for field in fields(kind) if field.repr), *getattr(kind, "computed", ()))


def markdown_row(texts: Iterable[str]) -> str:
    """A line of a GitHub Markdown table, with its cells escaped."""
    return f"| {' | '.join(text.translate(_MARKDOWN) for text in texts)} |"


def _escape(text: str) -> str:
    return html.escape(term_text(printable(text)))


def _latex(text: str) -> str:
    return text.translate(_LATEX).replace("\u2212", "$-$").replace("\u221e", r"$\infty$").replace("<", "$<$")


def json_value(value: Any) -> Any:  # noqa: ANN401 - any field of a result
    """Lists for arrays and tuples, objects for dataclasses, and None for numbers that are not finite."""
    if isinstance(value, np.ndarray):
        return json_value(value.tolist())
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if is_dataclass(value):
        return {name: json_value(getattr(value, name)) for name in json_names(type(value))}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def three_digits(value: float | None) -> str:
    """The value in three digits; a dash for None."""
    return "-" if value is None else f"{value:.3g}"


def _row(texts: list[str], *, cell: str) -> str:
    first, *others = (_escape(text) for text in texts)
    numbers = "".join(f'<{cell} style="{_NUMBER}">{text}</{cell}>' for text in others)
    head = f'<th style="{_TEXT};font-weight:500">{first}</th>'
    return f'<tr style="border-bottom:{_LINE};background:none">{head}{numbers}</tr>'


def _label(label: str | float) -> str:
    return label if isinstance(label, str) else number_text(label, ".4g")


def csv_text(text: str) -> str:
    """Text for a CSV file, with an apostrophe before what a spreadsheet would take for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def number_text(value: float, form: str) -> str:
    """A number for people in a form of `format`, or "p" for p values; an empty text for NaN."""
    if form == "p" and value < _LEAST_P:
        return f"<{_LEAST_P:g}"
    form = ".3f" if form == "p" else form
    if form == ".3f" and _PLAIN[0] <= abs(value) < math.inf:
        form = ",.0f" if abs(value) < _LONG else ".2g"
    if form.endswith("g") and _PLAIN[0] <= abs(rounded := float(format(value, form))) < _PLAIN[1]:
        value, form = rounded, ",.0f"  # 42,330
    return "" if math.isnan(value) else format(value, f"z{form}").replace("-", "\u2212").replace("inf", "\u221e")


_Row = list[float | None]
Numbers = TypeAliasType("Numbers", _Row | list[_Row] | list[list[_Row]] | list[list[list[_Row]]])
"""An array of up to four dimensions, by rows; null for numbers that are not finite."""


def answer_of(result: Any, **beside: Any) -> Any:  # noqa: ANN401 - a dataclass, or a union of some
    """The model of a result's JSON, or of a union of results, with the fields `beside` before its own."""
    if get_origin(result) is UnionType:
        return reduce(or_, (answer_of(one, **beside) for one in get_args(result)))
    return _model(result, tuple(beside.items()))


@lru_cache
def _model(result: type, beside: tuple[tuple[str, Any], ...] = ()) -> type[BaseModel]:
    kinds = {field.name: field.type for field in fields(result)}
    words = words_of_fields(result)

    def described(name: str) -> Any:  # noqa: ANN401 - what `create_model` takes for a field
        made = None if name in kinds else getattr(result, name).fget
        kind = _in_json(kinds[name] if made is None else made.__annotations__["return"])
        default = None if NoneType in get_args(kind) else ...  # clients may leave null out, as OpenAPI's examples do
        return kind, Field(default, description=words.get(name) if made is None else made.__doc__)

    made: dict[str, Any] = {name: (kind, ...) for name, kind in beside}
    made |= {name: described(name) for name in json_names(result)}
    config = ConfigDict(extra="forbid")
    name = f"{result.__name__}Answer" if beside else result.__name__  # some are also parts of others
    return create_model(name, __config__=config, __doc__=words_of(result), **made)


def _in_json(kind: Any) -> Any:  # noqa: ANN401 - any annotation
    if kind is float:
        return float | None
    if is_dataclass(kind):
        return _model(kind)  # type: ignore[arg-type] # it is no object
    origin, inner = get_origin(kind), get_args(kind)
    if origin is np.ndarray:
        return Numbers
    if origin in {Union, UnionType}:
        return reduce(or_, map(_in_json, inner))
    return tuple.__class_getitem__(tuple(map(_in_json, inner))) if origin is tuple else kind
