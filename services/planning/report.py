"""A plan as a person reads it on a terminal."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from commingle.shared.forecast.result import Forecast, Plan, Point

_EVERY = 2  # points of a curve that are printed


def show(plan: Plan, console: Console) -> None:
    """The verdict, then what it stands on."""
    verdict, *rest = plan.forecast.sentences
    console.print(Text(verdict, style="bold green" if plan.forecast.useful else "bold red"), soft_wrap=True)
    for sentence in (*rest, plan.advice):
        console.print(Text(sentence), soft_wrap=True)
    console.print(_terms(plan.forecast))
    if plan.over_k:
        console.print(_curve("k", plan.over_k[::_EVERY], lambda p: f"{p.at:,.0f}"))
    console.print(_curve("epsilon", plan.over_epsilon[::_EVERY], lambda p: f"{p.at:.3g}"))
    console.print(_curve("n", plan.over_n[::_EVERY], lambda p: f"{p.at:,.0f}"))
    console.print(_curve("mechanism", plan.mechanisms, lambda p: p.mechanism))


def _terms(f: Forecast) -> Table:
    table = _table(f"Expected standard errors of a fit of {f.target}", "term", "encoded", "original units")
    for term in f.terms:
        table.add_row(Text(term.term), _number(term.encoded), _number(term.original))
    return table


def _curve(over: str, points: Sequence[Point], value: Callable[[Point], str]) -> Table:
    r2 = "R\N{SUPERSCRIPT TWO}"
    given = ("k", f"{r2} of a fit", f"{r2} of the mean", "relative error", "useful")
    table = _table(f"Over {over}", *dict.fromkeys((over, *given)))
    for p in points:
        k = [] if over == "k" else ["-" if p.k is None else f"{p.k:,}"]
        cells = (_number(p.r_squared), _number(p.r_squared_constant), _number(p.relative_error))
        table.add_row(value(p), *k, *cells, "yes" if p.useful else "no", style=None if p.useful else "dim")
    return table


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
