"""Enrolling, replacing a member's key and ending a membership, without touching the others."""

import json

import httpx
import pytest

from commingle.coordinator.coordinator import export_audit
from commingle.coordinator.errors import NameTakenError, UnknownError
from commingle.coordinator.members import depart, revoke
from commingle.shared.documents.dsse import Envelope, SigningKey, seal
from commingle.shared.documents.model import encode
from commingle.shared.documents.statements import Departure, Enrolment, RotationRequest, SignedDocument
from commingle.shared.release.audit import verify_coordinator_audit
from tests.world.coordinator import Honest, Hub, Parties, key_of, problem
from tests.world.documents import rotation


def test_invited_party_is_enrolled_and_listed_by_the_coordinator_that_shows_its_key(hub: Hub) -> None:
    coordinator = hub.http.get("/v1/coordinator").json()
    assert coordinator["fingerprint"] == hub.key.fingerprint
    assert coordinator["signing_key"] == hub.key.verifying_key.raw.hex()
    clinic = hub.enrolled("clinic")
    shown = hub.http.get("/v1/parties/clinic").json()
    assert shown["signing_key"] == clinic.key.verifying_key.raw.hex()
    assert shown["fingerprint"] == clinic.key.fingerprint
    assert hub.http.get("/v1/parties").json() == {"items": [shown], "next": None}


def test_same_enrolment_again_is_200_even_after_the_invite_expired(hub: Hub) -> None:
    clinic = Honest("clinic", key_of("clinic"))
    document = clinic.enrolment(hub.invited("clinic"))
    first = hub.enrol(document)
    hub.clock.move(hours=1000)
    again = hub.enrol(document)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()


def test_used_invite_with_other_keys_is_refused(hub: Hub) -> None:
    text = hub.invited("clinic")
    clinic = Honest("clinic", key_of("clinic"))
    assert hub.enrol(clinic.enrolment(text)).status_code == 201
    assert problem(hub.enrol(clinic.enrolment(text, key=key_of("thief")))) == (403, "invite")
    other_sealing = Honest("clinic", clinic.key, sealing_key="22" * 32)
    assert problem(hub.enrol(other_sealing.enrolment(text))) == (403, "invite")


def test_expired_foreign_and_invented_invites_are_refused(hub: Hub) -> None:
    clinic = Honest("clinic", key_of("clinic"))
    text = hub.invited("clinic", hours=1)
    assert problem(hub.enrol(Honest("registry", key_of("x")).enrolment(text))) == (403, "invite")
    assert problem(hub.enrol(clinic.enrolment(text[:-1] + "~"))) == (403, "invite")
    hub.clock.move(hours=1)
    assert problem(hub.enrol(clinic.enrolment(text))) == (403, "invite")
    assert hub.http.get("/v1/parties").json()["items"] == []


def test_name_and_key_can_be_enrolled_once(hub: Hub) -> None:
    first, second, third = hub.invited("clinic"), hub.invited("clinic"), hub.invited("registry")
    assert hub.enrol(Honest("clinic", key_of("clinic")).enrolment(first)).status_code == 201
    assert problem(hub.enrol(Honest("clinic", key_of("other")).enrolment(second))) == (409, "name-taken")
    assert problem(hub.enrol(Honest("registry", key_of("clinic")).enrolment(third))) == (409, "name-taken")
    with pytest.raises(NameTakenError):
        hub.invited("clinic")


def test_enrolment_that_names_another_key_than_its_signers_is_refused(hub: Hub) -> None:
    victim, thief = key_of("victim"), key_of("thief")
    document = Enrolment(
        invite=hub.invited("clinic"), name="clinic", signing_key=victim.verifying_key.raw.hex(), sealing_key="11" * 32
    )
    claimed = SignedDocument.of(document, thief)
    assert problem(hub.enrol(claimed)) == (403, "signature")
    borrowed = SignedDocument(signing_key=victim.verifying_key.raw.hex(), envelope=claimed.envelope)
    assert problem(hub.enrol(borrowed)) == (403, "signature")


