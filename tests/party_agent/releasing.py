"""A release of a clinic and an insurer on its way, what may become of the clinic's table meanwhile, and power cuts."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from commingle.party_agent.home.datasets import DatasetRequest
from commingle.party_agent.private.parquet_store import PartitionedSource
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.wire.answers import DecisionName
from commingle.services.client.files import ReleaseFiles
from commingle.services.client.release import Release
from commingle.shared.documents.dsse import open_envelope
from commingle.shared.documents.statements import Rejection
from commingle.shared.dp.noise import Sampler
from commingle.shared.release.charge import ChargeState
from commingle.shared.runtime import faults
from commingle.shared.runtime.errors import UnreachableError
from tests.world.consortium import SCHEMAS, Consortium, CrashError, Noise, rows_of, strictly, write_csv
from tests.world.transport import no_fault, unreachable


def look(consortium: Consortium, *names: str, draw: Sampler | None = None) -> None:
    """These parties' agents look, one after the other; an agent that looks again is the same process."""
    with ExitStack() as running:
        agents = dict[str, Agent]()
        for name in names:
            if name not in agents:
                agents[name] = running.enter_context(consortium.agent(name, draw=draw))
            agents[name].step(strictly)


def publish(consortium: Consortium, **choices: Any) -> str:
    """A release of the pair's that is published, and that everybody has seen to be."""
    release = consortium.propose(**choices)
    look(consortium, *3 * ("clinic", "insurer"))
    assert consortium.state(release) == "published"
    return release


def published(consortium: Consortium, release: str) -> Release:
    """What the coordinator publishes of it, verified."""
    assert consortium.state(release) == "published"
    with consortium.coordinator.client() as client:
        parts = [client.get(f"/v1/releases/{release}/{name}").content for name in ("manifest", "matrix", "moments")]
    return Release.of(ReleaseFiles(*parts))


def approved_by_all(pair: Consortium, **choices: Any) -> str:
    release = pair.propose(**choices)
    look(pair, "clinic", "insurer")
    assert pair.state(release) == "approved"
    return release


def cut_off(consortium: Consortium, party: str, part: str, *, draw: Sampler | None = None) -> None:
    """That party looks, and cannot send what goes to a path that contains `part`."""
    consortium.coordinator.before = unreachable("PUT", part)
    with pytest.raises(UnreachableError):
        consortium.step(party, draw=draw)
    consortium.coordinator.before = no_fault


def proposed_and_lost(consortium: Consortium, *names: str, **choices: Any) -> str:
    """A proposal that these members have looked at before an older backup of the coordinator was restored."""
    consortium.enrol_everybody()
    coordinator, backup = consortium.coordinator, consortium.root / "backup of the coordinator"
    coordinator.close()
    shutil.copytree(coordinator.root, backup)
    release = consortium.propose(**choices)
    look(consortium, *names)
    restore(consortium, backup)
    return release


def restore(consortium: Consortium, backup: Path) -> Path:
    """Restore a backup of the coordinator. Returns one of what it was before."""
    coordinator, newest = consortium.coordinator, consortium.root / "newest backup of the coordinator"
    coordinator.close()
    coordinator.root.rename(newest)
    shutil.copytree(backup, coordinator.root)
    return newest


def stored(pair: Consortium) -> str:
    """A release whose block is stored at the clinic and has not reached the coordinator."""
    release = approved_by_all(pair)
    cut_off(pair, "clinic", "/blocks/")
    assert state_of(pair, release) == "stored"
    return release


def state_of(pair: Consortium, release: str, party: str = "clinic") -> ChargeState | None:
    charge = pair.charge(party, release)
    return charge.state if charge else None


def spent(pair: Consortium, party: str = "clinic") -> int:
    with pair.agent(party) as agent:
        return agent.ledger.spent().units


def reason_of(pair: Consortium, release: str, party: str = "clinic") -> str:
    return rejection_of(pair, release, party).reason


def rejection_of(pair: Consortium, release: str, party: str) -> Rejection:
    found = pair.coordinator.found(release)
    keys = [found.document.party(party).verifying_key]
    return open_envelope(found.rejections[party], Rejection, keys=keys).document


def change_table(pair: Consortium, what: str) -> None:
    rows = rows_of("clinic")
    changed = {
        "value": [{**rows[0], "age": "55.5"}, *rows[1:]],
        "order": rows[::-1],
        "fewer": rows[1:],
        "subject": [{**rows[0], "subject": "s999"}, *rows[1:]],
        "text": [{**rows[0], "age": "unknown"}, *rows[1:]],
    }[what]
    write_csv(pair.table("clinic"), changed)


@contextmanager
def dying_at(point: str, *, nth: int = 1) -> Iterator[None]:
    """Power is cut when a fault point is reached for the n-th time, and it is."""
    left = nth

    def strike(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if left == 0 and reached == point:
            raise CrashError

    faults.arm(strike)
    try:
        with pytest.raises(CrashError):
            yield
    finally:
        faults.arm(lambda _: None)


def register_partitions(pair: Consortium, folder: Path) -> Path:
    """The clinic's table in partitions, registered in place of its file."""
    request = DatasetRequest(
        subjects="listed",
        name="main",
        source=PartitionedSource(path=str(folder)),
        subject_id="subject",
        attributes=SCHEMAS["clinic"],
    )
    with pair.agent("clinic") as agent:
        found = agent.datasets.register(request, replace=True)
        assert found.view(counts=False).source == str(folder)
    return folder


def blocks_before_and_after_the_file(pair: Consortium) -> tuple[bytes, bytes]:
    """The clinic's block of the table that is registered, and that of its file, which is registered then."""
    bodies = []
    for title in ("of the table", "of the file"):
        release = approved_by_all(pair, mechanism="dgm", title=title)
        pair.step("clinic", draw=Noise())
        bodies.append(pair.coordinator.found(release).body("clinic"))
        with pair.agent("clinic") as agent:
            pair.register(agent, replace=True)
    return bodies[0], bodies[1]


def decision_of(pair: Consortium, name: str, release: str) -> DecisionName:
    with pair.agent(name) as agent:
        return agent.proposals.get(release).decision
