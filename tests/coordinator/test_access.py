"""Who is let in: signed requests, replays, clocks and tokens."""

from dataclasses import replace
from datetime import timedelta
from typing import get_args

import httpx
import pytest

from commingle.coordinator.access import CoordinatorScope, create_token, revoke_token
from commingle.coordinator.errors import NameTakenError, UnknownError
from commingle.coordinator.feed import Feed
from commingle.coordinator.http.app import create_app
from commingle.shared.documents.model import encode
from commingle.shared.release.block import ARROW_STREAM
from tests.world.coordinator import Honest, Hub, Proposed, key_of, problem
from tests.world.transport import InProcess

Parties = tuple[Honest, Honest]


def approval_of(hub: Hub, proposed: Proposed, party: Honest) -> httpx.Request:
    """Clinic's approval, signed and not yet sent."""
    path = f"/v1/releases/{proposed.id}/approvals/{party.name}"
    request = hub.http.build_request("PUT", path, content=encode(party.approval(proposed)))
    hub.auth(party.key).sign(request)
    return request


def closed(hub: Hub) -> httpx.Client:
    """The same coordinator where reading is not public."""
    coordinator = replace(hub.coordinator, public_reads=False)
    feed = Feed(hub.store)
    feed.stop()
    return httpx.Client(transport=InProcess(create_app(coordinator, hub.publisher, feed)), base_url="http://hub")


def test_replayed_request_is_refused_and_changes_nothing(hub: Hub, parties: Parties) -> None:
    proposed = hub.proposed(parties)
    request = approval_of(hub, proposed, parties[0])
    assert hub.http.send(request).status_code == 201
    assert problem(hub.http.send(request)) == (401, "replayed-request")
    assert hub.kinds(proposed) == ["proposal", "approval"]


def test_honest_repetition_is_signed_afresh_and_taken(hub: Hub, parties: Parties) -> None:
    proposed = hub.proposed(parties)
    sent = [hub.http.send(approval_of(hub, proposed, parties[0])).status_code for _ in range(3)]
    assert sent == [201, 200, 200]


def test_replay_after_the_window_is_refused_as_too_old(hub: Hub, parties: Parties) -> None:
    request = approval_of(hub, hub.proposed(parties), parties[0])
    assert hub.http.send(request).status_code == 201
    for _ in range(4):
        hub.clock.move(seconds=300)
        code = problem(hub.http.send(request))
        assert code in {(401, "replayed-request"), (401, "clock-skew")}
    assert code == (401, "clock-skew")


def test_nonces_are_forgotten_after_the_window(hub: Hub, parties: Parties) -> None:
    proposed = hub.proposed(parties)
    for _ in range(3):
        assert hub.http.send(approval_of(hub, proposed, parties[0])).status_code in {200, 201}
        hub.clock.move(hours=1)
    with hub.store._database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM nonces").scalar() == 1


def test_replica_refuses_what_another_received(hub: Hub, parties: Parties) -> None:
    proposed = hub.proposed(parties)
    request = approval_of(hub, proposed, parties[0])
    replica = Hub(hub.url, hub.home)
    try:
        assert replica.http.send(request).status_code == 201
        assert problem(hub.http.send(request)) == (401, "replayed-request")
    finally:
        replica.close()


@pytest.mark.parametrize("minutes", [-6, 6])
def test_clock_skew_is_explained_with_both_times(hub: Hub, parties: Parties, minutes: int) -> None:
    request = approval_of(hub, hub.proposed(parties), parties[0])
    hub.clock.move(minutes=minutes)
    refused = hub.http.send(request)
    assert problem(refused) == (401, "clock-skew")
    assert f"{hub.clock():%Y-%m-%dT%H:%M:%SZ}" in refused.json()["detail"]


