"""What those who wait are told: events by long polling, releases of their own that took a step, and streams of both."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from commingle.coordinator.http import streams
from commingle.coordinator.http.streams import Feed, Steps
from commingle.coordinator.store.releases import Releases
from commingle.coordinator.store.store import Store, Transaction, open_store
from tests.world.command import eventually
from tests.world.coordinator import Honest, Hub, Parties, Proposed, problem
from tests.world.documents import START
from tests.world.exchange import approved
from tests.world.postgres import PostgresServer


def server_sent(text: str) -> list[dict[str, Any]]:
    events = []
    for part in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in part.splitlines())
        data = json.loads(lines["data"])
        assert (lines["id"], lines["event"]) == (str(data["seq"]), data["kind"])
        events.append(data)
    return events


def test_events_carry_seq_kind_party_and_state(hub: Hub, parties: Parties, clinic: Honest) -> None:
    proposed = hub.proposed(parties)
    hub.approve(proposed, "clinic", clinic.approval(proposed))
    page = hub.http.get("/v1/events").json()
    first, second = page["items"]
    assert (first["kind"], first["party"], first["state"]) == ("proposal", None, "proposed")
    assert (second["kind"], second["party"], second["release"]) == ("approval", "clinic", proposed.id)
    assert second["at"] == "2026-03-01T12:00:00Z"
    assert page["last"] == second["seq"] > first["seq"]
    after = hub.http.get("/v1/events", params={"after": first["seq"]}).json()
    assert after["items"] == [second]


def test_memberships_are_no_news_about_releases(hub: Hub, parties: Parties) -> None:
    hub.proposed(parties)
    last = hub.http.get("/v1/events").json()["last"]
    hub.enrolled("laboratory")
    page = hub.http.get("/v1/events", params={"after": last, "wait_seconds": 0.1}).json()
    assert page == {"items": [], "last": last}


def test_long_poll_is_woken_by_a_commit_without_a_look_at_the_database(
    hub: Hub, parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commingle.coordinator.http.streams.POLL_SECONDS", 600.0)
    last = hub.http.get("/v1/events").json()["last"]
    params = {"after": last, "wait_seconds": 30}
    started = time.monotonic()
    with hub.meanwhile(lambda: hub.http.get("/v1/events", params=params).json()["items"]) as items:
        proposed = hub.proposed(parties)
        assert [item["release"] for item in items.result(60)] == [proposed.id]
    assert time.monotonic() - started < 25


def test_long_poll_returns_empty_in_time(hub: Hub) -> None:
    started = time.monotonic()
    answer = hub.http.get("/v1/events", params={"wait_seconds": 0.5}).json()
    assert answer == {"items": [], "last": 0}
    assert 0.5 <= time.monotonic() - started < 25


def test_reader_ahead_of_a_restored_database_starts_again(hub: Hub, parties: Parties) -> None:
    hub.proposed(parties)
    assert steps(hub, 1000, seconds=0.1) == ([], 3)
    answer = hub.http.get("/v1/events", params={"after": 1000, "wait_seconds": 0.1}).json()
    assert answer == {"items": [], "last": 3}


def test_reader_that_asks_again_at_once_is_never_told_twice(hub: Hub, parties: Parties) -> None:
    last, seen = 0, []
    for i in range(5):
        hub.proposed(parties, study=f"study {i}")
        for _ in range(3):
            page = hub.http.get("/v1/events", params={"after": last}).json()
            last = page["last"]
            seen += [item["seq"] for item in page["items"]]
    assert seen == [3, 4, 5, 6, 7]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the database was read."""
    looks, read = list[float](), Store.read

    def counted(self: Store) -> AbstractContextManager[Transaction]:
        looks.append(time.monotonic())
        return read(self)

    monkeypatch.setattr(Store, "read", counted)
    return looks


