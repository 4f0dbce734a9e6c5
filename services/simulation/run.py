"""The whole simulation, from a dataset to report, picture and release directories."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import cpu_count
from pathlib import Path
from typing import Any

from commingle.services.simulation.consortium import Consortium, Folders, Workshop, hand_out, start
from commingle.services.simulation.dataset import Dataset, holdout
from commingle.services.simulation.errors import OutputError
from commingle.services.simulation.evaluate import Reference, reference
from commingle.services.simulation.fitting import Judged, Unfit, fit_all
from commingle.services.simulation.narrator import Narrator
from commingle.services.simulation.picture import Panel, Series, draw
from commingle.services.simulation.processes import Processes, ended_by_signals
from commingle.services.simulation.releases import Planned, allowance
from commingle.services.simulation.report import full_report, release_report
from commingle.services.simulation.rounds import Outcome, publish
from commingle.shared.errors import CommingleError

_DRAWN = ("measurement_error", "debiased", "ols")


@dataclass(frozen=True, slots=True, eq=False)
class _Result:
    outcome: Outcome
    judged: tuple[Judged, ...]
    unfit: list[Unfit]


def simulate(
    dataset: Dataset, planned: tuple[Planned, ...], *, out: Path, seed: int, keep: bool, narrator: Narrator
) -> dict[str, Any]:
    """Run everything and write `out`; the report.

    Raises:
        SimulationError, RemoteError, ProtocolError: something failed; the logs are kept then.
    """
    for notice in dataset.notices:
        narrator.notice(notice)
    training_rows, held_out_rows = holdout(dataset.table.n, seed=seed)
    with ended_by_signals(), _work_folder(out, keep=keep) as work:
        with narrator.stage("split", "Dividing the table"):
            training = dataset.table.rows(training_rows)
            judge = reference(dataset, training, dataset.table.rows(held_out_rows))
            hand_out(dataset, training, Folders(work), seed=seed)
            studies = _write_studies(planned, dataset, out)
        with Processes(Folders(work).logs, threads=_threads(dataset)) as processes:
            shop = Workshop(Folders(work), processes, narrator)
            consortium = start(dataset, allowance(planned), shop)
            results = [_release(p, s, consortium, shop, judge) for p, s in zip(planned, studies, strict=True)]
    for result in results:
        result.outcome.release.save(out / result.outcome.planned.folder)
    with narrator.stage("picture", "Drawing coefficients.png"):
        _draw(results, judge, dataset, out / "coefficients.png")
    report = full_report(
        dataset,
        [release_report(r.outcome, r.judged, r.unfit, judge) for r in results],
        judge,
        n=len(training_rows),
        seconds={**narrator.seconds, "total": sum(narrator.seconds.values())},
        warnings=narrator.notices,
    )
    (out / "report.json").write_text(json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False))
    return report


def _release(planned: Planned, study: Path, consortium: Consortium, shop: Workshop, judge: Reference) -> _Result:
    what = f"{planned.spec.mechanism} at epsilon {planned.spec.epsilon:g}"
    with shop.narrator.stage("release", f"Releasing {what}"):
        outcome = publish(planned, study, consortium, shop)
    with shop.narrator.stage("fit", f"Fitting {what}"):
        judged, unfit = fit_all(consortium.learner, outcome.release.id, judge.target, judge)
    return _Result(outcome, judged, unfit)


def _write_studies(planned: tuple[Planned, ...], dataset: Dataset, out: Path) -> list[Path]:
    schema = [attribute.model_dump(mode="json") for attribute in dataset.attributes]
    (out / "schema.json").write_text(json.dumps(schema, indent=2, ensure_ascii=False))
    paths = []
    for release in planned:
        path = out / f"study-{release.folder}.json"
        path.write_text(release.study.model_dump_json(indent=2))
        paths.append(path)
    return paths


@contextmanager
def _work_folder(out: Path, *, keep: bool) -> Iterator[Path]:
    """Where keys, databases and logs are; gone afterwards, unless something failed or they are to be kept."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="work-", dir=out))
    except OSError as error:
        raise OutputError(f"cannot write to {out} ({error.strerror})", remedy="Choose another --out.") from None
    try:
        yield work
    except CommingleError as error:
        error.remedy = f"{error.remedy} The processes' logs are in {work / 'logs'}."
        raise
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    if not keep:
        shutil.rmtree(work, ignore_errors=True)


def _threads(dataset: Dataset) -> int:
    return max(1, (cpu_count() or 1) // len(dataset.parties))


def _draw(results: list[_Result], judge: Reference, dataset: Dataset, path: Path) -> None:
    panels = [Panel(_panel_title(result, judge), _series(result.judged, judge)) for result in results]
    title = f"{dataset.target}: private slopes beside the fit without privacy"
    draw(path, title=title, terms=judge.terms, ols=judge.slopes * judge.unit, panels=panels)


def _series(judged: tuple[Judged, ...], judge: Reference) -> tuple[Series, ...]:
    chosen = [fit for name in _DRAWN for fit in judged if fit.name == name]
    return tuple(
        Series(
            fit.name,
            judge.standardised(fit.coefficients),
            judge.standardised({term: ends[0] for term, ends in fit.intervals.items()}),
            judge.standardised({term: ends[1] for term, ends in fit.intervals.items()}),
        )
        for fit in chosen
    )


def _panel_title(result: _Result, judge: Reference) -> str:
    spec = result.outcome.release.spec
    sketch = f", k = {spec.k:,}" if spec.k is not None else ""
    mse = {fit.name: fit.score.test_mse for fit in result.judged}
    beaten = [name for name in mse if name != "constant" and mse[name] < judge.constant.test_mse]
    said = "" if beaten else "\nno fit beats predicting the mean"
    return f"{spec.mechanism}, ε = {spec.epsilon:g} per party, δ = {spec.delta:g}\nn = {spec.n:,}{sketch}{said}"
