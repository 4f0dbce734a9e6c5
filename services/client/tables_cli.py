"""`commingle table`, `commingle describe` and `commingle survival`."""

from collections.abc import Callable, Mapping
from pathlib import Path

import click
from rich.console import Console

from commingle.services.client.opening import answer, attribute_names, provenance, release_options
from commingle.services.client.release import Release
from commingle.services.plotting import save
from commingle.services.results import Drawn, ResultTable
from commingle.shared.runtime.cli import emit, json_option

FORMATS: Mapping[str, Callable[[ResultTable], str]] = {
    "text": ResultTable.to_text,
    "markdown": ResultTable.to_markdown,
    "csv": ResultTable.to_csv,
    "html": ResultTable.to_html,
    "latex": ResultTable.to_latex,
}
_format_option = click.option(
    "--format", "written", type=click.Choice(list(FORMATS)), default="text", show_default=True, help="What to write."
)
plot_option = click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also draw it: a file that ends in .png, .svg or .pdf.",
)
_confidence_option = click.option(
    "--confidence", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True
)


@click.command(
    epilog="""\b
Examples:
  commingle table ./release smoker readmitted
  commingle table ./release stage readmitted --event yes --reference I --format markdown
  commingle table ./release smoker readmitted --within stage
  commingle table http://coordinator:8000 --release ID smoker readmitted --json
"""
)
@release_options
@click.argument("row")
@click.argument("column")
@click.option("--event", metavar="LEVEL", help="The level of COLUMN whose shares are compared.  [the last]")
@click.option("--reference", metavar="LEVEL", help="The level of ROW with which others are compared.  [the first]")
@click.option(
    "--within", metavar="NAME", help="A third attribute: pool the odds ratios of people who have the same level of it."
)
@_confidence_option
@plot_option
@_format_option
@json_option
def table(
    *,
    found: Release,
    row: str,
    column: str,
    event: str | None,
    reference: str | None,
    within: str | None,
    confidence: float,
    plot: Path | None,
    written: str,
    as_json: bool,
) -> None:
    """Count two attributes of a release: shares, odds ratios.

    It has to be of moments. Shares are compared by risk difference, risk ratio, odds ratio and a test.

    DIR is a release directory, URL a coordinator. ROW and COLUMN are attributes with levels, of any parties.
    """
    result: Drawn
    if within is None:
        result = found.table(row, column, event=event, reference=reference, confidence_level=confidence)
    else:
        result = found.stratified(row, column, within, event=event, reference=reference, confidence_level=confidence)
    _show(found, result, written, as_json=as_json, plot=plot)


@click.command(
    epilog="""\b
Examples:
  commingle describe ./release
  commingle describe ./release --by readmitted --plot people.svg
  commingle describe ./release age sex stage --by readmitted --format latex
"""
)
@release_options
@click.argument("attributes", nargs=-1)
@click.option("--by", metavar="NAME", help="An attribute with levels: describe each of its groups, and compare them.")
@_confidence_option
@plot_option
@_format_option
@json_option
def describe(
    *,
    found: Release,
    attributes: tuple[str, ...],
    by: str | None,
    confidence: float,
    plot: Path | None,
    written: str,
    as_json: bool,
) -> None:
    """Say who is in a release: levels and means, by group.

    It has to be of moments.

    DIR is a release directory, URL a coordinator. ATTRIBUTES are all where you name none.
    """
    names = attribute_names(attributes, found)
    _show(found, found.describe(names, by=by, confidence_level=confidence), written, as_json=as_json, plot=plot)


@click.command(
    epilog="""\b
Examples:
  commingle survival ./release outcome
  commingle survival ./release outcome --by stage --format csv
  commingle survival ./release outcome --ratios stage,sex
"""
)
@release_options
@click.argument("outcome")
@click.option("--by", metavar="NAME", help="An attribute with levels: compare the curves of its groups.")
@click.option(
    "--ratios", multiple=True, metavar="A,B", help="In place of curves: hazard ratios of these attributes' levels."
)
@_confidence_option
@plot_option
@_format_option
@json_option
def survival(
    *,
    found: Release,
    outcome: str,
    by: str | None,
    ratios: tuple[str, ...],
    confidence: float,
    plot: Path | None,
    written: str,
    as_json: bool,
) -> None:
    """Follow people until an event: Kaplan-Meier curves.

    The release has to be of moments, and OUTCOME of pairs: intervals of time by whether the event came. Groups are
    compared by a log-rank test that knows the noise. Hazard ratios are adjusted for each other, and come with a test of
    whether they change with time.

    DIR is a release directory, URL a coordinator.
    """
    features = attribute_names(ratios, found)
    result: Drawn
    if features is not None and by is not None:
        raise click.UsageError("--by compares curves and --ratios hazards: name the attribute with --ratios alone.")
    if features is None:
        result = found.survival(outcome, by=by, confidence_level=confidence)
    else:
        result = found.hazard_ratios(outcome, features, confidence_level=confidence)
    _show(found, result, written, as_json=as_json, plot=plot)


def _show(release: Release, result: Drawn, written: str, *, as_json: bool, plot: Path | None) -> None:
    if plot is not None:
        save(result.plot(), plot)

    def text(console: Console) -> None:
        console.print(FORMATS[written](result.table()).rstrip())
        if written == "text":
            console.print(f"\n{provenance(release)}")

    emit(answer(release, result), as_json=as_json, text=text)
