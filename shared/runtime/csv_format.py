"""How a CSV is written where it is not the usual way: what is registered and what commands take."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from typing import Any, Literal, TypeVar, get_args

import click

Function = TypeVar("Function", bound=Callable[..., Any])
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
MOST_LINES = 1000
"""Lines of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """How the text is written.

    Attributes:
        encoding: of the text.
        separator: what stands between two columns.
        decimal: what stands before the decimals of a number.
        lines_per_record: most lines that a record may span, up to `MOST_LINES`. Above 1 cells in quotes may hold line
            ends, and who says so promises that all cells are quoted as they should be.
    """

    encoding: Encoding = "utf-8"
    separator: Separator = ","
    decimal: Decimal = "."
    lines_per_record: int = 1

    @property
    def options(self) -> str:
        """What a command is told where it is not the usual way."""
        return " ".join(f"--{name.replace('_', '-')} {_typed(value)}" for name, value in _unusual(self).items())

    def __str__(self) -> str:
        return ", ".join(f"{_typed(value)} {_NAMES[name]}" for name, value in _unusual(self).items())


USUAL = CsvFormat()


def csv_options(command: Function) -> Function:
    """Add the options that say how a CSV is written; the command is given `csv_format`, None where all are absent."""

    @wraps(command)
    def with_format(
        *args: Any,  # noqa: ANN401 - any command
        encoding: Encoding | None,
        separator: str | None,
        decimal: Decimal | None,
        lines_per_record: int | None,
        **others: Any,  # noqa: ANN401 - as above
    ) -> Any:  # noqa: ANN401 - as above
        given = {
            "encoding": encoding,
            "separator": "\t" if separator == _TAB else separator,
            "decimal": decimal,
            "lines_per_record": lines_per_record,
        }
        said: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return command(*args, csv_format=CsvFormat(**said) if said else None, **others)

    separators = [_TAB if separator == "\t" else separator for separator in get_args(Separator)]
    for option in (
        click.option(
            "--lines-per-record",
            type=click.IntRange(1, MOST_LINES),
            help="Most lines of a CSV's record, where cells in quotes hold line ends.  [1]",
        ),
        click.option("--decimal", type=click.Choice(get_args(Decimal)), help="Decimal sign of a CSV's numbers."),
        click.option("--separator", type=click.Choice(separators), help="What stands between a CSV's columns."),
        click.option("--encoding", type=click.Choice(get_args(Encoding)), help="How the text of a CSV is written."),
    ):
        with_format = option(with_format)
    return with_format  # type: ignore[return-value] # same signature but for these options


def _unusual(form: CsvFormat) -> dict[str, str | int]:
    return {name: value for name, value in asdict(form).items() if value != getattr(USUAL, name)}


def _typed(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    return _TAB if value == "\t" else value if value.isidentifier() or "-" in value else f"'{value}'"
