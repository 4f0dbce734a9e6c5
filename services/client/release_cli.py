"""Commands that ask one release: `commingle fit`, `table`, `describe`, `survival`, `export`, `synthesize`."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from commingle.services.analysis import CrossTable, Description, Survival
from commingle.services.client.export import Export
from commingle.services.client.files import require_parties
from commingle.services.client.options import CoordinatorAccess, access_options
from commingle.services.client.release import Release
from commingle.services.fit.fitting import ESTIMATORS, TO_PREDICT
from commingle.services.fit.result import Curve, Fit
from commingle.services.models import FAMILIES, GeneralisedFit, HazardRatios, StratifiedTable, SyntheticRows
from commingle.services.models.formula import Formula
from commingle.services.models.synthetic import MOST
from commingle.services.plotting import save
from commingle.services.results import Drawn, Result, ResultTable, answer_of
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.estimation.method import IntervalFor
from commingle.shared.runtime.cli import (
    A_FOLDER,
    A_PATH,
    NEW_FILE,
    changes,
    emit,
    gathered,
    names_in,
    reads,
    say,
    whole_id,
)
from commingle.shared.text import quoted

if TYPE_CHECKING:  # httpx is slow to import and a directory needs none
    from commingle.services.client.remote import ReleaseClient

_SHOWN = 20
_BEGINNING = re.compile("[0-9a-f]{8,63}")
FORMATS: Mapping[str, Callable[[ResultTable], str]] = {
    "text": ResultTable.to_text,
    "markdown": ResultTable.to_markdown,
    "csv": ResultTable.to_csv,
    "html": ResultTable.to_html,
    "latex": ResultTable.to_latex,
}


def _verified(source: str, release: str | None, save: Path | None, access: CoordinatorAccess) -> Release:
    found = _open(source, release, access)
    require_parties(access.members, found.published.members)
    if save is not None:
        found.save(save)
    return found


release_options = gathered(
    "found",
    _verified,
    click.argument("source", metavar="DIR|URL"),
    click.option(
        "--release",
        metavar="ID",
        help="With a coordinator's URL: the release's id, or its first 8 letters or more.   [the only one]",
    ),
    click.option("--save", type=A_PATH, metavar="DIR", help="Also write the verified release there."),
    access_options,
)
"""Options that say where a release is and how to read it; the command gets it, verified, as `found`."""


def _open(source: str, release: str | None, access: CoordinatorAccess) -> Release:
    if "://" not in source:
        if release is not None:
            raise click.UsageError("--release goes with a coordinator's URL; a directory holds one release.")
        return Release.load(source, trusted_coordinator=access.coordinator_key, members=access.members)
    from commingle.shared.runtime.console import PlainConsole  # noqa: PLC0415 - rich is slow to import

    with access.client(source) as client:
        release = _only(client) if release is None else _whole_id(client, release)
        with PlainConsole(stderr=True).status("Fetching and verifying"):
            return client.fetch(release)


def _only(client: "ReleaseClient") -> str:
    page = client.page(limit=_SHOWN)
    if not page.items:
        raise click.UsageError(_list_releases(client))
    if len(page.items) > 1 or page.next is not None:
        raise click.UsageError(f"Name the release with --release ID. {_list_releases(client)}")
    say(f"Release {page.items[0].id}, the only one")
    return page.items[0].id


def _whole_id(client: "ReleaseClient", beginning: str) -> str:
    if not _BEGINNING.fullmatch(beginning):
        return beginning
    if (found := whole_id(beginning, (item.id for item in client.releases()))) is None:
        raise click.UsageError(f"No published release begins with {beginning}. {_list_releases(client)}")
    say(f"Release {found}")
    return found


def _list_releases(client: "ReleaseClient") -> str:
    page = client.page(limit=_SHOWN)
    lines = [f"  {item.id}  {quoted(item.study)}" for item in page.items]
    more = ["  …"] if page.next is not None else []
    return "\n".join(["Published there:", *lines, *more]) if lines else "Nothing is published there yet."


def attribute_names(given: Sequence[str], release: Release) -> tuple[str, ...] | None:
    """As `names_in`, but None for no name."""
    return names_in(given, {attribute.name for attribute in release.attributes}) or None


def _show(
    release: Release,
    result: Result,
    said: str,
    *,
    plot: Path | None = None,
    more: Mapping[str, object] = MappingProxyType({}),
) -> None:
    if plot is not None and isinstance(result, Drawn):
        save(result.plot(), plot)
    pins = {"coordinator_pinned": release.pinned, "members": release.published.members}
    emit({"release": release.id, **pins, **result.to_dict(), **more}, text=said)


def _signed(said: str, release: Release) -> str:
    key = "key pinned" if release.pinned else "key not pinned: give --coordinator-key"
    found = release.published
    below = f"Release {release.id[:16]}, verified; coordinator {key}.\nSigned by {', '.join(found.signers)}."
    if len(found.pinned) < len(found.members):
        below += " Give --member NAME=FINGERPRINT for members whose keys you know."
    return f"{said.rstrip()}\n\n{below}"


_format_option = click.option(
    "--format", "written", type=click.Choice(list(FORMATS)), default="text", show_default=True, help="Output format."
)
_plot_option = click.option(
    "--plot",
    type=NEW_FILE,
    help="Also draw a picture into a .png, .svg or .pdf file.",
)
_confidence_option = click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="The level of intervals.",
)


def _show_written(
    release: Release, result: Result, said: str, paths: Iterable[Path], *, warnings: tuple[str, ...]
) -> None:
    written = [str(path) for path in paths]
    signed = _signed(f"{said}\n\nWritten: {', '.join(written)}.", release)
    _show(release, result, signed, more={"warnings": warnings, "written": written})


def _show_as(release: Release, result: Drawn, written: str, *, plot: Path | None) -> None:
    said = FORMATS[written](result.table()).rstrip()
    _show(release, result, _signed(said, release) if written == "text" else said, plot=plot)


_OF_ONE: Mapping[str, object] = {
    "release": str,
    "coordinator_pinned": bool,
    "members": dict[str, dict[str, str | bool]],
}
_WRITTEN: Mapping[str, object] = {**_OF_ONE, "written": list[str]}
_UNLESS = ("--save", "--plot")


def _shown(command: Callable[..., Drawn]) -> Callable[..., None]:
    @wraps(command)
    def show(*, found: Release, plot: Path | None, written: str, **asked: object) -> None:
        _show_as(found, command(found=found, **asked), written, plot=plot)

    answer = reads(partial(answer_of, command.__annotations__["return"], **_OF_ONE), unless=_UNLESS)
    command_line: Callable[..., None] = _confidence_option(_plot_option(_format_option(answer(show))))
    return command_line


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
@_shown
def table(
    *,
    found: Release,
    row: str,
    column: str,
    event: str | None,
    reference: str | None,
    within: str | None,
    confidence: float,
) -> CrossTable | StratifiedTable:
    """Count two attributes of a release: shares, odds ratios.

    It has to be of moments. Shares are compared by risk difference, risk ratio, odds ratio and a test.

    DIR is a release directory, URL a coordinator. ROW and COLUMN are attributes with levels, of any members.
    """
    if within is None:
        return found.table(row, column, event=event, reference=reference, confidence_level=confidence)
    return found.stratified(row, column, within, event=event, reference=reference, confidence_level=confidence)


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
@_shown
def describe(*, found: Release, attributes: tuple[str, ...], by: str | None, confidence: float) -> Description:
    """Say who is in a release: levels and means, by group.

    It has to be of moments.

    DIR is a release directory, URL a coordinator. ATTRIBUTES are all where you name none.
    """
    return found.describe(attribute_names(attributes, found), by=by, confidence_level=confidence)


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
    "--ratios", multiple=True, metavar="A,B", help="Show hazard ratios of these attributes' levels instead of curves."
)
@click.option("--event", metavar="LEVEL", help="With --ratios, one event of several.  [any but the first level]")
@_shown
def survival(
    *, found: Release, outcome: str, by: str | None, ratios: tuple[str, ...], event: str | None, confidence: float
) -> Survival | HazardRatios:
    """Follow people until an event: Kaplan-Meier curves.

    The release has to be of moments, and OUTCOME of pairs: intervals of time by whether the event came. Groups are
    compared by a log-rank test that knows the noise. Hazard ratios are adjusted for each other, and come with a test of
    whether they change with time.

    DIR is a release directory, URL a coordinator.
    """
    features = attribute_names(ratios, found)
    if features is not None and by is not None:
        raise click.UsageError("--by compares curves and --ratios hazards: name the attribute with --ratios alone.")
    if features is not None:
        return found.hazard_ratios(outcome, features, event=event, confidence_level=confidence)
    if event is not None:
        raise click.UsageError("--event goes with --ratios: curves show every event.")
    return found.survival(outcome, by=by, confidence_level=confidence)


@click.command(
    epilog="""\b
