"""What a party is told to look at: releases of its own that took a step, and nothing in between."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from commingle.coordinator.feed import Feed
from commingle.coordinator.http import steps as http_steps
from commingle.coordinator.http.steps import Steps
from commingle.coordinator.store.releases import Releases
from commingle.coordinator.store.store import open_store
from tests.world.coordinator import Honest, Hub, Proposed, problem
from tests.world.documents import START
from tests.world.exchange import approved
from tests.world.postgres import PostgresServer

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


def streamed(hub: Hub, follow: Callable[[AsyncIterator[bytes], Feed], Any]) -> Any:
    """What is made of a member's stream, on an event loop of its own."""

    async def run() -> Any:
        feed = Feed(hub.store)
        return await follow(Steps(hub.store, feed).stream("clinic", 0, 0, by_itself=False), feed)

    return asyncio.run(run())


def data(event: bytes) -> tuple[list[str], int]:
    said = json.loads(event.decode().split("data: ")[1])
    return [item["id"] for item in said["items"]], said["last"]


def test_stream_tells_of_each_step_once_and_says_so_where_there_is_none(hub: Hub, parties: Parties) -> None:
    first = hub.proposed(parties)

    async def follow(stream: AsyncIterator[bytes], _: Feed) -> list[tuple[list[str], int]]:
        told = [data(await anext(stream)), data(await anext(stream))]
        hub.reject(first, "clinic", parties[0].rejection(first))
        return [*told, data(await anext(stream))]

    (begun, at), nothing, (ended, later) = streamed(hub, follow)
    assert (begun, nothing, ended) == ([first.id], ([], at), [first.id])
    assert later > at


def test_stream_ends_with_the_process_and_with_the_database_and_after_some_minutes(
    hub: Hub, parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.proposed(parties)

    async def until_the_process_ends(stream: AsyncIterator[bytes], feed: Feed) -> int:
        await anext(stream)
        feed.stop()
        return len([event async for event in stream])

    async def to_the_end(stream: AsyncIterator[bytes], _: Feed) -> int:
        return len([event async for event in stream])

    assert streamed(hub, until_the_process_ends) == 0
    with monkeypatch.context() as patched:
        patched.setattr(http_steps, "_STREAM_SECONDS", 0.5)
        assert streamed(hub, to_the_end) == 2, "the proposal, and that there was nothing for a second"
    hub.store.close()
    hub.store._prepared = False  # as where the database is not reached
    assert streamed(hub, to_the_end) == 0


def test_parties_of_a_release_are_shown_a_step_that_was_looked_up_once(
    hub: Hub, parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.proposed(parties)
    looked: list[str] = []
    get = Releases.get

    def counted(self: Releases, release: str) -> Any:
        looked.append(release)
        return get(self, release)

    monkeypatch.setattr(Releases, "get", counted)

    async def ask() -> list[tuple[int, bytes]]:
        told = Steps(hub.store, Feed(hub.store))
        return await asyncio.gather(*(told.next(party.name, 0, 0, by_itself=False) for party in parties))

    one, other = asyncio.run(ask())
    assert one == other
    assert len(looked) == 1


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
