"""`commingle fit`."""

import click
from rich.console import Console

from commingle.services.client.opening import answer, attribute_names, provenance, release_options
from commingle.services.client.release import Release
from commingle.services.fit import ESTIMATORS, Fit
from commingle.shared.estimation.request import IntervalFor
from commingle.shared.runtime.cli import emit, json_option


@click.command(
    epilog="""\b
Examples:
  commingle fit ./release --target charges
  commingle fit ./release --target charges --features age,bmi --features smoker
  commingle fit http://coordinator:8000 --release ID --target charges --save ./release
"""
)
@release_options
@click.option("--target", required=True, metavar="NAME", help="The attribute to explain: numeric or binary.")
@click.option(
    "--features", multiple=True, metavar="A,B", help="Attributes to explain it by; may be repeated. All by default."
)
@click.option("--estimator", type=click.Choice(list(ESTIMATORS)), help="By default the one with standard errors.")
@click.option("--no-intercept", is_flag=True, help="Fit through the origin, in original units.")
@click.option(
    "--confidence", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True
)
@click.option(
    "--interval-for",
    type=click.Choice(["table", "population"]),
    default="table",
    show_default=True,
    help="Intervals for the same fit on the private table, or for the population it was drawn from.",
)
@json_option
def fit(
    *,
    found: Release,
    target: str,
    features: tuple[str, ...],
    estimator: str | None,
    no_intercept: bool,
    confidence: float,
    interval_for: IntervalFor,
    as_json: bool,
) -> None:
    """Verify a published release and fit a linear model on it.

    DIR is a release directory (manifest.json, matrix.parquet, moments.json), URL a coordinator.
    """
    fitted = found.fit(
        target,
        attribute_names(features, found),
        estimator=estimator,
        intercept=not no_intercept,
        confidence_level=confidence,
        interval_for=interval_for,
    )
    emit(answer(found, fitted), as_json=as_json, text=lambda console: _print_fit(console, found, fitted))


def _print_fit(console: Console, release: Release, fitted: Fit) -> None:
    console.print(fitted.summary())
    console.print(f"\n{provenance(release)}")
