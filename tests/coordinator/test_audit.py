"""The chain of events and the coordinator's export."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from commingle.coordinator.coordinator import export_audit
from commingle.coordinator.errors import StorageError
from commingle.coordinator.members import revoke, rotate
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.errors import VerificationError
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.documents.terms import Bounds
from commingle.shared.mechanisms.moments.block import TRUST_PROVED
from commingle.shared.release.audit import (
    CoordinatorAudit,
    CoordinatorHistory,
    EventEntry,
    confirm_by_coordinator,
    event_body,
    verify_coordinator_audit,
)
from commingle.shared.release.charge import GENESIS, link_digest
from commingle.shared.release.verification import PublishedRelease, verify_release
from tests.world.command import Command
from tests.world.coordinator import Honest, Hub, Proposed, key_of
from tests.world.documents import START, rotation
from tests.world.exchange import approved


def published(hub: Hub, parties: tuple[Honest, Honest]) -> tuple[Proposed, PublishedRelease, bytes]:
    return publication(hub, hub.complete(parties))


def publication(hub: Hub, proposed: Proposed) -> tuple[Proposed, PublishedRelease, bytes]:
    hub.publisher.run_once()
    manifest, matrix, moments = (
        hub.http.get(f"/v1/releases/{proposed.id}/{name}").content for name in ("manifest", "matrix", "moments")
    )
    return proposed, verify_release(manifest, matrix, moments, trusted_coordinator=hub.key.fingerprint), manifest


def test_export_confirms_a_published_release(hub: Hub, parties: tuple[Honest, Honest]) -> None:
    proposed, release, manifest = published(hub, parties)
    history = verify_coordinator_audit(encode(export_audit(hub.coordinator)))
    assert history.signer == hub.key.fingerprint
    kinds = ["enrolment", "enrolment", "proposal", "approval", "approval", "block", "block", "published"]
    assert [event.kind for event in history.events] == kinds
    assert {event.release for event in history.events} == {None, proposed.id}
    assert history.members == {party.name: (party.key.fingerprint,) for party in parties}
    assert "coordinator's chain" in confirm_by_coordinator(history, release, manifest=manifest)


@pytest.mark.parametrize("missing", range(8))
def test_history_without_one_event_does_not_confirm_the_release(
    hub: Hub, parties: tuple[Honest, Honest], missing: int
) -> None:
    _, release, manifest = published(hub, parties)
    with hub.store._database.writing() as connection:
        connection.exec_driver_sql(f"DELETE FROM events WHERE seq = {missing + 1}")  # noqa: S608 - the test's own figures
        rows = connection.exec_driver_sql("SELECT seq FROM events ORDER BY seq").scalars().all()
    if missing < 7:  # the last one can be cut off without a gap; the release's own files then contradict it
        with pytest.raises(StorageError, match=f"event {missing + 2} does not fit"):
            export_audit(hub.coordinator)
    else:
        assert len(rows) == 7
        history = verify_coordinator_audit(encode(export_audit(hub.coordinator)))
        with pytest.raises(VerificationError, match="does not hold this published"):
            confirm_by_coordinator(history, release, manifest=manifest)


@pytest.mark.parametrize("change", ["party = 'registry'", "kind = 'rejection'", "at = at + 1", "document = NULL"])
def test_event_changed_in_the_database_is_noticed(hub: Hub, parties: tuple[Honest, Honest], change: str) -> None:
    hub.approved(parties)
    with hub.store._database.writing() as connection:
        connection.exec_driver_sql(f"UPDATE events SET {change} WHERE seq = 4")  # noqa: S608 - the test's own figures
    with pytest.raises(StorageError, match="event 4 does not fit"):
        export_audit(hub.coordinator)


def exchanged(
    hub: Hub, parties: tuple[Honest, Honest], bounds: Bounds = "trusted"
) -> tuple[PublishedRelease, bytes, CoordinatorHistory]:
    """A published moments release, and the coordinator's export."""
    exchanging = approved(hub, parties, bounds=bounds)
    exchanging.upload_all()
    _, release, manifest = publication(hub, exchanging.proposed)
    return release, manifest, verify_coordinator_audit(encode(export_audit(hub.coordinator)))


def with_events(
    history: CoordinatorHistory, kind: str, party: str, change: Callable[[EventEntry], list[EventEntry]]
) -> CoordinatorHistory:
    """The same with something else in the place of one party's message."""
    events = (change(event) if (event.kind, event.party) == (kind, party) else [event] for event in history.events)
    return replace(history, events=tuple(chain.from_iterable(events)))


@pytest.mark.parametrize("kind", ["columns", "reply"])
@pytest.mark.parametrize("copies", [0, 1, 2])
def test_history_confirms_an_exchange_with_one_message_of_each_kind_by_each_party(
    hub: Hub, parties: tuple[Honest, Honest], kind: str, copies: int
) -> None:
    release, manifest, history = exchanged(hub, parties)
    for party in parties:
        changed = with_events(history, kind, party.name, lambda event: [event] * copies)
        if copies == 1:
            assert "coordinator's chain" in confirm_by_coordinator(changed, release, manifest=manifest)
        else:
            with pytest.raises(VerificationError, match=f"does not hold one {kind} by each party"):
                confirm_by_coordinator(changed, release, manifest=manifest)


def test_history_confirms_a_release_whose_bounds_are_proved(hub: Hub, parties: tuple[Honest, Honest]) -> None:
    release, manifest, history = exchanged(hub, parties, "proved")
    assert release.manifest.privacy.trust == TRUST_PROVED
    assert "coordinator's chain" in confirm_by_coordinator(history, release, manifest=manifest)
    kinds = [event.kind for event in history.events if event.release == release.release]
    assert (kinds.count("columns"), kinds.count("reply")) == (2, 2)
    for kind in ("columns", "reply"):
        silent = with_events(history, kind, "registry", lambda _: [])
        with pytest.raises(VerificationError, match=f"does not hold one {kind} by each party"):
            confirm_by_coordinator(silent, release, manifest=manifest)


