"""What benchmarks of published experiments have in common: options, rows of Markdown, a file of figures."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from benchmarks.tables import DATA

Command = TypeVar("Command", bound=Callable[..., None])


def options(quick: str) -> Callable[[Command], Command]:
    """Options --quick with this help, --data, --json (`json_file`) and --pictures, for the function of a command."""

    def add(command: Command) -> Command:
        command = click.option("--pictures", type=click.Path(path_type=Path, file_okay=False, exists=True))(command)
        command = click.option("--json", "json_file", type=click.Path(path_type=Path))(command)
        command = click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=DATA)(command)
        return click.option("--quick", is_flag=True, help=quick)(command)

    return add


def row(*cells: str) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def heading(*names: str) -> list[str]:
    """The two lines that open a Markdown table."""
    return [row(*names), row(*["---"] * len(names))]


def write_json(report: dict[str, Any], target: Path | None) -> None:
    """The report on one line, if a file is asked for."""
    if target is not None:
        target.write_text(json.dumps(report) + "\n", encoding="utf-8")
