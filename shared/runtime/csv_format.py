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
_NAMES = {"encoding": "text", "separator": "between columns", "decimal": "in numbers"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """Encoding of the text, what stands between two columns, and before the decimals of a number."""

    encoding: Encoding = "utf-8"
    separator: Separator = ","
    decimal: Decimal = "."

    @property
    def options(self) -> str:
        """What a command is told where it is not the usual way."""
        return " ".join(f"--{name} {_typed(value)}" for name, value in _unusual(self).items())

    def __str__(self) -> str:
        return ", ".join(f"{_typed(value)} {_NAMES[name]}" for name, value in _unusual(self).items())


USUAL = CsvFormat()


def csv_options(command: Function) -> Function:
    """Add `--encoding`, `--separator` and `--decimal`; the command is given `csv_format`, None where all are absent."""

    @wraps(command)
    def with_format(
        *args: Any,  # noqa: ANN401 - any command
        encoding: Encoding | None,
        separator: str | None,
        decimal: Decimal | None,
        **others: Any,  # noqa: ANN401 - as above
    ) -> Any:  # noqa: ANN401 - as above
        given = {"encoding": encoding, "separator": "\t" if separator == _TAB else separator, "decimal": decimal}
        said: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return command(*args, csv_format=CsvFormat(**said) if said else None, **others)

    separators = [_TAB if separator == "\t" else separator for separator in get_args(Separator)]
    for option in (
        click.option("--decimal", type=click.Choice(get_args(Decimal)), help="Decimal sign of a CSV's numbers."),
        click.option("--separator", type=click.Choice(separators), help="What stands between a CSV's columns."),
        click.option("--encoding", type=click.Choice(get_args(Encoding)), help="How the text of a CSV is written."),
    ):
        with_format = option(with_format)
    return with_format  # type: ignore[return-value] # same signature but for the three options


def _unusual(form: CsvFormat) -> dict[str, str]:
    return {name: value for name, value in asdict(form).items() if value != getattr(USUAL, name)}


def _typed(value: str) -> str:
    """A value as it is typed in a shell."""
    return _TAB if value == "\t" else value if value.isidentifier() or "-" in value else f"'{value}'"