Examples:
  commingle fit ./release --target charges
  commingle fit ./release --target charges --features age,bmi --features smoker
  commingle fit ./release --target readmitted --family binomial
  commingle fit ./release --target falls --features age,sex --family poisson --offset years
  commingle fit ./release --target stay --features "age,age squared" --curve age
  commingle fit ./release --target readmitted --family binomial --plot odds.svg
  commingle fit http://coordinator:8000 --release ID --target charges --save ./release
"""
)
@release_options
@click.option("--target", required=True, metavar="NAME", help="The attribute to explain: numeric or binary.")
@click.option(
    "--features", multiple=True, metavar="A,B", help="The attributes that explain the target. Repeatable.  [all others]"
)
@click.option(
    "--family",
    type=click.Choice(FAMILIES),
    help="Fit odds ratios of one level (binomial) or of ordered levels (ordinal), or rate ratios of a count (poisson). "
    "--target NAME[LEVEL] names the event.",
)
@click.option(
    "--offset", metavar="NAME", help="With --family poisson: the number, such as years, that rates are per unit of."
)
@click.option(
    "--estimator",
    type=click.Choice(list(ESTIMATORS)),
    help=f"The default gives standard errors and serves to understand; {TO_PREDICT} serves to predict.",
)
@click.option("--no-intercept", is_flag=True, help="Fit through the origin, in original units.")
@_confidence_option
@click.option(
    "--interval-for",
    type=click.Choice(["table", "population"]),
    default="population",
    show_default=True,
    help="Intervals and p for the population the table was drawn from, or for the same fit on the private table.",
)
@click.option(
    "--curve", metavar="NAME", help="Show how the target changes with this number, over all terms that contain it."
)
@_plot_option
@reads(partial(answer_of, Fit | GeneralisedFit | Curve, **_OF_ONE), unless=_UNLESS)
def fit(
    *,
    found: Release,
    target: str,
    features: tuple[str, ...],
    family: str | None,
    offset: str | None,
    estimator: str | None,
    no_intercept: bool,
    confidence: float,
    interval_for: IntervalFor,
    curve: str | None,
    plot: Path | None,
) -> None:
    """Verify a published release and fit a linear or generalised linear model on it.

    DIR is a release directory (manifest.json, matrix.parquet, moments.json), URL a coordinator.
    """
    names = attribute_names(features, found)
    if family is not None:
        if estimator is not None or no_intercept or curve is not None:
            raise click.UsageError("--family has one estimator and an intercept; leave the other options out.")
        formula = Formula.of(target, names, tuple(found.prepared.attributes), offset)
        model = found.glm(formula, family=family, offset=offset, confidence_level=confidence, interval_for=interval_for)
        _show_as(found, model, "text", plot=plot)
        return
    if offset is not None:
        raise click.UsageError("--offset goes with --family poisson.")
    fitted = found.fit(
        target,
        names,
        estimator=estimator,
        intercept=not no_intercept,
        confidence_level=confidence,
        interval_for=interval_for,
    )
    _show_as(found, fitted if curve is None else fitted.curve(curve), "text", plot=plot)


@click.command(
    epilog="""\b