def test_invites_are_stored_hashed(hub: Hub) -> None:
    secret = hub.invited("clinic").rsplit(".", 1)[1]
    assert secret not in str(hub.sql("SELECT * FROM invites"))


def test_malformed_enrolment_is_a_422_problem_and_one_beyond_its_limit_413(hub: Hub) -> None:
    unknown_field = b'{"signing_key": "%s", "envelope": {}, "extra": 1}' % (b"0" * 64)
    for body in (b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"signing_key": 1}', b"[" * 100_000, unknown_field):
        assert problem(hub.http.post("/v1/parties", content=body)) == (422, "document"), body[:40]

    wrong = json.loads(encode(Honest("clinic", key_of("clinic")).enrolment(hub.invited("clinic"))))
    wrong["envelope"]["payloadType"] = "application/vnd.commingle.approval+json"
    assert problem(hub.http.post("/v1/parties", json=wrong)) == (422, "document")
    assert problem(hub.http.post("/v1/parties", content=b" " * (4 << 20) + b"1")) == (413, "too-large")


def test_unknown_parties_are_404_whatever_they_are_called(hub: Hub) -> None:
    for name in ("nobody", "%00", "A", "a" * 500, "%F0%9F%98%80"):
        assert problem(hub.http.get(f"/v1/parties/{name}")) == (404, "unknown")


def test_parties_are_paged_in_the_order_they_enrolled(hub: Hub) -> None:
    names = [hub.enrolled(name).name for name in ("zeta", "clinic", "alpha")]
    first = hub.http.get("/v1/parties", params={"limit": 2}).json()
    second = hub.http.get("/v1/parties", params={"limit": 2, "cursor": first["next"]}).json()
    assert [party["name"] for page in (first, second) for party in page["items"]] == names
    assert second["next"] is None


def test_unknown_query_values_are_422(hub: Hub) -> None:
    for query in ("limit=0", "limit=201", "limit=many", "colour=blue"):
        assert problem(hub.http.get(f"/v1/parties?{query}")) == (422, "request"), query
    for cursor in ("!!", "bm9uc2Vuc2U", "djE6OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5", "%C3%A4", ""):
        assert problem(hub.http.get(f"/v1/parties?cursor={cursor}")) == (422, "cursor"), cursor


NEW = key_of("clinic, second key")


def rotate(hub: Hub, request: RotationRequest, *, signer: SigningKey, party: str = "clinic") -> httpx.Response:
    return hub.http.post(f"/v1/parties/{party}/keys", content=encode(request), auth=hub.auth(signer))


def test_rotation_replaces_the_key_keeps_the_history_and_is_repeated_under_the_new_key(
    hub: Hub, clinic: Honest, registry: Honest
) -> None:
    request = rotation(clinic.key, NEW)
    answer = rotate(hub, request, signer=clinic.key)
    assert answer.status_code == 201
    assert problem(rotate(hub, request, signer=clinic.key)) == (401, "request-signature")
    assert rotate(hub, request, signer=NEW).status_code == 200  # where the answer was lost
    assert answer.json()["fingerprint"] == NEW.fingerprint == hub.http.get("/v1/parties/clinic").json()["fingerprint"]
    history = hub.http.get("/v1/parties/clinic/keys").json()["items"]
    assert [key["fingerprint"] for key in history] == [clinic.key.fingerprint, NEW.fingerprint]
    assert history[0]["rotation"] is None
    assert history[1]["rotation"]["by_old"]["signatures"][0]["keyid"] == clinic.key.fingerprint
    assert hub.http.get("/v1/parties/registry").json()["fingerprint"] == registry.key.fingerprint


