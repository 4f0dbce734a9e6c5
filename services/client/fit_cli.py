"""`commingle fit`."""

from pathlib import Path

import click
from rich.console import Console

from commingle.services.client.opening import answer, attribute_names, provenance, release_options
from commingle.services.client.release import Release
from commingle.services.client.tables_cli import plot_option
from commingle.services.fit.fitting import ESTIMATORS, TO_PREDICT
from commingle.services.models import FAMILIES
from commingle.services.models.formula import Formula
from commingle.services.plotting import save
from commingle.services.results import Drawn
from commingle.shared.estimation.request import IntervalFor
from commingle.shared.runtime.cli import emit, json_option


@click.command(
    epilog="""\b
Examples:
  commingle fit ./release --target charges
  commingle fit ./release --target charges --features age,bmi --features smoker
  commingle fit ./release --target readmitted --family binomial
  commingle fit ./release --target stay --features "age,age squared" --curve age
  commingle fit ./release --target readmitted --family binomial --plot odds.svg
  commingle fit http://coordinator:8000 --release ID --target charges --save ./release
"""
)
@release_options
@click.option("--target", required=True, metavar="NAME", help="The attribute to explain: numeric or binary.")
@click.option(
    "--features", multiple=True, metavar="A,B", help="Attributes to explain it by; may be repeated. All by default."
)
@click.option(
    "--family",
    type=click.Choice(FAMILIES),
    help="Fit odds ratios of one level (binomial) or of ordered levels (ordinal), or rate ratios of a count (poisson). "
    "--target NAME[LEVEL] names the event.",
)
@click.option(
    "--estimator",
    type=click.Choice(list(ESTIMATORS)),
    help=f"By default the one to understand, with standard errors; {TO_PREDICT} is the one to predict.",
)
@click.option("--no-intercept", is_flag=True, help="Fit through the origin, in original units.")
@click.option(
    "--confidence", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True
)
@click.option(
    "--interval-for",
    type=click.Choice(["table", "population"]),
    help="Intervals for the same fit on the private table, or for the population it was drawn from.  "
    "[table; with --family population]",
)
@click.option("--curve", metavar="NAME", help="Show what this number does to the target, with all terms that it is in.")
@plot_option
@json_option
def fit(
    *,
    found: Release,
    target: str,
    features: tuple[str, ...],
    family: str | None,
    estimator: str | None,
    no_intercept: bool,
    confidence: float,
    interval_for: IntervalFor | None,
    curve: str | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Verify a published release and fit a linear or generalised linear model on it.

    DIR is a release directory (manifest.json, matrix.parquet, moments.json), URL a coordinator.
    """
    names = attribute_names(features, found)
    if family is not None:
        if estimator is not None or no_intercept or curve is not None:
            raise click.UsageError("--family has one estimator and an intercept; leave the other options out.")
        formula = Formula.of(target, names, tuple(found.prepared.attributes))
        covers = interval_for or "population"
        model = found.glm(formula, family=family, confidence_level=confidence, interval_for=covers)
        if plot is not None:
            save(model.plot(), plot)
        emit(
            answer(found, model),
            as_json=as_json,
            text=lambda console: _print_fit(console, found, model.table().to_text()),
        )
        return
    fitted = found.fit(
        target,
        names,
        estimator=estimator,
        intercept=not no_intercept,
        confidence_level=confidence,
        interval_for=interval_for or "table",
    )
    shown: Drawn = fitted if curve is None else fitted.curve(curve)
    if plot is not None:
        save(shown.plot(), plot)
    text = fitted.summary() if curve is None else shown.table().to_text()
    emit(answer(found, shown), as_json=as_json, text=lambda console: _print_fit(console, found, text))


def _print_fit(console: Console, release: Release, text: str) -> None:
    console.print(text)
    console.print(f"\n{provenance(release)}")
