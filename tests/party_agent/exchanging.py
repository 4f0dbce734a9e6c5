"""A moments release of a clinic and an insurer at each of its stages, what travels in it, and power cuts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pytest

from commingle.party_agent.coordinator_client import MessageKind
from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.model import decode
from commingle.shared.mechanisms.moments.exchange.documents import ColumnsStatement, ReplyStatement
from commingle.shared.runtime import faults
from commingle.shared.runtime.errors import UnreachableError
from tests.party_agent.releasing import approved_by_all, dying_at
from tests.world.consortium import Consortium, CrashError
from tests.world.transport import no_fault, unreachable

STATEMENTS: Mapping[MessageKind, type[ColumnsStatement] | type[ReplyStatement]] = {
    "columns": ColumnsStatement,
    "reply": ReplyStatement,
}
PATHS: Mapping[MessageKind, str] = {"columns": "/columns/", "reply": "/replies/"}
MESSAGES = 2 * len(STATEMENTS)
"""What a pair sends before its blocks."""


def approved(consortium: Consortium) -> str:
    """A release that all have approved."""
    return approved_by_all(consortium, mechanism="moments")


def signed(consortium: Consortium) -> str:
    """The same, with the clinic's columns signed and on its disk, and not sent."""
    release = approved(consortium)
    keep_back(consortium, "clinic", "columns")
    return release


def columned(consortium: Consortium) -> str:
    """A release to which everybody has sent columns."""
    release = approved(consortium)
    step_all(consortium)
    assert set(messages(consortium, release, "columns")) == set(consortium.homes)
    return release


def reply_signed(consortium: Consortium) -> str:
    """The same, with the insurer's reply signed and on its disk, and not sent."""
    release = columned(consortium)
    keep_back(consortium, "insurer", "reply")
    return release


def replied(consortium: Consortium) -> str:
    """A release to which everybody has sent columns and a reply."""
    release = columned(consortium)
    step_all(consortium)
    assert set(messages(consortium, release, "reply")) == set(consortium.homes)
    return release


def finish(consortium: Consortium, release: str) -> None:
    for _ in range(5):
        step_all(consortium)
    assert consortium.state(release) == "published"


def step_all(consortium: Consortium) -> None:
    for name in consortium.homes:
        consortium.step(name)


def keep_back(consortium: Consortium, party: str, kind: MessageKind) -> None:
    """That party makes a message and cannot send it."""
    consortium.coordinator.before = unreachable("PUT", PATHS[kind])
    with pytest.raises(UnreachableError):
        consortium.step(party)
    consortium.coordinator.before = no_fault


def messages(consortium: Consortium, release: str, kind: MessageKind) -> dict[str, Envelope]:
    """What the coordinator has, by party."""
    shares = consortium.coordinator.found(release).row.shares
    shown = {name: share.columns if kind == "columns" else share.reply for name, share in shares.items()}
    return {name: envelope for name, envelope in shown.items() if envelope is not None}


def body_of(consortium: Consortium, release: str, party: str, kind: MessageKind) -> bytes:
    """What belongs to it."""
    digest = messages(consortium, release, kind)[party].digest
    with consortium.coordinator.hub.coordinator.blobs.open_running(release, digest) as file:
        return file.read()


def received(consortium: Consortium, party: str, kind: MessageKind) -> list[bytes]:
    """The bodies of every attempt of a party to send it that arrived."""
    return consortium.coordinator.received.get(f"{kind} of {party}", [])


def replace_message(
    consortium: Consortium, release: str, party: str, envelope: Envelope, body: bytes, *, kind: MessageKind
) -> None:
    """Let the coordinator show and relay that, unchecked."""
    hub = consortium.coordinator.hub
    hub.coordinator.blobs.put_running(release, envelope.digest, BytesIO(body))
    with hub.store.write() as tx:
        tx.releases.save_message(release, party, envelope, kind=kind)


def resigned(consortium: Consortium, release: str, party: str, kind: MessageKind, **changes: Any) -> Envelope:
    """A party's statement once more, with changes, signed by the party itself."""
    said = decode(STATEMENTS[kind], messages(consortium, release, kind)[party].payload_bytes)
    key = consortium.homes[party].identity().signing_key
    return seal(said.model_copy(update=changes), kind=kind, key=key)


def forget_messages(consortium: Consortium, release: str, party: str) -> None:
    """The coordinator is as if restored from before that party's columns."""
    with consortium.coordinator.hub.store.write() as tx:
        tx.releases._save_share(release, party, columns=None, reply=None)


@dataclass
class Cut:
    """Power is cut when a point is reached by its name, or any for the n-th time."""

    point: str | int
    reached: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> None:
        self.reached.append(name)
        if self.point in {name, len(self.reached)}:
            raise CrashError


def cut_at(point: str | int) -> Cut:
    cut = Cut(point)
    faults.arm(cut)
    return cut


def in_earnest(_: str) -> None:
    """Nothing is cut."""


def crash_at(consortium: Consortium, point: str, party: str = "clinic") -> None:
    """A party looks, and its power is cut at that point."""
    with dying_at(point):
        consortium.step(party)