Examples:
  commingle export ./release --to files
  commingle export ./release --to files --rows 10000 age stage readmitted
  commingle export http://coordinator:8000 --release ID --to files
"""
)
@release_options
@click.argument("attributes", nargs=-1)
@click.option("--to", type=A_FOLDER, required=True, metavar="FOLDER", help="The folder to write the files to.")
@click.option(
    "--rows",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="Also write N synthetic rows, like `commingle synthesize`.",
)
@changes(partial(answer_of, Export, **_WRITTEN))
def export(*, found: Release, attributes: tuple[str, ...], to: Path, rows: int | None) -> None:
    """Write a release as files for R, Stata, SAS and catalogues.

    Covariances and means, tables of levels, a codebook, and what catalogues read of it (DCAT-AP, Croissant).

    DIR is a release directory, URL a coordinator. ATTRIBUTES are all where you name none.
    """
    names = attribute_names(attributes, found)
    made = found.export(names)
    numbers = [a.name for a in found.attributes if isinstance(a, NumericAttribute) and a.name in (names or ())]
    levelled = None if names is None else [name for name in names if name not in numbers]
    drawn = None if rows is None else found.synthesize(rows, levelled)
    written = [*made.write(to), *(() if drawn is None else drawn.write(to / "rows.csv"))]
    left_out = f"Left out of the rows, as numbers without cuts have no levels: {', '.join(numbers)}."
    more = () if drawn is None else (*([left_out] if numbers else []), *drawn.warnings)
    lines = [made.table().to_text().rstrip(), *(f"Warning: {warning}" for warning in more)]
    _show_written(found, made, "\n".join(lines), written, warnings=(*made.warnings, *more))


@click.command(
    epilog="""\b
Examples:
  commingle synthesize ./release --rows 10000 --out rows.csv
  commingle synthesize ./release --rows 10000 --out rows.parquet age stage readmitted
  commingle synthesize http://coordinator:8000 --release ID --rows 10000 --out rows.csv
"""
)
@release_options
@click.argument("attributes", nargs=-1)
@click.option("--rows", type=click.IntRange(1, MOST), required=True, metavar="N", help="The number of rows.")
@click.option(
    "--out",
    type=NEW_FILE,
    required=True,
    metavar="FILE",
    help="FILE.csv or FILE.parquet. FILE.dictionary.json and FILE.report.txt are written beside it.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="S",
    help="The same seed draws the same rows.",
)
@changes(partial(answer_of, SyntheticRows, **_WRITTEN))
def synthesize(*, found: Release, attributes: tuple[str, ...], rows: int, out: Path, seed: int) -> None:
    """Draw synthetic rows of a release into a file.

    It has to be of moments. The rows keep its tables of two attributes, for programs that take nothing but rows; use
    `commingle table` and `commingle fit` for intervals.

    DIR is a release directory, URL a coordinator. ATTRIBUTES are all with levels where you name none.
    """
    drawn = found.synthesize(rows, attribute_names(attributes, found), entropy=seed)
    _show_written(found, drawn, drawn.table().to_text().rstrip(), drawn.write(out), warnings=drawn.warnings)
