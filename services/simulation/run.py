"""The whole simulation, from a dataset to report, picture and release folders: party files, then releases.

The first release is made, fitted, drawn and shown before the others are proposed, which are then made side by side.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from commingle.services.client.release import Release
from commingle.services.errors import RoundError, writing
from commingle.services.planning.public_table import assumed_of_table
from commingle.services.simulation.dataset import StudyTable, holdout
from commingle.services.simulation.evaluate import Reference, fit_all, reference
from commingle.services.simulation.parties import SUBJECT_ID
from commingle.services.simulation.progress import Stages
from commingle.services.simulation.releases import Planned, allowance
from commingle.services.simulation.report import PICTURE, Made, full_report, release_report, show_first
from commingle.services.tables import Table
from commingle.services.testing.consortium import Consortium
from commingle.services.testing.nodes import Dataset
from commingle.services.testing.processes import stop_on_signals
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.subject_ids import id_parts
from commingle.shared.errors import CommingleError, MissingExtraError, PlanningError
from commingle.shared.forecast.forecast import plan
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.checks import terms_of
from commingle.shared.release.rounds import State
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.remote import connect
from commingle.shared.text import counted
from commingle.shared.values import as_numbers
from commingle.shared.wire import ReleaseEvent, ReleaseSummary

_FORMATS = (".parquet", ".csv")
_SILENCE_SECONDS = 900.0
_DECISION_SECONDS = 120.0
_WAIT_SECONDS = 2
_SAID = {
    "proposal": "proposed",
    "approval": "approved",
    "columns": "columns encrypted",
    "reply": "products answered",
    "block": "noisy block sent",
}


def write_party_files(
    dataset: StudyTable, training: Table, folder: Path, *, seed: int, overlap: float = 1.0
) -> dict[str, tuple[Dataset, NDArray[np.str_]]]:
    """Write each party's file: its columns of the training rows and of others whom it holds. Also give its subjects.

    With an overlap below 1 each party gets that share of these rows, drawn for itself.
    """
    given, ids = {}, _id_columns(dataset)
    for number, (party, attributes) in enumerate(dataset.parties.items()):
        draw = np.random.default_rng([seed, 1, number])  # [0, 0] would be 0, which draws the cohort
        own = training.only(attribute.name for attribute in attributes)
        if party in dataset.others:
            own = own.and_rows(dataset.others[party])
        if overlap < 1:
            own = own.rows(np.flatnonzero(draw.random(own.n) < overlap))
        path = folder / f"{party}{_FORMATS[number % len(_FORMATS)]}"
        write_party_table(path, own, id_columns=ids, draw=draw)
        rules = tuple(dataset.id_rules or ())
        declared = Dataset(rows=path, attributes=attributes, subject_id=ids, id_rules=rules)
        given[party] = declared, own.subjects
    return given


def write_party_table(
    path: Path, table: Table, *, id_columns: Sequence[str] = (SUBJECT_ID,), draw: np.random.Generator
) -> None:
    """Write a table in shuffled order, as CSV or Parquet by the path's suffix."""
    shuffled = table.rows(draw.permutation(table.n))
    parts = zip(*(id_parts(str(subject), len(id_columns)) for subject in shuffled.subjects), strict=True)
    written = pa.table({**dict(zip(id_columns, map(pa.array, parts), strict=True)), **shuffled.columns})
    if path.suffix == ".csv":
        pa.csv.write_csv(written, path)
    else:
        pa.parquet.write_table(written, path)


def _id_columns(dataset: StudyTable) -> tuple[str, ...]:
    return (SUBJECT_ID, *(f"{SUBJECT_ID} ({number})" for number in range(2, len(dataset.id_rules or ()) + 1)))


def say_clipped(consortium: Consortium, stages: Stages) -> None:
    """Say how many values each party has clipped to the public bounds."""
    for party, registered in consortium.registered.items():
        clipped = {name: count for name, count in registered["clipped"].items() if count}
        if clipped:
            counts = ", ".join(f"{count:,} of {name}" for name, count in clipped.items())
            stages.notice(f"{party} moves values beyond the public bounds onto them: {counts}.")


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    planned: Planned
    forecast: dict[str, Any] | None
    events: list[tuple[ReleaseEvent, float]]

    def words(self, kind: str, party: str | None) -> str:
        said = _SAID.get(kind, kind)
        if kind == "proposal" and self.forecast is not None:
            said += f", forecast to explain {self.forecast['r_squared']:.0%} of how {self.forecast['target']} varies"
            if (exchange := self.forecast["exchange"]) is not None:
                said += f"; the agents will compute for about {exchange['seconds']:.0f} s in all"
        return f"{self.planned.folder}: {said}{'' if party is None else f' by {party}'}"

    @property
    def state(self) -> State:
        return self.events[-1][0].state if self.events else State.PROPOSED

    @property
    def steps(self) -> int:
        parties = len(self.planned.study.parties)
        exchanged = 2 * parties if mechanism_of(self.planned.spec).interactive else 0  # columns and replies
        return 2 * parties + 2 + exchanged

    def awaited(self, kind: str) -> set[str]:
        sent = {event.party for event, _ in self.events if event.kind == kind}
        return set() if self.state.final else {party.name for party in self.planned.study.parties} - sent


def publish(
    planned: Sequence[Planned], studies: Sequence[Path], consortium: Consortium, stages: Stages
) -> list[tuple[Planned, Release, dict[str, float]]]:
    """Propose studies, wait until all are published, fetch and verify them; give the seconds of `Made` too."""
    commands = [consortium.coordinator.proposing(study) for study in studies]
    [proposed] = consortium.backend.run({"propose": commands}).values()
    opened = {str(a["id"]): _Open(p, a["forecast"], []) for a, p in zip(proposed, planned, strict=True)}
    with connect(consortium.coordinator.url) as http:
        coordinator = CoordinatorClient(http)
        _follow(coordinator, opened, consortium, stages)
        for identifier, release in opened.items():
            if release.state is not State.PUBLISHED:
                raise _ended_badly(coordinator.release(identifier), release.planned)
    with consortium.client() as client:
        return [(r.planned, client.fetch(identifier), _durations(r.events)) for identifier, r in opened.items()]


