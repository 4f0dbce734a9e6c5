import json

import pytest

from commingle.coordinator.errors import NameTakenError
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.model import encode
from commingle.shared.documents.statements import Enrolment, SignedDocument
from tests.world.coordinator import Honest, Hub, key_of, problem


def test_coordinator_shows_its_key(hub: Hub) -> None:
    shown = hub.http.get("/v1/coordinator").json()
    assert shown["fingerprint"] == hub.key.fingerprint
    assert shown["signing_key"] == hub.key.verifying_key.raw.hex()


def test_invited_party_is_enrolled_and_listed(hub: Hub) -> None:
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
    envelope = seal(document, kind="enrolment", key=thief)
    claimed = SignedDocument(signing_key=thief.verifying_key.raw.hex(), envelope=envelope)
    assert problem(hub.enrol(claimed)) == (403, "signature")
    borrowed = SignedDocument(signing_key=victim.verifying_key.raw.hex(), envelope=envelope)
    assert problem(hub.enrol(borrowed)) == (403, "signature")


def test_invites_are_stored_hashed(hub: Hub) -> None:
    secret = hub.invited("clinic").rsplit(".", 1)[1]
    with hub.store._database.reading() as connection:
        stored = str(connection.exec_driver_sql("SELECT * FROM invites").all())
    assert secret not in stored


def test_malformed_enrolment_is_a_422_problem(hub: Hub) -> None:
    unknown_field = b'{"signing_key": "%s", "envelope": {}, "extra": 1}' % (b"0" * 64)
    for body in (b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"signing_key": 1}', b"[" * 100_000, unknown_field):
        assert problem(hub.http.post("/v1/parties", content=body)) == (422, "document"), body[:40]


def test_document_of_another_kind_is_refused(hub: Hub) -> None:
    clinic = Honest("clinic", key_of("clinic"))
    right = clinic.enrolment(hub.invited("clinic"))
    wrong = json.loads(encode(right))
    wrong["envelope"]["payloadType"] = "application/vnd.commingle.approval+json"
    assert problem(hub.http.post("/v1/parties", json=wrong)) == (422, "document")


def test_json_body_beyond_its_limit_is_413(hub: Hub) -> None:
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