def test_hundreds_of_waiters_share_a_few_looks_at_the_database(hub: Hub, looks: list[float]) -> None:
    async def wait() -> None:
        feed = Feed(hub.store)
        await asyncio.gather(*(feed.wait(0, timeout_seconds=1) for _ in range(500)))

    started = time.monotonic()
    asyncio.run(wait())
    assert len(looks) <= 2 + (time.monotonic() - started) / 0.2


FOLLOWERS = 40


def following(
    hub: Hub, path: str, params: dict[str, Any], then: Callable[[], object], *, followers: int = FOLLOWERS
) -> list[httpx.Response]:
    """What so many are answered who ask at once, where something happens when all of them wait."""

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(hub.app), base_url="http://hub") as http:
            before = hub.feed.waits
            asked = [asyncio.create_task(http.get(path, params=params, timeout=60)) for _ in range(followers)]
            await asyncio.to_thread(
                eventually, lambda: hub.feed.waits >= before + followers, what="not all wait", seconds=60
            )
            await asyncio.to_thread(then)
            return await asyncio.gather(*asked)

    return asyncio.run(ask())


@pytest.mark.parametrize("followers", [FOLLOWERS, pytest.param(500, marks=pytest.mark.slow)])
def test_followers_of_one_release_share_the_looks_at_its_history(
    hub: Hub, parties: Parties, looks: list[float], followers: int
) -> None:
    proposed = hub.proposed(parties)

    def reject() -> None:
        looks.clear()
        hub.reject(proposed, "clinic", parties[0].rejection(proposed))

    answers = following(hub, f"/v1/releases/{proposed.id}/events", {}, reject, followers=followers)
    assert {tuple(event["kind"] for event in server_sent(a.text.replace(": waiting\n\n", ""))) for a in answers} == {
        ("proposal", "rejection")
    }
    assert len(looks) < FOLLOWERS / 2
    assert len(answers) == followers


def test_who_waits_for_events_after_the_same_one_shares_the_look_at_them(
    hub: Hub, parties: Parties, looks: list[float]
) -> None:
    last = hub.http.get("/v1/events").json()["last"]

    def propose() -> None:
        looks.clear()
        hub.proposed(parties)

    answers = following(hub, "/v1/events", {"after": last, "wait_seconds": 30}, propose)
    assert {len(answer.json()["items"]) for answer in answers} == {1}
    assert len(looks) < FOLLOWERS / 2


def test_event_wakes_who_follows_its_release_and_nobody_who_follows_another(hub: Hub, parties: Parties) -> None:
    one, another = hub.proposed(parties), hub.proposed(parties, study="another")

    async def follow() -> tuple[bool, bool]:
        feed = Feed(hub.store)
        last = await feed.last()
        waits = [asyncio.create_task(feed.wait(last, timeout_seconds=30, about=p.id)) for p in (one, another)]
        await asyncio.sleep(0.1)
        await asyncio.to_thread(hub.reject, one, "clinic", parties[0].rejection(one))
        await waits[0]
        await asyncio.sleep(1.2)  # longer than the feed looks by itself
        told = waits[0].done(), waits[1].done()
        waits[1].cancel()
        return told

    assert asyncio.run(follow()) == (True, False)


def test_stream_tells_the_whole_round_and_ends(hub: Hub, parties: Parties) -> None:
    proposed = hub.complete(parties)
    hub.publisher.run_once()
    path = f"/v1/releases/{proposed.id}/events"
    answer = hub.http.get(path)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = server_sent(answer.text)
    assert [event["kind"] for event in events] == hub.kinds(proposed)
    assert events[-1]["state"] == "published"
    rest = hub.http.get(path, headers={"Last-Event-ID": str(events[3]["seq"])})
    assert server_sent(rest.text) == events[4:]
    nothing = hub.http.get(path, headers={"Last-Event-ID": str(events[-1]["seq"])})
    assert (nothing.status_code, nothing.text) == (200, "")


def test_stream_follows_a_round_to_its_end(hub: Hub, parties: Parties, clinic: Honest) -> None:
    proposed = hub.proposed(parties)
    with hub.meanwhile(lambda: hub.http.get(f"/v1/releases/{proposed.id}/events").text) as text:
        hub.proposed(parties, study="another, whose events are not ours")
        hub.reject(proposed, "clinic", clinic.rejection(proposed))
        told = [line for line in text.result(60).splitlines() if line.startswith("event")]
    assert told == ["event: proposal", "event: rejection"]


