"""The report of a simulation: `report.json`, and the same for a terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from commingle.services.client.release import Release
from commingle.services.simulation.dataset import StudyTable, missing_words
from commingle.services.simulation.evaluate import Reference, Score, ScoredFit
from commingle.services.simulation.releases import Planned
from commingle.services.tables import Table as Rows
from commingle.shared.documents.schema import encoded_columns
from commingle.shared.estimation.pairwise import held as counts_of
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.runtime.console import figures

Subjects: TypeAlias = frozenset[str]
_NO_FIT: dict[str, Any] = {"name": "-", "test_r2": None}
PICTURE = "coefficients.png"
_MOST_COUNTS = 15  # on a terminal; report.json has all


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A published release with its fits.

    Attributes:
        release: fetched and verified.
        seconds: until all had approved, until all blocks were in, until it was published.
        unfit: by name, why other estimators have no fit.
    """

    planned: Planned
    release: Release
    seconds: dict[str, float]
    fits: list[ScoredFit]
    unfit: dict[str, str]


def release_report(
    made: Made, reference: Reference, *, given: Mapping[str, Subjects], wide: Sequence[str]
) -> dict[str, Any]:
    """One entry of `releases`, in the unit of its subjects; `wide` are attributes with bounds that a few rows set.

    `given` are the subjects of each party: the true numbers, beside those that a keyed release tells.

    `rho_subject` and `epsilon_subject` are the loss of a person to everybody, the sum over all parties; those with
    `_outsiders` are the loss to people outside the consortium.
    """
    release, spec, privacy = made.release, made.release.spec, made.release.privacy
    scores = {fit.name: fit.score for fit in made.fits if fit.name != "constant"}
    everybody, outsiders = privacy.per_subject.own, privacy.outsiders.own
    return {
        "mechanism": spec.mechanism,
        "epsilon": spec.epsilon,
        "delta": spec.delta,
        "rho_subject": everybody.rho,
        "epsilon_subject": everybody.epsilon,
        "rho_subject_outsiders": outsiders.rho,
        "epsilon_subject_outsiders": outsiders.epsilon,
        "adjacency": spec.terms.adjacency,
        "subjects": "keyed" if spec.keyed else "listed",
        "subject_counts": subject_counts(release.prepared, given),
        "row_norm": spec.parties[0].row_norm,
        "first_stage_share": spec.parties[0].first_stage_share,
        "k": spec.k,
        "projection": spec.projection,
        "rows": release.prepared.rows,
        "id": release.id,
        "folder": made.planned.folder,
        "estimators": [_estimator(fit) for fit in made.fits],
        "left_out": made.unfit,
        "verdict": verdict(
            f"{spec.mechanism} at epsilon {spec.epsilon:g}", scores, reference.constant.test_mse, wide=wide
        ),
        "beats_mean": any(score.test_mse < reference.constant.test_mse for score in scores.values()),
        "seconds": {name: round(seconds, 3) for name, seconds in made.seconds.items()},
    }


def subject_counts(prepared: PreparedMoments, given: Mapping[str, Subjects]) -> list[dict[str, Any]]:
    """How many people a party holds or two share, by a keyed release and in truth; empty for listed subjects."""
    counts = () if prepared.pairs is None else counts_of(prepared.pairs)
    return [{**asdict(c), "truth": len(frozenset.intersection(*(given[name] for name in c.parties)))} for c in counts]


def full_report(
    dataset: StudyTable,
    releases: list[dict[str, Any]],
    reference: Reference,
    *,
    training: Rows,
    seconds: dict[str, float],
    warnings: list[str],
    suggestions: list[str],
) -> dict[str, Any]:
    """The whole report. `n` counts the training rows; `k` is the first release's that has one."""
    ols, constant = reference.score(reference.coefficients), reference.constant
    return {
        "n": training.n,
        "k": next((release["k"] for release in releases if release["k"] is not None), None),
        "parties": [
            {
                "name": name,
                "attributes": [attribute.name for attribute in attributes],
                "columns": len(encoded_columns(attributes)),
                "missing": missing_words(attributes, training),
            }
            for name, attributes in dataset.parties.items()
        ],
        "target": dataset.target,
        "releases": releases,
        "reference": {
            "ols_test_mse": ols.test_mse,
            "ols_test_r2": ols.test_r2,
            "constant_test_mse": constant.test_mse,
            "constant_test_r2": constant.test_r2,
            "ols_coefficients": reference.coefficients,
            "n_test": len(reference.test_y),
        },
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "warnings": warnings,
        "suggestions": suggestions,
    }


