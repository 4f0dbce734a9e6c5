"""The chain of events, the coordinator's export of it, and the log of member keys that it shows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import pytest

from commingle.coordinator.coordinator import export_audit
from commingle.coordinator.errors import StorageError
from commingle.coordinator.members import revoke, rotate
from commingle.shared.documents.dsse import SigningKey
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.documents.terms import Bounds
from commingle.shared.errors import VerificationError
from commingle.shared.mechanisms.moments.block import TRUST_PROVED
from commingle.shared.release.audit import (
    CoordinatorAudit,
    CoordinatorHistory,
    EventEntry,
    VerifiedLog,
    confirm_by_coordinator,
    event_body,
    member_log,
    require_continues,
    verify_coordinator_audit,
    verify_member_log,
)
from commingle.shared.release.charge import GENESIS, link_digest
from commingle.shared.release.verification import PublishedRelease
from tests.world.command import Command
from tests.world.coordinator import Hub, Parties, Proposed, key_of
from tests.world.documents import START, rotation
from tests.world.exchange import approved


def published(hub: Hub, parties: Parties) -> tuple[Proposed, PublishedRelease, bytes]:
    return publication(hub, hub.complete(parties))


def publication(hub: Hub, proposed: Proposed) -> tuple[Proposed, PublishedRelease, bytes]:
    hub.publisher.run_once()
    return proposed, hub.verified(proposed), hub.published(proposed)[0]


def exported(hub: Hub) -> CoordinatorHistory:
    return verify_coordinator_audit(encode(export_audit(hub.coordinator)))


def test_export_confirms_a_published_release(hub: Hub, parties: Parties) -> None:
    proposed, release, manifest = published(hub, parties)
    history = exported(hub)
    assert history.signer == hub.key.fingerprint
    kinds = ["enrolment", "enrolment", "proposal", "approval", "approval", "block", "block", "published"]
    assert [event.kind for event in history.entries] == kinds
    assert {event.release for event in history.entries} == {None, proposed.id}
    assert history.members == {party.name: (party.key.fingerprint,) for party in parties}
    assert "coordinator's chain" in confirm_by_coordinator(history, release, manifest=manifest)


@contextmanager
def altered(hub: Hub, statement: str) -> Iterator[None]:
    hub.sql("CREATE TABLE aside AS SELECT * FROM events")
    hub.sql(statement)
    yield
    hub.sql("DELETE FROM events")
    hub.sql("INSERT INTO events SELECT * FROM aside")
    hub.sql("DROP TABLE aside")


def test_history_without_one_event_does_not_confirm_the_release(hub: Hub, parties: Parties) -> None:
    _, release, manifest = published(hub, parties)
    for missing in range(1, 8):
        with (
            altered(hub, f"DELETE FROM events WHERE seq = {missing}"),  # noqa: S608 - the test's own figures
            pytest.raises(StorageError, match=f"event {missing + 1} does not fit"),
        ):
            export_audit(hub.coordinator)
    # the last one can be cut off without a gap; the release's own files then contradict it
    with altered(hub, "DELETE FROM events WHERE seq = 8"):
        assert hub.sql("SELECT count(*) FROM events") == [(7,)]
        history = exported(hub)
        with pytest.raises(VerificationError, match="does not hold this published"):
            confirm_by_coordinator(history, release, manifest=manifest)


def test_event_changed_in_the_database_is_noticed(hub: Hub, parties: Parties) -> None:
    hub.approved(parties)
    for change in ("party = 'registry'", "kind = 'rejection'", "at = at + 1", "document = NULL"):
        with (
            altered(hub, f"UPDATE events SET {change} WHERE seq = 4"),  # noqa: S608 - the test's own figures
            pytest.raises(StorageError, match="event 4 does not fit"),
        ):
            export_audit(hub.coordinator)
    assert exported(hub).members


Exported: TypeAlias = tuple[PublishedRelease, bytes, CoordinatorHistory]


def exchanged(hub: Hub, parties: Parties, bounds: Bounds = "trusted") -> Exported:
    """A published moments release, and the coordinator's export."""
    exchanging = approved(hub, parties, bounds=bounds)
    exchanging.upload_all()
    _, release, manifest = publication(hub, exchanging.proposed)
    return release, manifest, exported(hub)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    home = tmp_path_factory.mktemp("hub")
    hub = Hub(f"sqlite:///{home / 'coordinator.sqlite'}", home)
    found = exchanged(hub, (hub.enrolled("clinic"), hub.enrolled("registry")))
    hub.close()
    return found


