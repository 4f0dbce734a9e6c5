"""The consortium of a simulation: a file for each party, and releases from their proposals to verified files."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from commingle.services.client.release import Release
from commingle.services.simulation.dataset import StudyTable
from commingle.services.simulation.parties import SUBJECT_ID
from commingle.services.simulation.progress import Stages
from commingle.services.simulation.releases import Allowance, Planned
from commingle.services.tables import Table
from commingle.services.testing.consortium import Consortium
from commingle.services.testing.errors import RoundError
from commingle.services.testing.nodes import Dataset
from commingle.shared.documents.subject_ids import id_parts
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.rounds import State
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.remote import connect
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


@dataclass(frozen=True, slots=True)
class Given:
    """What a party is given: a file, and its subjects."""

    dataset: Dataset
    subjects: NDArray[np.str_]


def write_party_files(
    dataset: StudyTable, training: Table, folder: Path, *, seed: int, overlap: float = 1.0
) -> dict[str, Given]:
    """Give each party a file with its own columns of the training rows and of others whom it holds.

    With an overlap below 1 it is given that share of these rows, drawn by itself.
    """
    given, ids = {}, _id_columns(dataset)
    for number, party in enumerate(dataset.parties):
        draw = np.random.default_rng([seed, 1, number])  # [0, 0] would be 0, which draws the cohort
        own = training.only(attribute.name for attribute in party.attributes)
        if party.name in dataset.others:
            own = own.and_rows(dataset.others[party.name])
        if overlap < 1:
            own = own.rows(np.flatnonzero(draw.random(own.n) < overlap))
        path = folder / f"{party.name}{_FORMATS[number % len(_FORMATS)]}"
        write_party_table(path, own, id_columns=ids, draw=draw)
        rules = tuple(dataset.id_rules or ())
        declared = Dataset(rows=path, attributes=party.attributes, subject_id=ids, id_rules=rules)
        given[party.name] = Given(declared, own.subjects)
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


def consortium_for(given: Mapping[str, Given], allowance: Allowance, *, folder: Path, stages: Stages) -> Consortium:
    """Processes of their own for all of them, which approve what the coordinator proposes."""
    return Consortium(
        {name: each.dataset for name, each in given.items()},
        keyed=allowance.keyed,
        processes=True,
        epsilon_cap=allowance.epsilon_cap,
        delta_cap=allowance.delta_cap,
        policy=allowance.policy,
        folder=folder,
        links=False,
        network=False,
        stage=stages.stage,
    )


def say_clipped(consortium: Consortium, stages: Stages) -> None:
    """How many values each party has clipped to the public bounds."""
    for party, registered in consortium.registered.items():
        clipped = {name: count for name, count in registered["clipped"].items() if count}
        if clipped:
            counts = ", ".join(f"{count:,} of {name}" for name, count in clipped.items())
            stages.notice(f"{party} moves values beyond the public bounds onto them: {counts}.")


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A published release.

    Attributes:
        release: fetched and verified.
        seconds: until all had approved, until all blocks were in, until it was published.
    """

    planned: Planned
    release: Release
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    planned: Planned
    forecast: dict[str, Any] | None
    events: list[tuple[ReleaseEvent, float]]

    def words(self, kind: str, party: str | None) -> str:
        """What happened just now; with the proposal, what the release is forecast to be worth and to take."""
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
        """How many events it takes: the proposal, approvals, blocks, the publication."""
        parties = len(self.planned.study.parties)
        exchanged = 2 * parties if mechanism_of(self.planned.spec).interactive else 0  # columns and replies
        return 2 * parties + 2 + exchanged

    def awaited(self, kind: str) -> set[str]:
        """Parties that have not sent this yet."""
        sent = {event.party for event, _ in self.events if event.kind == kind}
        return set() if self.state.final else {party.name for party in self.planned.study.parties} - sent


def publish(
    planned: Sequence[Planned], studies: Sequence[Path], consortium: Consortium, stages: Stages
) -> list[Outcome]:
    """Propose studies, wait until all are published, fetch and verify them."""
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
        return [Outcome(r.planned, client.fetch(identifier), _durations(r.events)) for identifier, r in opened.items()]


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
    """Agents decide within moments, but may take long over a large block, and over one release at a time."""
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