def verdict(what: str, scores: Mapping[str, Score], mean_mse: float, *, wide: Sequence[str] = ()) -> str:
    """A sentence on the fits, by their scores: which beat predicting the mean, and which do not.

    If attributes are `wide`, with bounds that a few rows set, the bounds and not the number of people are to blame.
    """
    losing = [name for name, score in scores.items() if score.test_mse >= mean_mse]
    winning = [name for name in scores if name not in losing]
    mean = f"predicting the mean (test MSE {mean_mse:.4g})"
    if not winning:
        why = f"the bounds of {', '.join(wide)}, which a few rows set" if wide else "so few people"
        return f"{what} does not beat {mean}, whatever the estimator: too much noise for {why}."
    if not losing:
        return f"{what} beats {mean} with every estimator."
    verb = "does" if len(losing) == 1 else "do"
    return f"{what}: {', '.join(losing)} {verb} not beat {mean}; {', '.join(winning)} did this time."


def _estimator(fit: ScoredFit) -> dict[str, Any]:
    said: dict[str, Any] = asdict(fit)
    score, warnings = said.pop("score"), said.pop("warnings")
    return {**said, **score, "warnings": list(warnings)}


def show(report: dict[str, Any], console: Console, *, out: Path) -> None:
    """Print a table for each release, with the mean and the fit without privacy beside its fits, and a verdict."""
    several = len(report["releases"]) > 1
    names = ", ".join(party["name"] for party in report["parties"])
    held_out = report["reference"]["n_test"]
    console.print(
        f"\nFits of {report['target']} on {report['n']:,} people at {len(report['parties'])} members ({names}), "
        f"judged on {held_out:,} other people.",
        highlight=False,
    )
    missing = [(party["name"], words) for party in report["parties"] for words in party["missing"]]
    for name, words in missing:
        console.print(Text(f"  {name}: {words}", style="yellow"))
    if any("count as" in words for _, words in missing):
        console.print(Text("  What counts as a midpoint bends slopes; --missing indicator marks it.", style="yellow"))
    for release in report["releases"]:
        console.print(Text(_title(release), style="bold cyan"))
        console.print(_table(release, report["reference"]))
        console.print(Text(f"→ {release['verdict']}", style="bold"))
        if not _models(release):
            console.print(
                Text(f"  Every fit across members was refused: {release['left_out']['ols']}.", style="yellow")
            )
        elif release["left_out"]:
            names = ", ".join(release["left_out"])
            console.print(Text(f"  Not made for a release of {release['mechanism']}: {names}.", style="dim"))
    if several:
        console.print(Text("\nAll releases", style="bold cyan"))
        console.print(_overview(report))
        r2 = _number(report["reference"]["ols_test_r2"])
        console.print(f"Without privacy, least squares has a test R² of {r2}.", highlight=False)
    _show_intervals(report["releases"], report["reference"]["ols_coefficients"], console, first_was_shown=several)
    for suggestion in report["suggestions"]:
        console.print(Text(f"\n{suggestion}", style="yellow"))
    spent = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in report["seconds"].items())
    console.print(f"\nSeconds: {spent}", highlight=False)
    drawn = f"Picture: {out / PICTURE}\n" if (out / PICTURE).exists() else ""
    console.print(f"{drawn}Report and releases: {out}", highlight=False)


