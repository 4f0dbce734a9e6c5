"""The whole simulation, from a dataset to report, picture and release directories."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commingle.services.errors import OutputError
from commingle.services.simulation.advice import suggestions, wide_attributes
from commingle.services.simulation.consortium import Context, Folders, start, write_party_files
from commingle.services.simulation.dataset import StudyTable, holdout
from commingle.services.simulation.evaluate import Reference, ScoredFit, fit_all, reference
from commingle.services.simulation.processes import Processes, stop_on_signals
from commingle.services.simulation.progress import Stages
from commingle.services.simulation.releases import Planned, allowance
from commingle.services.simulation.report import full_report, release_report
from commingle.services.simulation.rounds import Outcome, publish
from commingle.shared.errors import CommingleError, MissingExtraError


def simulate(
    dataset: StudyTable,
    planned: tuple[Planned, ...],
    *,
    out: Path,
    seed: int,
    keep: bool,
    stages: Stages,
    overlap: float = 1.0,
) -> dict[str, Any]:
    """Run everything and write `out`; the report. Every party is given that share of its people.

    Raises:
        SimulationError, RemoteError, ProtocolError: something failed; the logs are kept then.
    """
    for notice in dataset.notices:
        stages.notice(notice)
    training_rows, held_out_rows = holdout(dataset.table.n, seed=seed)
    with (
        stop_on_signals(),
        _work_folder(out, keep=keep) as work,
        Processes(Folders(work).logs) as processes,
    ):
        with stages.stage("split", "Dividing the table"):
            training = dataset.table.rows(training_rows)
            judge = reference(dataset, training, dataset.table.rows(held_out_rows))
            given = write_party_files(dataset, training, Folders(work), seed=seed, overlap=overlap)
            studies = _write_studies(planned, dataset, out)
        context = Context(Folders(work), processes, stages)
        consortium = start(dataset, allowance(planned), context)
        with stages.stage("release", f"Releasing {len(planned)} times" if len(planned) > 1 else "Releasing"):
            outcomes = publish(planned, studies, consortium, context)
        with stages.stage("fit", "Fitting"):
            fits = [fit_all(consortium.learner, o.release, judge) for o in outcomes]
    for outcome in outcomes:
        outcome.release.save(out / outcome.planned.folder)
    with stages.stage("picture", "Drawing coefficients.png"):
        title = f"{dataset.target}: private slopes beside the fit without privacy"
        scored = [fitted for fitted, _ in fits]
        _draw(out / "coefficients.png", title, judge, [*zip(outcomes, scored, strict=True)], stages)
    wide = wide_attributes(dataset, training)
    reports = [
        release_report(o, scored, unfit, judge, given=given, wide=wide)
        for o, (scored, unfit) in zip(outcomes, fits, strict=True)
    ]
    beaten = not any(release["beats_mean"] for release in reports)
    report = full_report(
        dataset,
        reports,
        judge,
        training=training,
        seconds={**stages.seconds, "total": sum(stages.seconds.values())},
        warnings=stages.notices,
        suggestions=suggestions(dataset, training, planned) if beaten else [],
    )
    (out / "report.json").write_text(json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False))
    return report


def _draw(
    path: Path, title: str, judge: Reference, releases: Sequence[tuple[Outcome, list[ScoredFit]]], stages: Stages
) -> None:
    try:
        from commingle.services.simulation.picture import Panel, draw  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        missing = MissingExtraError("matplotlib", extra="plot")
        stages.notice(f"no picture is drawn: {missing}. {missing.remedy}")
        return
    panels = [Panel.of(outcome.release.spec, scored, judge) for outcome, scored in releases]
    draw(path, title=title, terms=judge.terms, ols=judge.slopes * judge.unit, panels=panels)


def _write_studies(planned: tuple[Planned, ...], dataset: StudyTable, out: Path) -> list[Path]:
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
