"""The data files in docs/figures, and tables made of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import exp, log
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[3] / "docs"
RHO = "\N{GREEK SMALL LETTER RHO}"
Figures = dict[str, str]
Tables = dict[str, list[str]]


@cache
def read(name: str) -> Any:
    return json.loads((DOCS / "figures" / f"{name}.json").read_text())


def rows(columns: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    heading, *lines = ("| " + " | ".join(cells) + " |" for cells in (columns, *body))
    return [heading, "|" + "---|" * len(columns), *lines]


def filled(head: str, body: str, records: Iterable[Mapping[str, Any]]) -> list[str]:
    """A table of records, its heading and the form of a row with | between cells."""
    return rows(head.split(" | "), (body.format(**record).split(" | ") for record in records))


def share(kept: Iterable[bool]) -> str:
    """How many of them hold: `n of m`."""
    found = list(kept)
    return f"{sum(found)} of {len(found)}"


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def mean(values: Iterable[float]) -> float:
    """Geometric."""
    found = [log(value) for value in values]
    return exp(sum(found) / len(found))


def transcribed(page: str) -> Tables:
    """Tables whose benchmark prints them only: as they were on the page, with the commit that measured them."""
    return {name: rows(table["columns"], table["rows"]) for name, table in read(page)["tables"].items()}


def default_method(*tables: str) -> str:
    """What `auto` takes on each of these tables, for both kinds of subjects."""
    [name] = {name for r in read("users")["tables"] if r["table"] in tables for name in r["taken"].values()}
    return f"`{name}`"