def test_unsigned_changes_are_refused(hub: Hub, parties: Parties) -> None:
    clinic, _ = parties
    proposed = hub.proposed(parties)
    base = f"/v1/releases/{proposed.id}"
    unsigned = [
        hub.http.put(f"{base}/approvals/clinic", content=encode(clinic.approval(proposed))),
        hub.http.put(f"{base}/rejections/clinic", content=clinic.rejection(proposed).to_json()),
        hub.http.put(f"{base}/blocks/clinic", content=b"x", headers={"Commingle-Block": "{}"}),
        hub.http.post("/v1/releases", content=proposed.envelope.to_json()),
        hub.http.post("/v1/parties/clinic/keys", content=b"{}"),
    ]
    for answer in unsigned:
        assert problem(answer) == (401, "request-signature")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert hub.kinds(proposed) == ["proposal"]


def test_altered_body_path_header_and_key_are_refused(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    proposed = hub.proposed(parties)
    other = hub.proposed(parties, study="another")

    def sent(**changes: object) -> tuple[int, str]:
        request = approval_of(hub, proposed, clinic)
        given = {"method": "PUT", "url": request.url, "content": request.content, "headers": request.headers}
        return problem(hub.http.request(**given | changes))  # type: ignore[arg-type]

    assert sent(content=encode(clinic.approval(proposed, head="2" * 64))) == (401, "request-signature")
    assert sent(url=f"/v1/releases/{other.id}/approvals/clinic") == (401, "request-signature")
    assert sent(url=f"/v1/releases/{proposed.id}/rejections/clinic") == (401, "request-signature")
    path = f"/v1/releases/{proposed.id}/approvals/clinic"
    content = encode(clinic.approval(proposed))
    by_fellow = hub.http.put(path, content=content, auth=hub.auth(registry.key))
    assert problem(by_fellow) == (403, "scope")
    by_operator = hub.http.put(path, content=content, auth=hub.auth(hub.key))
    assert problem(by_operator) == (403, "scope")
    by_stranger = hub.http.put(path, content=content, auth=hub.auth(key_of("stranger")))
    assert problem(by_stranger) == (401, "request-signature")
    assert hub.kinds(proposed) == ["proposal"]


def test_altered_upload_is_refused_before_it_is_looked_at(hub: Hub, parties: Parties) -> None:
    clinic, _ = parties
    approved = hub.approved(parties)
    block = hub.block(approved, clinic)
    path = f"/v1/releases/{approved.id}/blocks/clinic"
    headers = {"Content-Type": ARROW_STREAM, "Commingle-Block": block.envelope.to_json().decode()}
    request = hub.http.build_request("PUT", path, content=block.body, headers=headers)
    hub.auth(clinic.key).sign(request)
    damaged = block.body[:-9] + bytes([block.body[-9] ^ 1]) + block.body[-8:]
    refused = hub.http.put(path, content=damaged, headers=request.headers)
    assert problem(refused) == (401, "request-signature")
    assert "not the one that was signed" in refused.json()["detail"]
    hub.auth(clinic.key).sign(request)
    swapped = dict(request.headers) | {"commingle-block": "{}"}
    assert problem(hub.http.put(path, content=block.body, headers=swapped)) == (401, "request-signature")
    assert hub.state(approved) == "approved"


def test_bad_signature_on_a_public_read_is_refused_and_none_is_not(hub: Hub, parties: Parties) -> None:
    assert hub.http.get("/v1/releases").status_code == 200
    assert hub.http.get("/v1/releases?limit=3", auth=hub.auth(parties[0].key)).status_code == 200
    assert problem(hub.http.get("/v1/releases", auth=hub.auth(key_of("x")))) == (401, "request-signature")


def test_directory_that_cannot_be_read_is_a_storage_fault_and_no_fault_of_the_signer(
    hub: Hub, parties: Parties
) -> None:
    clinic, _ = parties
    proposed = hub.proposed(parties)
    with hub.store.write() as tx:
        tx.members._connection.exec_driver_sql("ALTER TABLE parties RENAME TO away")
    auth, content = hub.auth(clinic.key), encode(clinic.approval(proposed))
    assert problem(hub.http.get("/v1/releases", auth=auth)) == (503, "storage")
    assert problem(hub.http.get("/v1/ledger-heads", auth=auth)) == (503, "storage")
    path = f"/v1/releases/{proposed.id}/approvals/clinic"
    assert problem(hub.http.put(path, content=content, auth=auth)) == (503, "storage")
    with hub.store.write() as tx:
        tx.members._connection.exec_driver_sql("ALTER TABLE away RENAME TO parties")
    assert hub.http.put(path, content=content, auth=auth).status_code == 201


READS = ("/v1/parties", "/v1/parties/clinic", "/v1/parties/clinic/keys", "/v1/releases", "/v1/events")


def test_closed_reads_need_a_members_signature_or_a_token(hub: Hub, parties: Parties) -> None:
    token = create_token(hub.coordinator, name="learner", scope="read", lifetime=None)
    proposed = hub.proposed(parties)
    of_release = tuple(f"/v1/releases/{proposed.id}{part}" for part in ("", "/manifest", "/matrix", "/moments"))
    with closed(hub) as http:
        for path in (*READS, *of_release):
            expected = {409} if path in of_release[1:] else {200}
            assert problem(http.get(path)) == (401, "unauthenticated"), path
            assert problem(http.get(path, headers={"Authorization": "Bearer x"})) == (401, "unauthenticated")
            assert problem(http.get(path, auth=hub.auth(key_of("x")))) == (401, "request-signature")
            assert {http.get(path, auth=hub.auth(parties[0].key)).status_code} == expected
            assert {http.get(path, headers={"Authorization": f"Bearer {token}"}).status_code} == expected
        assert http.get("/v1/coordinator").status_code == 200  # whom a party is about to enrol with


def test_replayed_read_is_refused_where_reading_is_closed(hub: Hub, parties: Parties) -> None:
    with closed(hub) as http:
        request = http.build_request("GET", "/v1/releases")
        hub.auth(parties[0].key).sign(request)
        assert http.send(request).status_code == 200
        assert problem(http.send(request)) == (401, "replayed-request")


@pytest.mark.parametrize("scope", get_args(CoordinatorScope))
def test_only_the_scope_operate_may_propose(hub: Hub, parties: Parties, scope: CoordinatorScope) -> None:
    token = create_token(hub.coordinator, name="ops", scope=scope, lifetime=None)
    body = hub.signed(hub.spec(parties)).envelope.to_json()
    answer = hub.http.post("/v1/releases", content=body, headers={"Authorization": f"Bearer {token}"})
    if scope == "operate":
        assert answer.status_code == 201
    else:
        assert problem(answer) == (403, "scope")


def test_token_is_nothing_where_a_party_must_sign(hub: Hub, parties: Parties) -> None:
    token = create_token(hub.coordinator, name="ops", scope="operate", lifetime=None)
    proposed = hub.proposed(parties)
    path = f"/v1/releases/{proposed.id}/approvals/clinic"
    body = encode(parties[0].approval(proposed))
    answer = hub.http.put(path, content=body, headers={"Authorization": f"Bearer {token}"})
    assert problem(answer) == (401, "request-signature")


def test_expired_and_revoked_tokens_let_nobody_in(hub: Hub) -> None:
    brief = create_token(hub.coordinator, name="brief", scope="read", lifetime=timedelta(days=1))
    lasting = create_token(hub.coordinator, name="lasting", scope="read", lifetime=None)
    with closed(hub) as http:

        def status(token: str) -> int:
            return http.get("/v1/releases", headers={"Authorization": f"Bearer {token}"}).status_code

        assert (status(brief), status(lasting), status(lasting[:-1])) == (200, 200, 401)
        hub.clock.move(days=1)
        assert (status(brief), status(lasting)) == (401, 200)
        revoke_token(hub.coordinator, "lasting")
        assert status(lasting) == 401


def test_tokens_are_stored_hashed_and_named_once(hub: Hub) -> None:
    text = create_token(hub.coordinator, name="learner", scope="read", lifetime=None)
    with hub.store._database.reading() as connection:
        stored = str(connection.exec_driver_sql("SELECT * FROM tokens").all())
    assert text.rsplit(".", 1)[1] not in stored
    with pytest.raises(NameTakenError):
        create_token(hub.coordinator, name="learner", scope="operate", lifetime=None)
    with pytest.raises(UnknownError):
        revoke_token(hub.coordinator, "nobody")
