"""`commingle fit`."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from commingle.services.client.options import CoordinatorAccess, access_options
from commingle.services.client.pins import require_parties
from commingle.services.client.release import Release
from commingle.services.fit import ESTIMATORS, Fit
from commingle.shared.estimation.request import IntervalFor
from commingle.shared.runtime.cli import emit, json_option
from commingle.shared.text import quoted

if TYPE_CHECKING:  # httpx is slow to import and a directory needs none
    from commingle.services.client.remote import ReleaseClient

_SHOWN = 20


@click.command(
    epilog="""\b
Examples:
  commingle fit ./release --target charges
  commingle fit ./release --target charges --features age,bmi --features smoker
  commingle fit http://coordinator:8000 --release ID --target charges --save ./release
"""
)
@click.argument("source", metavar="DIR|URL")
@click.option("--release", metavar="ID", help="Which release, when fetching from a coordinator.")
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
@access_options
@click.option("--save", type=click.Path(path_type=Path), metavar="DIR", help="Also write the verified release there.")
@json_option
def fit(
    *,
    source: str,
    release: str | None,
    target: str,
    features: tuple[str, ...],
    estimator: str | None,
    no_intercept: bool,
    confidence: float,
    interval_for: IntervalFor,
    access: CoordinatorAccess,
    save: Path | None,
    as_json: bool,
) -> None:
    """Verify a published release and fit a linear model on it.

    DIR is a release directory (manifest.json, matrix.parquet, moments.json), URL a coordinator.
    """
    found = _open(source, release, access)
    require_parties(access.members, found.published.members)
    if save is not None:
        found.save(save)
    fitted = found.fit(
        target,
        _attribute_names(features, {a.name for a in found.attributes}),
        estimator=estimator,
        intercept=not no_intercept,
        confidence_level=confidence,
        interval_for=interval_for,
    )
    emit(_fit_dict(found, fitted), as_json=as_json, text=lambda console: _print_fit(console, found, fitted))


def _open(source: str, release: str | None, access: CoordinatorAccess) -> Release:
    if "://" not in source:
        if release is not None:
            raise click.UsageError("--release goes with a coordinator's URL; a directory holds one release.")
        return Release.load(source, trusted_coordinator=access.coordinator_key, members=access.members)
    from commingle.shared.runtime.console import PlainConsole  # noqa: PLC0415 - rich is slow to import

    with access.client(source) as client:
        if release is None:
            raise click.UsageError(f"Name the release with --release ID. {_list_releases(client)}")
        with PlainConsole(stderr=True).status("Fetching and verifying"):
            return client.fetch(release)


def _list_releases(client: "ReleaseClient") -> str:
    page = client.page(limit=_SHOWN)
    lines = [f"  {item.id}  {quoted(item.study)}" for item in page.items]
    more = ["  …"] if page.next is not None else []
    return "\n".join(["Published there:", *lines, *more]) if lines else "Nothing is published there yet."


def _attribute_names(given: Iterable[str], attributes: set[str]) -> tuple[str, ...] | None:
    """Names given one by one or with commas between them; a name may itself contain a comma."""
    names: list[str] = []
    for text in given:
        names += [text] if text in attributes else [name.strip() for name in text.split(",")]
    return tuple(names) or None


def _fit_dict(release: Release, fitted: Fit) -> dict[str, Any]:
    pins = {"coordinator_pinned": release.pinned, "members": release.published.members}
    return {"release": release.id, **pins, **fitted.to_dict()}


def _print_fit(console: Console, release: Release, fitted: Fit) -> None:
    console.print(fitted.summary(), highlight=False, soft_wrap=True)
    key = "key pinned" if release.pinned else "key not pinned: give --coordinator-key"
    found = release.published
    said = f"\nRelease {release.id[:16]}, verified; coordinator {key}.\nSigned by {', '.join(found.signers)}."
    if len(found.pinned) < len(found.members):
        said += " Give --member NAME=FINGERPRINT for members whose keys you know."
    console.print(said, highlight=False, soft_wrap=True)
