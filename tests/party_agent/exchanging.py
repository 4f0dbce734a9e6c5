"""A moments release of a clinic and an insurer at each of its stages, what travels in it, and power cuts.

Bounds are trusted where a test is not about proofs: they take time.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import wraps
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

from commingle.party_agent.private.privatise import KeptRows
from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.model import decode
from commingle.shared.documents.terms import Bounds
from commingle.shared.mechanisms.moments.exchange.messages import ColumnsStatement, ReplyStatement
from commingle.shared.runtime.coordinator_client import MessageKind
from tests.party_agent.releasing import cut_off, dying_at, look, rejection_of, state_of
from tests.world.consortium import BY_A_PERSON, Consortium, CrashError, Noise, kept_folder, strictly
from tests.world.tampering import TamperedCoordinator

STATEMENTS: Mapping[MessageKind, type[ColumnsStatement] | type[ReplyStatement]] = {
    "columns": ColumnsStatement,
    "reply": ReplyStatement,
}
PATHS: Mapping[MessageKind, str] = {"columns": "/columns/", "reply": "/replies/"}
MESSAGES = 2 * len(STATEMENTS)
"""What a pair sends before its blocks."""


def approve_all(consortium: Consortium, *releases: str) -> None:
    """Everybody looks at these, and a person approves where members are trusted."""
    for name in consortium.homes:
        with consortium.agent(name) as agent:
            agent.step(strictly)
            for release in releases:
                agent.approve(release, BY_A_PERSON)
    assert {consortium.state(release) for release in releases} == {"approved"}


@dataclass(frozen=True)
class Kept:
    """A stage of a release on the disk, and what was sent until then."""

    folder: Path
    release: str
    requests: tuple[str, ...]
    received: Mapping[str, tuple[bytes, ...]]

    @classmethod
    def of(cls, consortium: Consortium, release: str) -> "Kept":
        """As it stands now, which may be where an agent comes by a fault point."""
        folder, coordinator = kept_folder() / "kept", consortium.coordinator
        shutil.copytree(consortium.root, folder)
        received = {what: tuple(bodies) for what, bodies in coordinator.received.items()}
        return cls(folder, release, tuple(coordinator.requests), received)

    def restore(self, consortium: Consortium) -> str:
        """A consortium that was made alike stands there."""
        consortium.become(self.folder)
        consortium.coordinator.requests[:] = self.requests
        consortium.coordinator.received.update({what: list(bodies) for what, bodies in self.received.items()})
        return self.release


stages: dict[str, Kept] = {}
"""What was reached in this process."""
_HOOKS = ("before", "after", "shown", "rewrite")


def _as_made(consortium: Consortium) -> str | None:
    """What a stage follows from but for keys, which are drawn for each consortium; None where somebody tampers."""
    coordinator, said = consortium.coordinator, sha256()
    if any(getattr(coordinator, hook) is not getattr(TamperedCoordinator, hook) for hook in _HOOKS):
        return None
    whose = (consortium.key, consortium.name, consortium.others)
    said.update(repr((whose, coordinator.clock.now, len(coordinator.requests))).encode())
    for name, home in sorted(consortium.homes.items()):
        for path in (consortium.table(name), home.root / "policy.json", home.root / "settings.json"):
            said.update(path.read_bytes())
        with closing(sqlite3.connect(home.database)) as ledger:
            kept = "SELECT json_remove(body, '$.snapshot', '$.source.path') FROM datasets ORDER BY name"
            said.update(repr([*ledger.execute(kept), *ledger.execute("SELECT count(*) FROM entries")]).encode())
    return said.hexdigest()


def reached_once(stage: Callable[..., str]) -> Callable[..., str]:
    """Exchanges take time: a stage is reached once in this process, and other consortia made alike become copies."""

    @wraps(stage)
    def reach(consortium: Consortium, bounds: Bounds = "trusted", **choices: Any) -> str:
        made = _as_made(consortium)
        if made is None:
            return stage(consortium, bounds, **choices)
        coordinator, which = consortium.coordinator, repr((stage.__name__, bounds, choices, made))
        if which not in stages:
            release = stage(consortium, bounds, **choices)
            coordinator.close()
            stages[which] = Kept.of(consortium, release)
            return release
        return stages[which].restore(consortium)

    return reach


@reached_once
def approved(consortium: Consortium, bounds: Bounds = "trusted", **choices: Any) -> str:
    """A release that all have approved."""
    release = consortium.propose(mechanism="moments", bounds=bounds, **choices)
    approve_all(consortium, release)
    return release


def signed(consortium: Consortium, bounds: Bounds = "trusted") -> str:
    """The same, with the clinic's columns signed and on its disk, and not sent."""
    release = approved(consortium, bounds)
    keep_back(consortium, "clinic", "columns")
    return release


@reached_once
def columned(consortium: Consortium, bounds: Bounds = "trusted", **choices: Any) -> str:
    """A release to which everybody has sent columns."""
    release = approved(consortium, bounds, **choices)
    step_all(consortium)
    assert set(messages(consortium, release, "columns")) == set(consortium.homes)
    return release


