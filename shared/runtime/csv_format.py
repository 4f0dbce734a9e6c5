"""How a CSV is written if not in the usual way: what is registered, and the options of commands."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import click

from commingle.shared.runtime.cli import gathered

Encoding = Literal["utf-8", "windows-1252", "latin-1", "utf-16"]
Separator = Literal[",", ";", "\t", "|"]
Decimal = Literal[".", ","]

_TAB = "tab"  # what nobody can type
_NAMES = {
    "encoding": "text",
    "separator": "between columns",
    "decimal": "in numbers",
    "lines_per_record": "lines per record",
}
MOST_LINES = 1000  # lines of a record


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """How the text is written.

    If a record may span several lines, up to `MOST_LINES`, cells in quotes may hold line ends. The person who says so
    promises that all cells are quoted as they should be.
    """

    encoding: Encoding = "utf-8"
    separator: Separator = ","
    decimal: Decimal = "."
    lines_per_record: int = 1

    @property
    def options(self) -> str:
        """The options of a command that say so; empty if it is the usual way."""
        return " ".join(f"--{name.replace('_', '-')} {_typed(value)}" for name, value in _unusual(self).items())

    def __str__(self) -> str:
        return ", ".join(f"{_typed(value)} {_NAMES[name]}" for name, value in _unusual(self).items())


USUAL = CsvFormat()


def _unusual(form: CsvFormat) -> dict[str, str | int]:
    return {name: value for name, value in asdict(form).items() if value != getattr(USUAL, name)}


def _typed(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    return _TAB if value == "\t" else value if value.isidentifier() or "-" in value else f"'{value}'"


def _said(
    encoding: Encoding | None, separator: str | None, decimal: Decimal | None, lines_per_record: int | None
) -> CsvFormat | None:
    given = {
        "encoding": encoding,
        "separator": "\t" if separator == _TAB else separator,
        "decimal": decimal,
        "lines_per_record": lines_per_record,
    }
    said: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return CsvFormat(**said) if said else None


csv_options = gathered(
    "csv_format",
    _said,
    click.option("--encoding", type=click.Choice(get_args(Encoding)), help="The encoding of a CSV's text."),
    click.option(
        "--separator",
        type=click.Choice([_TAB if each == "\t" else each for each in get_args(Separator)]),
        help="The separator of a CSV's columns.",
    ),
    click.option("--decimal", type=click.Choice(get_args(Decimal)), help="Decimal sign of a CSV's numbers."),
    click.option(
        "--lines-per-record",
        type=click.IntRange(1, MOST_LINES),
        help="The largest number of lines in a CSV's record, if quoted cells contain line ends.  [1]",
    ),
)
"""How a CSV is written; the command is given `csv_format`, None where all are absent."""
