"""Who is let in: signed requests, replays, clocks and tokens."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from commingle.coordinator.errors import NameTakenError, UnknownError
from commingle.coordinator.http.app import create_app
from commingle.coordinator.http.streams import Feed
from commingle.coordinator.members import create_token, revoke_token
from commingle.shared.documents.model import encode
from commingle.shared.release.matrix import ARROW_STREAM
from tests.world.coordinator import Honest, Hub, Parties, Proposed, key_of, problem
from tests.world.transport import InProcess

READS = ("/v1/parties", "/v1/parties/clinic", "/v1/parties/clinic/keys", "/v1/releases", "/v1/events")


def approval_of(hub: Hub, proposed: Proposed, party: Honest) -> httpx.Request:
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


def test_replay_is_refused_at_once_and_after_the_window_as_too_old(hub: Hub, parties: Parties) -> None:
    proposed = hub.proposed(parties)
    request = approval_of(hub, proposed, parties[0])
    assert hub.http.send(request).status_code == 201
    assert problem(hub.http.send(request)) == (401, "replayed-request")
    assert hub.kinds(proposed) == ["proposal", "approval"]
    for _ in range(4):
        hub.clock.move(seconds=300)
        code = problem(hub.http.send(request))
        assert code in {(401, "replayed-request"), (401, "clock-skew")}
    assert code == (401, "clock-skew")


def test_honest_repetition_is_signed_afresh_and_its_nonce_is_forgotten_after_the_window(
    hub: Hub, parties: Parties
) -> None:
    proposed, sent = hub.proposed(parties), []
    for _ in range(3):
        sent.append(hub.http.send(approval_of(hub, proposed, parties[0])).status_code)
        hub.clock.move(hours=1)
    assert sent == [201, 200, 200]
    assert hub.sql("SELECT count(*) FROM nonces") == [(1,)]


def test_replica_refuses_what_another_received(hub: Hub, open_hub: Callable[[], Hub], parties: Parties) -> None:
    request = approval_of(hub, hub.proposed(parties), parties[0])
    assert open_hub().http.send(request).status_code == 201
    assert problem(hub.http.send(request)) == (401, "replayed-request")


@pytest.mark.parametrize("minutes", [-6, 6])
def test_clock_skew_is_explained_with_both_times(hub: Hub, parties: Parties, minutes: int) -> None:
    request = approval_of(hub, hub.proposed(parties), parties[0])
    hub.clock.move(minutes=minutes)
    refused = hub.http.send(request)
    assert problem(refused) == (401, "clock-skew")
    assert f"{hub.clock():%Y-%m-%dT%H:%M:%SZ}" in refused.json()["detail"]


def test_no_signature_and_altered_body_path_header_and_key_are_refused(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    proposed = hub.proposed(parties)
    other = hub.proposed(parties, study="another")

    def sent(**changes: object) -> tuple[int, str]:
        request = approval_of(hub, proposed, clinic)
        given = {"method": "PUT", "url": request.url, "content": request.content, "headers": request.headers}
        return problem(hub.http.request(**given | changes))  # type: ignore[arg-type]

    path, content = f"/v1/releases/{proposed.id}/approvals/clinic", encode(clinic.approval(proposed))
    unsigned = hub.http.put(path, content=content)
    assert problem(unsigned) == (401, "request-signature")
    assert unsigned.headers["www-authenticate"] == "Bearer"
    assert sent(content=encode(clinic.approval(proposed, head="2" * 64))) == (401, "request-signature")
    assert sent(url=f"/v1/releases/{other.id}/approvals/clinic") == (401, "request-signature")
    assert sent(url=f"/v1/releases/{proposed.id}/rejections/clinic") == (401, "request-signature")
    by_fellow = hub.http.put(path, content=content, auth=hub.auth(registry.key))
    assert problem(by_fellow) == (403, "scope")
    by_operator = hub.http.put(path, content=content, auth=hub.auth(hub.key))
    assert problem(by_operator) == (403, "scope")
    by_stranger = hub.http.put(path, content=content, auth=hub.auth(key_of("stranger")))
    assert problem(by_stranger) == (401, "request-signature")
    assert hub.kinds(proposed) == ["proposal"]


def test_altered_upload_is_refused_before_it_is_looked_at(hub: Hub, parties: Parties, clinic: Honest) -> None:
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
    hub: Hub, parties: Parties, clinic: Honest
) -> None:
    proposed = hub.proposed(parties)
    hub.sql("ALTER TABLE parties RENAME TO away")
    auth, content = hub.auth(clinic.key), encode(clinic.approval(proposed))
    assert problem(hub.http.get("/v1/releases", auth=auth)) == (503, "storage")
    assert problem(hub.http.get("/v1/ledger-heads", auth=auth)) == (503, "storage")
    path = f"/v1/releases/{proposed.id}/approvals/clinic"
    assert problem(hub.http.put(path, content=content, auth=auth)) == (503, "storage")
    hub.sql("ALTER TABLE away RENAME TO parties")
    assert hub.http.put(path, content=content, auth=auth).status_code == 201


def test_closed_reads_need_a_members_signature_or_a_token(hub: Hub, clinic: Honest, registry: Honest) -> None:
    token = create_token(hub.coordinator, name="learner", scope="read", lifetime=None)
    proposed = hub.proposed([clinic, registry])
    of_release = tuple(f"/v1/releases/{proposed.id}{part}" for part in ("", "/manifest", "/matrix", "/moments"))
    with closed(hub) as http:
        for path in (*READS, *of_release):
            expected = {409} if path in of_release[1:] else {200}
            assert problem(http.get(path)) == (401, "unauthenticated"), path
            assert problem(http.get(path, headers={"Authorization": "Bearer x"})) == (401, "unauthenticated")
            assert problem(http.get(path, auth=hub.auth(key_of("x")))) == (401, "request-signature")
            assert {http.get(path, auth=hub.auth(clinic.key)).status_code} == expected
            assert {http.get(path, headers={"Authorization": f"Bearer {token}"}).status_code} == expected
        assert http.get("/v1/coordinator").status_code == 200  # whom a party is about to enrol with


def test_replayed_read_is_refused_where_not_everybody_may_read_and_leaves_nothing_in_the_database(
    hub: Hub, parties: Parties
) -> None:
    before = hub.sql("SELECT count(*) FROM nonces")
    with closed(hub) as http:
        for client, path in ((http, "/v1/releases"), (hub.http, "/v1/ledger-heads")):
            request = client.build_request("GET", path)
            hub.auth(parties[0].key).sign(request)
            assert client.send(request).status_code == 200
            assert problem(client.send(request)) == (401, "replayed-request")
    assert hub.sql("SELECT count(*) FROM nonces") == before


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
    assert text.rsplit(".", 1)[1] not in str(hub.sql("SELECT * FROM tokens"))
    with pytest.raises(NameTakenError):
        create_token(hub.coordinator, name="learner", scope="operate", lifetime=None)
    with pytest.raises(UnknownError):
        revoke_token(hub.coordinator, "nobody")
