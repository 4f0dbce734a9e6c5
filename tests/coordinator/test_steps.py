"""What a party is told to look at: releases of its own that took a step, and nothing in between."""

import threading
import time

import httpx
import pytest

from commingle.coordinator.store.store import open_store
from tests.conftest import PostgresServer
from tests.world.coordinator import Honest, Hub, Proposed, problem
from tests.world.documents import START
from tests.world.exchange import approved

Parties = tuple[Honest, Honest]


def steps(hub: Hub, after: int, *, party: str = "clinic", seconds: float = 0) -> tuple[list[str], int]:
    """Ids of releases, and the number to go on with."""
    params = {"after": after, "wait_seconds": seconds}
    said = hub.http.get(f"/v1/parties/{party}/releases", params=params).raise_for_status().json()
    return [item["id"] for item in said["items"]], said["last"]


def approve(hub: Hub, proposed: Proposed, party: Honest) -> None:
    assert hub.approve(proposed, party.name, party.approval(proposed)).status_code == 201


def test_proposal_last_approval_and_end_are_steps_and_what_others_are_waited_for_is_none(
    hub: Hub, parties: Parties
) -> None:
    clinic, other = parties
    _, last = steps(hub, 0)
    proposed = hub.proposed(parties)
    found, last = steps(hub, last)
    assert found == [proposed.id]
    approve(hub, proposed, clinic)
    found, last = steps(hub, last)
    assert found == []
    approve(hub, proposed, other)
    found, last = steps(hub, last)
    assert found == [proposed.id]
    hub.upload(proposed, "clinic", clinic.block(proposed, hub.approvals(proposed)))
    found, last = steps(hub, last)
    assert found == []
    hub.upload(proposed, other.name, other.block(proposed, hub.approvals(proposed)))
    found, last = steps(hub, last)
    assert found == []
    hub.publisher.run_once()
    found, last = steps(hub, last)
    assert found == [proposed.id]
    assert steps(hub, last) == ([], last)


def test_rejection_is_a_step(hub: Hub, parties: Parties) -> None:
    proposed = hub.proposed(parties)
    _, last = steps(hub, 0)
    hub.reject(proposed, "clinic", parties[0].rejection(proposed))
    assert steps(hub, last, party=parties[1].name)[0] == [proposed.id]


def test_last_message_of_an_exchange_is_a_step_and_the_others_are_none(hub: Hub, parties: Parties) -> None:
    exchanging = approved(hub, parties)
    _, last = steps(hub, 0)
    for kind in ("columns", "reply"):
        for party in parties:
            assert steps(hub, last)[0] == []
            exchanging.send_of(kind, party)
        found, last = steps(hub, last)
        assert found == [exchanging.proposed.id]


def test_release_is_shown_as_it_is_shown_by_itself(hub: Hub, parties: Parties) -> None:
    proposed = hub.complete(parties)
    hub.publisher.run_once()
    (item,) = hub.http.get("/v1/parties/clinic/releases").json()["items"]
    assert item == hub.show(proposed)


def test_releases_of_others_are_nothing_to_a_party(hub: Hub, parties: Parties) -> None:
    third = hub.enrolled("laboratory")
    _, last = steps(hub, 0)
    hub.proposed(parties)
    assert steps(hub, last, party=third.name)[0] == []
    assert steps(hub, last, party="clinic")[0] != []


def test_many_releases_come_in_several_answers_and_each_once(hub: Hub, parties: Parties) -> None:
    proposed = [hub.proposed(parties, study=f"study {number}").id for number in range(6)]
    first, last = steps(hub, 0)
    second, last = steps(hub, last)
    assert first + second == proposed
    assert 0 < len(second) < len(first)
    assert steps(hub, last) == ([], last)


def test_party_waits_through_events_that_are_no_steps_and_is_woken_by_one(hub: Hub, parties: Parties) -> None:
    clinic, other = parties
    proposed = hub.proposed(parties)
    _, last = steps(hub, 0)
    answers: list[tuple[list[str], int]] = []
    waiting = threading.Thread(target=lambda: answers.append(steps(hub, last, seconds=30)))
    started = time.monotonic()
    waiting.start()
    time.sleep(0.2)
    approve(hub, proposed, clinic)
    waiting.join(0.5)
    assert waiting.is_alive()
    approve(hub, proposed, other)
    waiting.join(60)
    assert time.monotonic() - started < 25
    assert answers[0][0] == [proposed.id]


def test_party_ahead_of_a_restored_database_starts_again(hub: Hub, parties: Parties) -> None:
    hub.proposed(parties)
    assert steps(hub, 1000, seconds=0.1) == ([], 3)


def test_unknown_member_and_malformed_questions_are_refused(hub: Hub) -> None:
    assert problem(hub.http.get("/v1/parties/nobody/releases")) == (404, "unknown")
    hub.enrolled("clinic")
    for query in ("after=-1", "wait_seconds=31", "since=1"):
        assert problem(hub.http.get(f"/v1/parties/clinic/releases?{query}")) == (422, "request"), query


@pytest.mark.slow
def test_replica_hears_at_once_of_what_another_one_commits(postgres: PostgresServer) -> None:
    postgres.empty()
    one, another = open_store(postgres.url), open_store(postgres.url)
    heard = threading.Event()
    one.on_event = heard.set
    with one.listening():
        assert heard.wait(30), "it looks when it begins to listen"
        heard.clear()
        with another.write() as tx:
            tx.events.add_membership(at=START, kind="enrolment", party="clinic", key="ab" * 32)
        assert heard.wait(30)
    one.close()
    another.close()


def test_signed_reads_are_refused_when_they_are_repeated_and_leave_nothing_in_the_database(
    hub: Hub, parties: Parties
) -> None:
    clinic, _ = parties
    request = hub.http.build_request("GET", "/v1/ledger-heads")
    signed = next(hub.auth(clinic.key).auth_flow(request))
    with hub.store._database.reading() as connection:
        before = connection.exec_driver_sql("SELECT count(*) FROM nonces").scalar()
    assert hub.http.send(signed).status_code == 200
    again: httpx.Response = hub.http.send(signed)
    assert problem(again) == (401, "replayed-request")
    with hub.store._database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM nonces").scalar() == before