@pytest.mark.parametrize("kind", ["columns", "reply"])
@pytest.mark.parametrize("document", ["0" * 64, None])
def test_history_of_another_exchange_than_the_blocks_rely_on_does_not_confirm(
    hub: Hub, parties: tuple[Honest, Honest], kind: str, document: str | None
) -> None:
    release, manifest, history = exchanged(hub, parties)
    for party in parties:
        changed = with_events(
            history, kind, party.name, lambda event: [event.model_copy(update={"document": document})]
        )
        with pytest.raises(VerificationError, match="do not rely on the exchange in the coordinator's chain"):
            confirm_by_coordinator(changed, release, manifest=manifest)


@pytest.mark.parametrize("kind", ["columns", "reply"])
def test_history_that_attributes_one_partys_message_to_the_other_does_not_confirm(
    hub: Hub, parties: tuple[Honest, Honest], kind: str
) -> None:
    release, manifest, history = exchanged(hub, parties)
    documents = {event.party: event.document for event in history.events if event.kind == kind}
    of_other = {"clinic": documents["registry"], "registry": documents["clinic"]}

    def attribute(event: EventEntry) -> list[EventEntry]:
        return [event.model_copy(update={"document": of_other[event.party or ""]})]

    changed = with_events(with_events(history, kind, "clinic", attribute), kind, "registry", attribute)
    with pytest.raises(VerificationError, match="do not rely on the exchange in the coordinator's chain"):
        confirm_by_coordinator(changed, release, manifest=manifest)


def test_deal_that_is_made_up_does_not_stand_in_for_messages(hub: Hub, parties: tuple[Honest, Honest]) -> None:
    release, manifest, history = exchanged(hub, parties)
    changed = with_events(
        history, "reply", "registry", lambda event: [event.model_copy(update={"kind": "deal", "party": None})]
    )
    with pytest.raises(VerificationError, match="does not hold one reply by each party"):
        confirm_by_coordinator(changed, release, manifest=manifest)


def test_history_under_another_key_does_not_confirm(hub: Hub, parties: tuple[Honest, Honest]) -> None:
    _, release, manifest = published(hub, parties)
    audit = verify_coordinator_audit(encode(export_audit(hub.coordinator))).audit
    key = key_of("a stranger")
    envelope = seal(audit, kind="coordinator-audit", key=key)
    data = encode(SignedDocument(signing_key=key.verifying_key.raw.hex(), envelope=envelope))
    with pytest.raises(VerificationError, match="another key"):
        confirm_by_coordinator(verify_coordinator_audit(data), release, manifest=manifest)


def test_history_tells_who_joined_changed_keys_and_left(hub: Hub, parties: tuple[Honest, Honest]) -> None:
    clinic, registry = parties
    new = key_of("clinic, second key")
    rotate(hub.coordinator, "clinic", rotation(clinic.key, new))
    hub.clock.move(hours=1)
    revoke(hub.coordinator, "registry")
    history = verify_coordinator_audit(encode(export_audit(hub.coordinator)))
    assert [(event.kind, event.party, event.document) for event in history.events] == [
        ("enrolment", "clinic", clinic.key.fingerprint),
        ("enrolment", "registry", registry.key.fingerprint),
        ("rotation", "clinic", new.fingerprint),
        ("revocation", "registry", registry.key.fingerprint),
    ]
    assert history.events[3].at == "2026-03-01T13:00:00+00:00"
    assert history.members["clinic"] == (clinic.key.fingerprint, new.fingerprint)
    assert history.revoked == {"registry"}


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
    key = key_of("the coordinator")
    envelope = seal(audit, kind="coordinator-audit", key=key)
    return encode(SignedDocument(signing_key=key.verifying_key.raw.hex(), envelope=envelope))


@pytest.mark.parametrize("what", OUT_OF_ORDER)
def test_membership_out_of_order_is_refused_although_the_chain_holds(what: str) -> None:
    events = OUT_OF_ORDER[what]
    verify_coordinator_audit(history_of(events[:-1]))
    with pytest.raises(VerificationError, match=f"entry {len(events)}: a {events[-1][0]} that cannot be"):
        verify_coordinator_audit(history_of(events))


def test_release_under_a_key_that_never_was_enrolled_is_not_confirmed(hub: Hub, parties: tuple[Honest, Honest]) -> None:
    _, release, manifest = published(hub, parties)
    history = verify_coordinator_audit(encode(export_audit(hub.coordinator)))
    for members in ({**history.members, "clinic": (key_of("a stranger").fingerprint,)}, {}):
        with pytest.raises(VerificationError, match="clinic never had the key"):
            confirm_by_coordinator(replace(history, members=members), release, manifest=manifest)


def test_operator_exports_and_anyone_verifies(command: Command, tmp_path: Path) -> None:
    made = command.json("init", "--home", tmp_path / "hub")
    file = tmp_path / "audit-hub.json"
    exported = command.json("audit", "export", "--home", tmp_path / "hub", "--out", file)
    said = command.json("audit", "verify", file, "--key", made["fingerprint"])
    assert (said["head"], said["signer"], said["entries"]) == (exported["head"], made["fingerprint"], 0)
    code, _, err = command("audit", "verify", file, "--key", "0" * 64)
    assert (code, "not with the one expected" in err) == (1, True)
    document = decode(SignedDocument, file.read_bytes())
    assert document.signing_key