def test_unknown_members_and_malformed_questions_are_refused(hub: Hub, parties: Parties) -> None:
    assert problem(hub.http.get("/v1/parties/nobody/releases")) == (404, "unknown")
    for path in ("/v1/events", "/v1/parties/clinic/releases"):
        for query in ("after=-1", "after=x", "wait_seconds=31", "wait_seconds=nan", "since=1"):
            assert problem(hub.http.get(f"{path}?{query}")) == (422, "request"), query
    path = f"/v1/releases/{hub.proposed(parties).id}/events"
    assert problem(hub.http.get(path, headers={"Last-Event-ID": "x"})) == (422, "request")


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
    for take, is_step in (
        (lambda: approve(hub, proposed, clinic), False),
        (lambda: approve(hub, proposed, other), True),
        (lambda: hub.upload(proposed, "clinic", hub.block(proposed, clinic)), False),
        (lambda: hub.upload(proposed, other.name, hub.block(proposed, other)), False),
        (hub.publisher.run_once, True),
    ):
        take()
        found, last = steps(hub, last)
        assert found == [proposed.id] * is_step
    assert steps(hub, last) == ([], last)
    (item,) = hub.http.get("/v1/parties/clinic/releases").json()["items"]
    assert item == hub.show(proposed)


def test_rejection_is_a_step_for_the_parties_and_nothing_to_others(hub: Hub, parties: Parties) -> None:
    third = hub.enrolled("laboratory")
    proposed = hub.proposed(parties)
    _, last = steps(hub, 0)
    hub.reject(proposed, "clinic", parties[0].rejection(proposed))
    assert steps(hub, last, party=parties[1].name)[0] == steps(hub, last)[0] == [proposed.id]
    assert steps(hub, 0, party=third.name)[0] == []


def test_last_message_of_an_exchange_is_a_step_and_the_others_are_none(hub: Hub, parties: Parties) -> None:
    exchanging = approved(hub, parties)
    _, last = steps(hub, 0)
    for kind in ("columns", "reply"):
        for party in parties:
            assert steps(hub, last)[0] == []
            exchanging.send_of(kind, party)
        found, last = steps(hub, last)
        assert found == [exchanging.proposed.id]


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
    started = time.monotonic()
    with hub.meanwhile(lambda: steps(hub, last, seconds=30)) as answer:
        approve(hub, proposed, clinic)
        assert steps(hub, last)[0] == []
        assert not answer.done()
        approve(hub, proposed, other)
        assert answer.result(60)[0] == [proposed.id]
    assert time.monotonic() - started < 25


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

    passed = 0.0
    monkeypatch.setattr(streams, "monotonic", lambda: time.monotonic() + passed)

    async def to_the_end(stream: AsyncIterator[bytes], _: Feed) -> int:
        nonlocal passed
        count = 0
        async for _event in stream:
            count += 1
            passed += streams.STREAM_SECONDS / 2
        return count

    assert streamed(hub, until_the_process_ends) == 0
    assert streamed(hub, to_the_end) == 2, "the proposal, and that there was nothing for a second"
    hub.sql("ALTER TABLE events RENAME TO away")
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
def test_replica_hears_at_once_of_what_another_one_commits_and_stops_without_a_fault(postgres: PostgresServer) -> None:
    postgres.empty()
    one, another = open_store(postgres.url), open_store(postgres.url)
    heard = threading.Event()
    one.on_event = heard.set
    with capture_logs() as logs, one.listening():
        assert heard.wait(60), "it looks when it begins to listen"
        heard.clear()
        with another.write() as tx:
            tx.events.add_membership(at=START, kind="enrolment", party="clinic", key="ab" * 32)
        assert heard.wait(60)
    assert logs == []
    one.close()
    another.close()