def show_first(release: dict[str, Any], truth: dict[str, float], console: Console, *, out: Path) -> None:
    """Print the first release's best fit beside the fit without privacy, and where the picture is."""
    console.print(Text(_title(release), style="bold cyan"))
    console.print(Text(f"→ {release['verdict']}", style="bold"))
    _show_intervals([release], truth, console)
    if (out / PICTURE).exists():
        console.print(f"Picture: {out / PICTURE}", highlight=False)


def _show_intervals(
    releases: Sequence[dict[str, Any]], truth: dict[str, float], console: Console, *, first_was_shown: bool = False
) -> None:
    if (shown := _with_intervals(releases)) is None:
        return
    release, fit = shown
    if first_was_shown and release is releases[0]:
        console.print(f"Coefficients and people of {release['folder']}, the best release: above.", highlight=False)
        return
    held = {term: low <= truth[term] <= high for term, (low, high) in fit["intervals"].items() if term in truth}
    said = f"{sum(held.values())} of {len(held)} intervals hold the fit without privacy"
    console.print(Text(f"\n{fit['name']} of {release['folder']}: {said}", style="bold cyan"))
    console.print(_slopes(fit, held, truth))
    if release["subject_counts"]:
        console.print(_counts(release))


def _title(release: dict[str, Any]) -> str:
    kind = f" ({release['projection']})" if release["projection"] is not None else ""
    sketch = f", k = {release['k']:,}{kind}" if release["k"] is not None else ""
    outsiders, everybody = release["epsilon_subject_outsiders"], release["epsilon_subject"]
    return (
        f"\n{release['mechanism']}: epsilon {release['epsilon']:g} per member; for a person whom all members hold "
        f"{outsiders:.3g} against outsiders, {everybody:.3g} against everybody, members included; "
        f"delta {release['delta']:g}{sketch}"
    )


def _counts(release: dict[str, Any]) -> Table:
    table = figures("held by", "people", "private", "95 % interval", "used in fits")
    for count in release["subject_counts"][:_MOST_COUNTS]:
        low, high = (count["subjects"] + side * 2 * count["error"] for side in (-1, 1))
        private, within = f"{count['subjects']:,.0f}", f"{max(low, 0):,.0f} to {max(high, 0):,.0f}"
        cells = (f"{count['truth']:,}", private, within, f"{max(count['kept'], 0):,.0f}")
        table.add_row(" and ".join(count["parties"]), *cells, style=None if low <= count["truth"] <= high else "yellow")
    return table


def _with_intervals(releases: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    found = [
        (release, fit)
        for release in releases
        for fit in _models(release)
        if None not in chain(*fit["intervals"].values())
    ]
    return min(found, key=lambda each: each[1]["test_mse"], default=None)


def _slopes(fit: dict[str, Any], held: dict[str, bool], truth: dict[str, float]) -> Table:
    table = figures("term", "not private", "private", "95 % interval")
    for term, holds in held.items():
        low, high = fit["intervals"][term]
        cells = (_number(truth[term]), _number(fit["coefficients"][term]), f"{_number(low)} to {_number(high)}")
        table.add_row(Text(term), *cells, style=None if holds else "yellow")
    return table


def _overview(report: dict[str, Any]) -> Table:
    # by the best fit on the held-out people; nobody knows beforehand which fit that is
    table = figures("mechanism", "ε per member", "ε per person", "test R²")
    table.add_column("best fit")
    table.add_column("beats mean")
    for release in report["releases"]:
        best = min(_models(release), key=lambda fit: fit["test_mse"], default=_NO_FIT)
        beats = release["beats_mean"]
        epsilons = f"{release['epsilon']:g}", f"{release['epsilon_subject']:.3g}"
        cells = (*epsilons, _number(best["test_r2"]), best["name"], "yes" if beats else "no")
        table.add_row(release["mechanism"], *cells, style=None if beats else "dim")
    return table


def _models(release: dict[str, Any]) -> list[dict[str, Any]]:
    # none if parties share too few people, as far as noise tells
    return [fit for fit in release["estimators"] if fit["name"] != "constant"]


def _table(release: dict[str, Any], reference: dict[str, Any]) -> Table:
    table = figures("fit", "relative error", "test MSE", "test R²")
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