def with_events(
    history: CoordinatorHistory, kind: str, party: str, change: Callable[[EventEntry], list[EventEntry]]
) -> CoordinatorHistory:
    """The same with something else in the place of one party's message."""
    events = (change(event) if (event.kind, event.party) == (kind, party) else [event] for event in history.entries)
    return replace(history, entries=tuple(chain.from_iterable(events)))


MISSING, OTHER = "does not hold one {kind} by each member", "do not rely on the exchange in the coordinator's chain"
each_kind = pytest.mark.parametrize("kind", ["columns", "reply"])


def changed_to(**changes: str | None) -> Callable[[EventEntry], list[EventEntry]]:
    return lambda event: [event.model_copy(update=changes)]


@each_kind
@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (lambda event: [event], None),
        (lambda _: [], MISSING),
        (lambda event: [event] * 2, MISSING),
        (changed_to(kind="deal", party=None), MISSING),
        (changed_to(document="0" * 64), OTHER),
        (changed_to(document=None), OTHER),
    ],
    ids=["as it was", "none", "twice", "a deal that is made up", "of another exchange", "without a document"],
)
def test_history_confirms_an_exchange_with_the_message_of_each_kind_by_each_party_and_no_other(
    history: Exported, kind: str, change: Callable[[EventEntry], list[EventEntry]], refused: str | None
) -> None:
    release, manifest, found = history
    for party in ("clinic", "registry"):
        changed = with_events(found, kind, party, change)
        if refused is None:
            assert "coordinator's chain" in confirm_by_coordinator(changed, release, manifest=manifest)
        else:
            with pytest.raises(VerificationError, match=refused.format(kind=kind)):
                confirm_by_coordinator(changed, release, manifest=manifest)


@each_kind
def test_history_that_attributes_one_partys_message_to_the_other_does_not_confirm(history: Exported, kind: str) -> None:
    release, manifest, found = history
    documents = {event.party: event.document for event in found.entries if event.kind == kind}
    changed = with_events(found, kind, "clinic", changed_to(document=documents["registry"]))
    changed = with_events(changed, kind, "registry", changed_to(document=documents["clinic"]))
    with pytest.raises(VerificationError, match=OTHER):
        confirm_by_coordinator(changed, release, manifest=manifest)


def test_history_confirms_a_release_whose_bounds_are_proved(hub: Hub, parties: Parties) -> None:
    release, manifest, found = exchanged(hub, parties, "proved")
    assert release.manifest.privacy.trust == TRUST_PROVED
    assert "coordinator's chain" in confirm_by_coordinator(found, release, manifest=manifest)


def test_history_under_another_key_does_not_confirm(hub: Hub, parties: Parties) -> None:
    _, release, manifest = published(hub, parties)
    audit = exported(hub).chain
    data = encode(SignedDocument.of(audit, key_of("a stranger")))
    with pytest.raises(VerificationError, match="another key"):
        confirm_by_coordinator(verify_coordinator_audit(data), release, manifest=manifest)


A, B, C = ("a" * 64, "b" * 64, "c" * 64)
OUT_OF_ORDER: dict[str, list[tuple[str, str, str | None, str | None]]] = {
    "twice": [("enrolment", "clinic", A, None), ("enrolment", "clinic", B, None)],
    "with another's key": [("enrolment", "clinic", A, None), ("enrolment", "lab", A, None)],
    "without a key": [("enrolment", "clinic", None, None)],
    "rotation of a stranger": [("rotation", "clinic", A, None)],
    "rotation back": [
        ("enrolment", "clinic", A, None), ("rotation", "clinic", B, None), ("rotation", "clinic", A, None),
    ],
    "revocation of a stranger": [("revocation", "clinic", A, None)],
    "revocation under a former key": [
        ("enrolment", "clinic", A, None), ("rotation", "clinic", B, None), ("revocation", "clinic", A, None),
    ],
    "rotation after the end": [
        ("enrolment", "clinic", A, None), ("revocation", "clinic", A, None), ("rotation", "clinic", B, None),
    ],
    "back under the old name": [
        ("enrolment", "clinic", A, None), ("revocation", "clinic", A, None), ("enrolment", "clinic", B, None),
    ],
    "approval after the end": [
        ("enrolment", "clinic", A, None), ("revocation", "clinic", A, None), ("approval", "clinic", C, C),
    ],
    "columns after the end": [
        ("enrolment", "clinic", A, None), ("revocation", "clinic", A, None), ("columns", "clinic", C, C),
    ],
    "reply after the end": [
        ("enrolment", "clinic", A, None), ("revocation", "clinic", A, None), ("reply", "clinic", C, C),
    ],
    "departure of a stranger": [("departure", "clinic", A, None)],
    "approval after it left": [
        ("enrolment", "clinic", A, None), ("departure", "clinic", A, None), ("approval", "clinic", C, C),
    ],
    "back under another key": [
        ("enrolment", "clinic", A, None), ("departure", "clinic", A, None), ("enrolment", "clinic", B, None),
    ],
    "something else": [("promotion", "clinic", A, None)],
}  # fmt: skip


