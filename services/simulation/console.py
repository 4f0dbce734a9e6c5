"""The report as a person reads it on a terminal."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def show(report: dict[str, Any], console: Console, *, out: Path) -> None:
    """One table per release, the constant predictor and the non-private fit beside it, and what to make of it."""
    names = ", ".join(party["name"] for party in report["parties"])
    held_out = report["reference"]["n_test"]
    console.print(
        f"\n{report['target']} of {report['n']:,} people at {len(report['parties'])} parties ({names}), "
        f"judged on {held_out:,} held-out people.",
        highlight=False,
    )
    for release in report["releases"]:
        console.print(Text(_title(release), style="bold cyan"))
        console.print(_table(release, report["reference"]))
        console.print(Text(f"→ {release['verdict']}", style="bold"))
        for name, reason in release["left_out"].items():
            console.print(Text(f"  {name} was left out: {reason}", style="yellow"))
    spent = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in report["seconds"].items())
    console.print(f"\nSeconds: {spent}", highlight=False)
    console.print(f"Report, picture and releases: {out}", highlight=False)


def _title(release: dict[str, Any]) -> str:
    sketch = f", k = {release['k']:,}" if release["k"] is not None else ""
    return (
        f"\n{release['mechanism']}: epsilon {release['epsilon']:g} per party, {release['epsilon_subject']:.3g} per "
        f"person over all parties, delta {release['delta']:g}{sketch}"
    )


def _table(release: dict[str, Any], reference: dict[str, Any]) -> Table:
    table = Table()
    table.add_column("fit")
    for heading in ("relative error", "test MSE", "test R²"):
        table.add_column(heading, justify="right")
    for fit in release["estimators"]:
        beats = fit["test_mse"] < reference["constant_test_mse"]
        cells = (_number(fit["relative_error"]), _number(fit["test_mse"]), _number(fit["test_r2"]))
        table.add_row(fit["name"], *cells, style=None if beats else "dim")
    table.add_section()
    for name, key, error in (("predicting the mean", "constant", "1"), ("least squares", "ols", "0")):
        mse, r2 = reference[f"{key}_test_mse"], reference[f"{key}_test_r2"]
        table.add_row(f"{name}, not private", error, _number(mse), _number(r2))
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"  # noqa: PLR2004 - digits