def reply_signed(consortium: Consortium, bounds: Bounds = "trusted") -> str:
    """The same, with the insurer's reply signed and on its disk, and not sent."""
    release = columned(consortium, bounds)
    keep_back(consortium, "insurer", "reply")
    return release


@reached_once
def replied(consortium: Consortium, bounds: Bounds = "trusted", **choices: Any) -> str:
    """A release to which everybody has sent columns and a reply."""
    release = columned(consortium, bounds, **choices)
    step_all(consortium)
    assert set(messages(consortium, release, "reply")) == set(consortium.homes)
    return release


def finish(consortium: Consortium, release: str) -> None:
    """Until it is published, and everybody has seen that."""
    look(consortium, *4 * (*consortium.homes,))
    assert consortium.state(release) == "published"


def step_all(consortium: Consortium) -> None:
    look(consortium, *consortium.homes)


def keep_back(consortium: Consortium, party: str, kind: MessageKind) -> None:
    """That party makes a message and cannot send it."""
    cut_off(consortium, party, PATHS[kind])


def messages(consortium: Consortium, release: str, kind: MessageKind) -> dict[str, Envelope]:
    """What the coordinator has, by party."""
    return consortium.coordinator.found(release).signed(kind)


def body_of(consortium: Consortium, release: str, party: str, kind: MessageKind) -> bytes:
    """What belongs to it."""
    digest = messages(consortium, release, kind)[party].digest
    with consortium.coordinator.hub.coordinator.blobs.open_running(release, digest) as file:
        return file.read()


def secret_of(consortium: Consortium, release: str, party: str) -> bytes:
    """What everything that the party keeps for an exchange is encrypted under."""
    return bytes.fromhex((consortium.homes[party].exchanges / release / "exchange.key").read_text())


def kept_by(consortium: Consortium, release: str, party: str) -> KeptRows:
    """A party's rows, and what it can make of them."""
    exchange = consortium.coordinator.exchange(release)
    path = consortium.homes[party].exchanges / release / "rows"
    return KeptRows(exchange, party, path, secret_of(consortium, release, party))


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
        tx.releases.save_signed(release, party, envelope, kind=kind)


def as_the_sender_signs_it(consortium: Consortium, release: str, sender: str, kind: MessageKind, body: bytes) -> None:
    """The sender itself is the cheat: what it signed is what is relayed."""
    envelope = resigned(consortium, release, sender, kind, body_sha256=sha256(body).hexdigest())
    replace_message(consortium, release, sender, envelope, body, kind=kind)


def second_columns(consortium: Consortium, release: str, party: str) -> bytes:
    """Columns of the same rows once more, with other errors and proofs: as good as the first."""
    return b"".join(kept_by(consortium, release, party).encrypted(os.urandom))


def signed_by(consortium: Consortium, release: str, party: str) -> set[str]:
    with consortium.agent(party) as agent:
        return {kind for kind in ("columns", "reply", "block") if agent.ledger.signature(release, kind)}


def assert_given_up_because_of(consortium: Consortium, release: str, party: str, sender: str, noise: Noise) -> None:
    """The party ended the release and said whose message was the reason; no block of it was ever made."""
    said = rejection_of(consortium, release, party)
    assert (said.reason, said.about) == ("exchange", sender)
    assert (consortium.state(release), state_of(consortium, release, party)) == ("aborted", "withdrawn")
    assert "block" not in signed_by(consortium, release, party)
    assert party not in consortium.coordinator.found(release).blocks
    home = consortium.homes[party]
    assert not any((folder / release).exists() for folder in (home.exchanges, home.outbox))
    calls = list(noise.calls)
    consortium.step(party, draw=noise)
    assert noise.calls == calls, "the release is over"


def resigned(consortium: Consortium, release: str, party: str, kind: MessageKind, **changes: Any) -> Envelope:
    """A party's statement once more, with changes, signed by the party itself."""
    said = decode(STATEMENTS[kind], messages(consortium, release, kind)[party].payload_bytes)
    key = consortium.homes[party].identity().signing_key
    return seal(said.model_copy(update=changes), key=key)


def forget_messages(consortium: Consortium, release: str, party: str) -> None:
    """The coordinator is as if restored from before that party's columns."""
    consortium.coordinator.execute(
        "UPDATE shares SET columns = NULL, reply = NULL WHERE release = ? AND party = ?", release, party
    )


@dataclass
class Cut:
    """Power is cut when any point is reached for the n-th time; `then` happens at all others."""

    nth: int
    reached: list[str] = field(default_factory=list)
    then: Callable[[], object] = lambda: None

    def __call__(self, name: str) -> None:
        self.reached.append(name)
        if len(self.reached) == self.nth:
            raise CrashError
        self.then()

    @property
    def struck(self) -> bool:
        return 0 < self.nth <= len(self.reached)


def in_earnest(_: str) -> None:
    """Nothing is cut."""


def crash_at(consortium: Consortium, point: str, party: str = "clinic") -> None:
    """A party looks, and its power is cut at that point."""
    with dying_at(point):
        consortium.step(party)