def history_of(events: list[tuple[str, str, str | None, str | None]]) -> bytes:
    """A coordinator's export of these events (kind, party, document, release), its chain and signature in order."""
    bodies, head = [], GENESIS
    for kind, party, document, release in events:
        state = None if release is None else "proposed"
        body = event_body(
            previous=head, release=release, at=START, kind=kind, party=party, state=state, document=document
        )
        bodies.append(body)
        head = link_digest(body)
    audit = CoordinatorAudit(coordinator="hub", exported=START, head=head, entries=tuple(bodies))
    return encode(SignedDocument.of(audit, key_of("the coordinator")))


@pytest.mark.parametrize("what", OUT_OF_ORDER)
def test_membership_out_of_order_is_refused_although_the_chain_holds(what: str) -> None:
    events = OUT_OF_ORDER[what]
    verify_coordinator_audit(history_of(events[:-1]))
    with pytest.raises(VerificationError, match=f"entry {len(events)} of the chain: a {events[-1][0]} that cannot be"):
        verify_coordinator_audit(history_of(events))


def test_release_under_a_key_that_never_was_enrolled_is_not_confirmed(hub: Hub, parties: Parties) -> None:
    _, release, manifest = published(hub, parties)
    history = exported(hub)
    for members in ({**history.members, "clinic": (key_of("a stranger").fingerprint,)}, {}):
        with pytest.raises(VerificationError, match="clinic never had the key"):
            confirm_by_coordinator(replace(history, members=members), release, manifest=manifest)


def test_operator_exports_and_anyone_verifies(command: Command, tmp_path: Path) -> None:
    made = command.json("init", "--home", tmp_path / "hub")
    file = tmp_path / "audit-hub.json"
    exported = command.json("audit", "export", "--home", tmp_path / "hub", "--out", file)
    said = command.json("audit", "verify", file, "--key", made["fingerprint"])
    assert (said["head"], said["signer"], said["entries"]) == (exported["head"], made["fingerprint"], 0)
    assert "not with the one expected" in command.refused("audit", "verify", file, "--key", "0" * 64)
    document = decode(SignedDocument, file.read_bytes())
    assert document.signing_key


def shown(hub: Hub) -> VerifiedLog:
    answer = hub.http.get("/v1/member-log")
    assert answer.status_code == 200
    return verify_member_log(answer.content, trusted_coordinator=hub.key.fingerprint)


def test_history_and_log_tell_who_joined_changed_keys_and_left(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    before = shown(hub)
    hub.complete(parties)
    assert shown(hub).entries == before.entries  # what happens to releases is in the other chain
    new = key_of("clinic anew")
    rotate(hub.coordinator, "clinic", rotation(clinic.key, new, party="clinic", created=hub.clock()))
    hub.clock.move(hours=1)
    revoke(hub.coordinator, "registry")
    after, history = shown(hub), exported(hub)
    require_continues(before, after)
    changes = [
        ("enrolment", "clinic", clinic.key.fingerprint),
        ("enrolment", "registry", registry.key.fingerprint),
        ("rotation", "clinic", new.fingerprint),
        ("revocation", "registry", registry.key.fingerprint),
    ]
    assert [(entry.kind, entry.party) for entry in after.entries] == [change[:2] for change in changes]
    told = [event for event in history.entries if event.kind in {"enrolment", "rotation", "revocation"}]
    assert [(event.kind, event.party, event.document) for event in told] == changes
    assert told[-1].at == "2026-03-01T13:00:00+00:00"
    assert (after.members, after.revoked) == (history.members, history.revoked)
    assert after.members["clinic"] == (clinic.key.fingerprint, new.fingerprint)
    assert after.members["registry"] == (registry.key.fingerprint,)
    assert history.revoked == {"registry"}


def test_log_is_empty_and_holds_before_anybody_enrols(hub: Hub) -> None:
    assert shown(hub).entries == ()


def test_log_of_a_thousand_members_verifies() -> None:
    """It only ever grows, so no limit of ordinary documents holds for it."""
    key, at = SigningKey(b"\x01" * 32), START
    changes = [(at, "enrolment", f"hospital-{i}", sha256(str(i).encode()).hexdigest()) for i in range(1000)]
    log = member_log(changes, exported=at)
    assert len(verify_member_log(encode(SignedDocument.of(log, key))).entries) == 1000
