"""The whole simulation, from a dataset to report, picture and release directories.

The first release is made, fitted, drawn and shown before the others are proposed, which are then made side by side.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from commingle.services.errors import OutputError
from commingle.services.planning.public_table import assumed_of_table
from commingle.services.simulation.consortium import consortium_for, publish, say_clipped, write_party_files
from commingle.services.simulation.dataset import StudyTable, holdout
from commingle.services.simulation.evaluate import Reference, fit_all, reference
from commingle.services.simulation.progress import Stages
from commingle.services.simulation.releases import Planned, allowance
from commingle.services.simulation.report import PICTURE, Made, full_report, release_report, show_first
from commingle.services.tables import Table
from commingle.services.testing.consortium import Consortium
from commingle.services.testing.processes import stop_on_signals
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.encoding import as_numbers
from commingle.shared.errors import CommingleError, MissingExtraError
from commingle.shared.forecast.errors import PlanningError
from commingle.shared.forecast.forecast import plan
from commingle.shared.release.resolve import terms_of

_STAGES_BEFORE, _STAGES_OF_EACH = 5, 3
_MOST = (1, 99)  # per cent of the rows lie between
_WIDE = 2.5  # times as far apart as the most are: of a normal column with a million rows, extremes are 2.1 times


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
    """Run everything and write `out`; the report. Every party is given that share of its people."""
    for notice in dataset.notices:
        stages.notice(notice)
    batches = [batch for batch in (planned[:1], planned[1:]) if batch]
    stages.expected = _STAGES_BEFORE + _STAGES_OF_EACH * len(batches)
    training_rows, held_out_rows = holdout(dataset.table.n, seed=seed)
    made: list[Made] = []
    with stop_on_signals(), _work_folder(out, keep=keep) as work, ExitStack() as stack:
        with stages.stage("split", f"Dividing the table of {dataset.table.n:,} people"):
            training = dataset.table.rows(training_rows)
            judge = reference(dataset, training, dataset.table.rows(held_out_rows))
            files = write_party_files(dataset, training, work, seed=seed, overlap=overlap)
            given = {name: frozenset(each.subjects.tolist()) for name, each in files.items()}
            studies = _write_studies(planned, dataset, out)
            wide = wide_attributes(dataset, training)
        starting = consortium_for(files, allowance(planned), folder=work, stages=stages)
        consortium = stack.enter_context(starting)
        say_clipped(consortium, stages)
        for batch in batches:
            made += _release(batch, studies, consortium, judge=judge, stages=stages)
            with stages.stage("picture", f"Drawing {out / PICTURE}"):
                _draw(out / PICTURE, dataset.target, judge, made, stages)
            if len(made) < len(planned):
                first = release_report(made[0], judge, given=given, wide=wide)
                stages.show(first["folder"], partial(show_first, first, judge.coefficients, out=out))
    reports = [release_report(each, judge, given=given, wide=wide) for each in made]
    report = full_report(
        dataset,
        reports,
        judge,
        training=training,
        seconds={**stages.seconds, "total": sum(stages.seconds.values())},
        warnings=stages.notices,
        suggestions=[] if any(each["beats_mean"] for each in reports) else suggestions(dataset, training, planned),
    )
    (out / "report.json").write_text(json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False))
    return report


def _release(
    batch: Sequence[Planned],
    studies: Mapping[str, Path],
    consortium: Consortium,
    *,
    judge: Reference,
    stages: Stages,
) -> list[Made]:
    folders = [each.folder for each in batch]
    names = ", ".join(party.name for party in batch[0].study.parties)
    with stages.stage("release", f"Releasing {', '.join(folders)} with {names}"):
        outcomes = publish(batch, [studies[folder] for folder in folders], consortium, stages)
    with stages.stage("fit", f"Fitting {', '.join(folders)}"):
        made = [Made(o, *fit_all(o.release, judge)) for o in outcomes]
    for folder, outcome in zip(folders, outcomes, strict=True):
        outcome.release.save(studies[folder].with_name(folder))
    return made


def _draw(path: Path, target: str, judge: Reference, made: Sequence[Made], stages: Stages) -> None:
    try:
        from commingle.services.simulation.picture import Panel, draw  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        missing = MissingExtraError("matplotlib", extra="plot")
        stages.notice(f"no picture is drawn: {missing}. {missing.remedy}")
        return
    title = f"{target}: private slopes beside the fit without privacy"
    panels = [Panel.of(each.outcome.release.spec, each.fits, judge) for each in made]
    draw(path, title=title, terms=judge.terms, ols=judge.slopes * judge.unit, panels=panels)


def _write_studies(planned: tuple[Planned, ...], dataset: StudyTable, out: Path) -> dict[str, Path]:
    schema = [attribute.model_dump(mode="json") for attribute in dataset.attributes]
    (out / "schema.json").write_text(json.dumps(schema, indent=2, ensure_ascii=False))
    paths = {release.folder: out / f"study-{release.folder}.json" for release in planned}
    for release in planned:
        paths[release.folder].write_text(release.study.model_dump_json(indent=2))
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


def suggestions(dataset: StudyTable, table: Table, planned: Sequence[Planned]) -> list[str]:
    """What to try where no release beat the mean: by the forecast for these very rows."""
    wide = wide_attributes(dataset, table)
    said = []
    if wide:
        said.append(
            f"98 % of the values of {', '.join(wide)} lie within less than half of the bounds, which a few others set, "
            "and noise is as large as the bounds. Narrow them in schema.json, from what is publicly known, and give "
            "it with --schema: what lies beyond is clipped."
        )
    asked = planned[0]
    try:
        design = terms_of(asked.study)
        assumed = assumed_of_table(table, design, where="the table", target=dataset.target)
        made = plan(design, replace(assumed, public_rows=None))  # these are the rows, not some like them
    except PlanningError:
        return said
    here = f"epsilon {asked.study.epsilon:g}"
    useful = [point for point in made.mechanisms if point.useful]
    if best := max(useful, key=lambda point: point.r_squared, default=None):
        said.append(
            f"At {here} {best.mechanism} is forecast to explain {best.r_squared:.0%} of {dataset.target} here. "
            f"Try: --mechanism {best.mechanism}"
        )
    elif first := next((point for point in made.over_epsilon if point.useful), None):
        said.append(
            f"No mechanism is forecast to be of use here at {here}; {first.mechanism} is from about epsilon "
            f"{first.at:.2g} on. Try: --epsilon {first.at:.2g}"
        )
    else:
        said.append(f"No mechanism is forecast to be of use here near {here}: it needs more people, or other features.")
    return said


def wide_attributes(dataset: StudyTable, table: Table) -> tuple[str, ...]:
    """Numeric attributes with bounds so far out that nearly all values lie close together; the target first.

    Noise is as large as the bounds, so bounds that a few rows set decide what a release is worth.
    """
    wide = [a.name for a in dataset.attributes if isinstance(a, NumericAttribute) and _is_wide(a, table)]
    return tuple(sorted(wide, key=lambda name: name != dataset.target))


def _is_wide(attribute: NumericAttribute, table: Table) -> bool:
    values = as_numbers(attribute.name, table.columns[attribute.name])
    low, high = np.nanpercentile(values, _MOST)
    return bool(attribute.upper - attribute.lower > _WIDE * (high - low) > 0)