def _follow(coordinator: CoordinatorClient, opened: dict[str, _Open], consortium: Consortium, stages: Stages) -> None:
    last, happened, heard = 0, 0, time.monotonic()
    total = sum(release.steps for release in opened.values())
    while not all(release.state.final for release in opened.values()):
        page = coordinator.events(after=last, wait_seconds=_WAIT_SECONDS)
        for event in page.items:
            if (release := opened.get(event.release)) is not None:
                happened, heard = happened + 1, time.monotonic()
                release.events.append((event, heard))
                stages.step(release.words(event.kind, event.party), happened, total)
        last = page.last
        consortium.backend.check()
        _refuse_silence(opened.values(), time.monotonic() - heard, consortium)


def _refuse_silence(opened: Collection[_Open], seconds: float, consortium: Consortium) -> None:
    # agents decide within moments, but a large block may take long, and they make one at a time
    undecided = set.intersection(*(release.awaited("approval") for release in opened))
    awaited = undecided or set().union(*(release.awaited("block") for release in opened))
    if seconds > (_DECISION_SECONDS if undecided else _SILENCE_SECONDS):
        folders = ", ".join(release.planned.folder for release in opened if not release.state.final)
        raise RoundError(
            f"{folders}: nothing heard from {', '.join(sorted(awaited))} for {seconds:.0f} s"
            f"{consortium.backend.last_words(awaited)}",
            remedy="If the table is very large, try a smaller one.",
        )


def _ended_badly(release: ReleaseSummary, planned: Planned) -> RoundError:
    return RoundError(
        f"{planned.folder} was {release.state}: {release.reason}", remedy="Keep the logs with --keep and read them."
    )


def _durations(events: list[tuple[ReleaseEvent, float]]) -> dict[str, float]:
    def latest(kind: str) -> float:
        return max(heard for event, heard in events if event.kind == kind)

    moments = [latest(kind) for kind in ("proposal", "approval", "block", "published")]
    spans = [after - before for before, after in pairwise(moments)]
    return dict(zip(("approve", "privatise", "publish"), spans, strict=True))


_STAGES_BEFORE, _STAGES_OF_EACH = 5, 3
_MOST = (1, 99)  # per cent of the rows lie between
_WIDE = 2.5  # times the distance of these; extremes of a million normal rows are 2.1 times as far apart


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
    """Run everything, write `out`, and return the report. Every party gets the share `overlap` of its people."""
    for notice in dataset.notices:
        stages.notice(notice)
    batches = [batch for batch in (planned[:1], planned[1:]) if batch]
    stages.expected = _STAGES_BEFORE + _STAGES_OF_EACH * len(batches)
    training_rows, held_out_rows = holdout(dataset.table.n, seed=seed)
    made: list[Made] = []
    with stop_on_signals(), _work_folder(out, keep=keep) as work, ExitStack() as stack:
        with stages.stage("split", f"Dividing the table of {counted(dataset.table.n, 'person', 'people')}"):
            training = dataset.table.rows(training_rows)
            judge = reference(dataset, training, dataset.table.rows(held_out_rows))
            files = write_party_files(dataset, training, work, seed=seed, overlap=overlap)
            given = {name: frozenset(subjects.tolist()) for name, (_, subjects) in files.items()}
            studies = _write_studies(planned, dataset, out)
            wide = wide_attributes(dataset, training)
        tables, allowed = {name: rows for name, (rows, _) in files.items()}, allowance(planned)
        starting = Consortium(
            tables, **allowed, processes=True, folder=work, links=False, network=False, stage=stages.stage
        )
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
        published = publish(batch, [studies[folder] for folder in folders], consortium, stages)
    with stages.stage("fit", f"Fitting {', '.join(folders)}"):
        made = [Made(each, release, seconds, *fit_all(release, judge)) for each, release, seconds in published]
    for one in made:
        one.release.save(studies[one.planned.folder].with_name(one.planned.folder))
    return made


def _draw(path: Path, target: str, judge: Reference, made: Sequence[Made], stages: Stages) -> None:
    try:
        from commingle.services.simulation.picture import Panel, draw  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        missing = MissingExtraError("matplotlib", extra="plot")
        stages.notice(f"no picture is drawn: {missing}. {missing.remedy}")
        return
    title = f"{target}: private slopes beside the fit without privacy"
    panels = [Panel.of(each.release.spec, each.fits, judge) for each in made]
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
    # it has keys, databases and logs, and goes unless something fails or `keep` is given
    with writing(out, remedy="Choose another --out."):
        out.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="work-", dir=out))
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
    """What to try if no release beats the mean, by the forecast for these very rows."""
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
    """Numeric attributes with bounds far beyond nearly all values; the target first.

    Noise is as large as the bounds, so bounds that a few rows set decide what a release is worth.
    """
    wide = [a.name for a in dataset.attributes if isinstance(a, NumericAttribute) and _is_wide(a, table)]
    return tuple(sorted(wide, key=lambda name: name != dataset.target))


def _is_wide(attribute: NumericAttribute, table: Table) -> bool:
    values = as_numbers(attribute.name, table.columns[attribute.name])
    low, high = np.nanpercentile(values, _MOST)
    return bool(attribute.upper - attribute.lower > _WIDE * (high - low) > 0)