def test_old_key_is_nothing_after_its_rotation_and_never_comes_back_and_the_new_one_works(
    hub: Hub, parties: Parties, clinic: Honest, registry: Honest
) -> None:
    rotate(hub, rotation(clinic.key, NEW), signer=clinic.key)
    stale = hub.http.get("/v1/releases", auth=hub.auth(clinic.key))
    assert problem(stale) == (401, "request-signature")
    assert problem(hub.propose(hub.signed(hub.spec(parties)))) == (422, "spec")  # names the old key
    renewed = Honest("clinic", NEW)
    proposed = hub.proposed([renewed, registry])
    path = f"/v1/releases/{proposed.id}/approvals/clinic"
    body = encode(renewed.approval(proposed))
    assert problem(hub.http.put(path, content=body, auth=hub.auth(clinic.key))) == (401, "request-signature")
    assert hub.http.put(path, content=body, auth=hub.auth(NEW)).status_code == 201
    assert problem(rotate(hub, rotation(NEW, clinic.key), signer=NEW)) == (409, "name-taken")
    other = Honest("lab", clinic.key)
    assert problem(hub.enrol(other.enrolment(hub.invited("lab")))) == (409, "name-taken")


def test_rotation_by_others_or_to_keys_not_held_is_refused(hub: Hub, clinic: Honest, registry: Honest) -> None:
    thief = key_of("thief")
    attempts = {
        "signed by a fellow member": (rotation(clinic.key, thief), registry.key, (403, "scope")),
        "old signature by a fellow": (
            rotation(clinic.key, thief, by=(registry.key, thief)),
            clinic.key,
            (403, "signature"),
        ),
        "new key not held": (rotation(clinic.key, thief, by=(clinic.key, clinic.key)), clinic.key, (200, "")),
        "new key of a fellow": (rotation(clinic.key, registry.key), clinic.key, (409, "name-taken")),
        "another member": (rotation(clinic.key, NEW, party="registry"), clinic.key, (422, "document")),
        "another old key": (rotation(registry.key, NEW, by=(clinic.key, NEW)), clinic.key, (422, "document")),
        "to the same key": (rotation(clinic.key, clinic.key), clinic.key, (200, "")),
        "two documents": (
            RotationRequest(
                by_old=rotation(clinic.key, NEW).by_old, by_new=rotation(clinic.key, NEW, party="registry").by_new
            ),
            clinic.key,
            (422, "document"),
        ),
    }
    for name, (request, signer, expected) in attempts.items():
        answer = rotate(hub, request, signer=signer)
        assert (answer.status_code if answer.is_success else problem(answer)) in {expected, expected[0]}, name
    assert hub.http.get("/v1/parties/clinic").json()["fingerprint"] == clinic.key.fingerprint
    assert len(hub.http.get("/v1/parties/clinic/keys").json()["items"]) == 1


