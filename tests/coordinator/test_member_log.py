"""The log of member keys that a coordinator shows."""

from hashlib import sha256

from commingle.coordinator.coordinator import export_audit
from commingle.coordinator.members import revoke, rotate
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.model import encode
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.release.audit import verify_coordinator_audit
from commingle.shared.release.member_log import KIND, VerifiedLog, member_log, require_continues, verify_member_log
from tests.world.coordinator import Honest, Hub, key_of
from tests.world.documents import START, rotation


def shown(hub: Hub) -> VerifiedLog:
    answer = hub.http.get("/v1/member-log")
    assert answer.status_code == 200
    return verify_member_log(answer.content, trusted_coordinator=hub.key.fingerprint)


def test_log_holds_every_key_in_order_and_goes_on(hub: Hub, parties: tuple[Honest, Honest]) -> None:
    clinic, registry = parties
    before = shown(hub)
    hub.complete(parties)
    assert shown(hub).entries == before.entries  # what happens to releases is in the other chain
    new = key_of("clinic anew")
    rotate(hub.coordinator, "clinic", rotation(clinic.key, new, party="clinic", created=hub.clock()))
    revoke(hub.coordinator, "registry")
    after = shown(hub)
    require_continues(before, after)
    assert [(entry.kind, entry.party) for entry in after.entries] == [
        ("enrolment", "clinic"),
        ("enrolment", "registry"),
        ("rotation", "clinic"),
        ("revocation", "registry"),
    ]
    history = verify_coordinator_audit(encode(export_audit(hub.coordinator)))
    assert (after.members, after.revoked) == (history.members, history.revoked)
    assert after.members["clinic"] == (clinic.key.fingerprint, new.fingerprint)
    assert after.members["registry"] == (registry.key.fingerprint,)


def test_log_is_empty_and_holds_before_anybody_enrols(hub: Hub) -> None:
    assert shown(hub).entries == ()


def test_log_of_a_thousand_members_verifies() -> None:
    """It only ever grows, so no limit of ordinary documents holds for it."""
    key, at = SigningKey(b"\x01" * 32), START
    changes = [(at, "enrolment", f"hospital-{i}", sha256(str(i).encode()).hexdigest()) for i in range(1000)]
    log = member_log(changes, exported=at)
    signed = SignedDocument(signing_key=key.verifying_key.raw.hex(), envelope=seal(log, kind=KIND, key=key))
    assert len(verify_member_log(encode(signed)).entries) == 1000