def test_rotation_ends_open_releases_and_lets_complete_and_published_ones_be(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    published = hub.complete(parties)
    hub.publisher.run_once()
    hub.clock.move(seconds=1)  # so that the same study makes another release
    complete = hub.complete(parties, mechanism="dgm")
    approved = hub.approved(parties)
    alone = hub.proposed([registry])
    assert rotate(hub, rotation(clinic.key, NEW), signer=clinic.key).status_code == 201
    hub.publisher.run_once()
    states = [hub.state(proposed) for proposed in (published, complete, approved, alone)]
    assert states == ["published", "published", "aborted", "proposed"]
    assert "clinic replaced its key" in hub.show(approved)["reason"]
    assert hub.kinds(approved)[-1] == "aborted"
    assert hub.verified(complete).release == complete.id


def test_revoked_member_is_refused_and_its_open_releases_end(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    published = hub.complete(parties)
    hub.publisher.run_once()
    hub.clock.move(seconds=1)
    proposed, complete, alone = hub.proposed(parties), hub.complete(parties, mechanism="dgm"), hub.proposed([registry])
    assert set(revoke(hub.coordinator, "clinic")) == {proposed.id, complete.id}
    hub.publisher.run_once()
    states = [hub.state(release) for release in (published, proposed, complete, alone)]
    assert states == ["published", "aborted", "aborted", "proposed"]
    assert hub.show(proposed)["reason"] == "clinic was revoked"
    assert problem(hub.approve(alone, "clinic", clinic.approval(alone))) == (403, "revoked")
    assert problem(hub.http.get("/v1/releases", auth=hub.auth(clinic.key))) == (403, "revoked")
    assert problem(rotate(hub, rotation(clinic.key, NEW), signer=clinic.key)) == (403, "revoked")
    assert hub.approve(alone, "registry", registry.approval(alone)).status_code == 201
    assert hub.http.get("/v1/parties/clinic").json()["revoked"] is not None
    assert hub.http.get("/v1/parties/registry").json()["revoked"] is None
    assert hub.verified(published).release == published.id


def test_revoked_member_neither_proposes_nor_is_proposed_to(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    revoke(hub.coordinator, "clinic")
    assert problem(hub.propose(hub.signed(hub.spec(parties)))) == (422, "spec")
    assert problem(hub.propose(hub.by_member([registry], clinic))) == (403, "signature")  # brought by the operator
    with pytest.raises(UnknownError):
        revoke(hub.coordinator, "clinic")
    with pytest.raises(UnknownError):
        revoke(hub.coordinator, "nobody")


def departure(hub: Hub, party: Honest) -> Envelope:
    document = Departure(party=party.name, coordinator=hub.key.fingerprint, created=hub.clock())
    return seal(document, key=party.key)


def leave(hub: Hub, party: Honest, envelope: Envelope | None = None) -> httpx.Response:
    body = (envelope or departure(hub, party)).to_json()
    return hub.http.put(f"/v1/parties/{party.name}/departure", content=body, auth=hub.auth(party.key))


def test_member_that_left_is_told_to_who_proposes_to_it_and_its_signature_shown(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    proposed, complete = hub.proposed(parties), hub.complete(parties, mechanism="dgm")
    assert leave(hub, clinic).json()["departure"] == departure(hub, clinic).model_dump(mode="json")
    assert hub.show(proposed)["reason"] == "clinic left"
    hub.publisher.run_once()
    assert hub.state(complete) == "published"  # every block of it was signed and paid for before
    hub.clock.move(seconds=1)
    refused = hub.propose(hub.signed(hub.spec(parties)))
    assert problem(refused) == (422, "spec")
    assert "clinic left on 2026-" in refused.json()["detail"]
    assert problem(leave(hub, clinic)) == (403, "revoked")
    assert depart(hub.coordinator, "clinic", departure(hub, clinic)).departure is not None  # at the same time: no event
    history = verify_coordinator_audit(encode(export_audit(hub.coordinator)))
    assert [event.kind for event in history.entries if event.release is None] == ["enrolment", "enrolment", "departure"]
    assert hub.propose(hub.signed(hub.spec([registry]))).status_code == 201


def test_member_that_left_comes_back_with_a_new_invite_and_its_key_alone(hub: Hub, parties: Parties) -> None:
    clinic, _ = parties
    leave(hub, clinic)
    first = hub.invited("clinic")
    assert problem(hub.enrol(Honest("clinic", NEW).enrolment(first))) == (409, "name-taken")
    assert hub.enrol(clinic.enrolment(first)).status_code == 201
    assert hub.http.get("/v1/parties/clinic").json()["departure"] is None
    hub.proposed(parties)
    leave(hub, clinic)
    assert problem(hub.enrol(clinic.enrolment(first))) == (403, "invite")  # it works once
    assert hub.enrol(clinic.enrolment(hub.invited("clinic"))).status_code == 201
    assert problem(hub.enrol(clinic.enrolment(first))) in {(403, "invite"), (409, "name-taken")}
    history = verify_coordinator_audit(encode(export_audit(hub.coordinator)))
    assert (history.members["clinic"], history.revoked) == ((clinic.key.fingerprint,), frozenset())
    revoke(hub.coordinator, "clinic")
    with pytest.raises(NameTakenError):
        hub.invited("clinic")


def test_departure_of_another_party_or_from_another_coordinator_is_refused(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    for name, coordinator in (("clinic", registry.key), ("registry", hub.key)):
        other = Departure(party=name, coordinator=coordinator.fingerprint, created=hub.clock())
        assert problem(leave(hub, clinic, seal(other, key=clinic.key))) == (422, "document")
    assert hub.http.get("/v1/parties/clinic").json()["revoked"] is None
