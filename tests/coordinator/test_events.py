import asyncio
import json
import threading
import time
from typing import Any

import httpx
import pytest

from commingle.coordinator.feed import Feed
from tests.world.coordinator import Honest, Hub, problem

Parties = tuple[Honest, Honest]


def server_sent(text: str) -> list[dict[str, Any]]:
    events = []
    for part in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in part.splitlines())
        data = json.loads(lines["data"])
        assert (lines["id"], lines["event"]) == (str(data["seq"]), data["kind"])
        events.append(data)
    return events


def test_events_carry_seq_kind_party_and_state(hub: Hub, parties: Parties) -> None:
    clinic, _ = parties
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


def test_long_poll_returns_when_something_happens(hub: Hub, parties: Parties) -> None:
    last = hub.http.get("/v1/events").json()["last"]
    answers: list[httpx.Response] = []
    waiting = threading.Thread(
        target=lambda: answers.append(hub.http.get("/v1/events", params={"after": last, "wait_seconds": 30}))
    )
    started = time.monotonic()
    waiting.start()
    time.sleep(0.3)
    proposed = hub.proposed(parties)
    waiting.join(60)
    assert time.monotonic() - started < 25
    assert [item["release"] for item in answers[0].json()["items"]] == [proposed.id]


def test_long_poll_is_woken_by_a_commit_without_a_look_at_the_database(
    hub: Hub, parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commingle.coordinator.feed._POLL_SECONDS", 600.0)
    test_long_poll_returns_when_something_happens(hub, parties)


def test_long_poll_returns_empty_in_time(hub: Hub) -> None:
    started = time.monotonic()
    answer = hub.http.get("/v1/events", params={"wait_seconds": 0.5}).json()
    assert answer == {"items": [], "last": 0}
    assert 0.5 <= time.monotonic() - started < 25


def test_reader_ahead_of_a_restored_database_starts_again(hub: Hub, parties: Parties) -> None:
    hub.proposed(parties)
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


def test_hundreds_of_waiters_share_a_few_looks_at_the_database(hub: Hub) -> None:
    looks = 0

    class Counted(Feed):
        def _look(self) -> None:
            nonlocal looks
            looks += 1
            super()._look()

    async def wait() -> None:
        feed = Counted(hub.store)
        await asyncio.gather(*(feed.wait(0, timeout_seconds=1) for _ in range(500)))

    started = time.monotonic()
    asyncio.run(wait())
    assert looks <= 2 + (time.monotonic() - started) / 0.2


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


def test_stream_follows_a_round_to_its_end(hub: Hub, parties: Parties) -> None:
    clinic, _ = parties
    proposed = hub.proposed(parties)
    answers: list[httpx.Response] = []
    path = f"/v1/releases/{proposed.id}/events"
    following = threading.Thread(target=lambda: answers.append(hub.http.get(path)))
    following.start()
    time.sleep(0.3)
    hub.proposed(parties, study="another, whose events are not ours")
    hub.reject(proposed, "clinic", clinic.rejection(proposed))
    following.join(60)
    told = [line for line in answers[0].text.splitlines() if line.startswith("event")]
    assert told == ["event: proposal", "event: rejection"]


def test_unknown_query_values_are_422(hub: Hub) -> None:
    for query in ("after=-1", "after=x", "wait_seconds=31", "wait_seconds=nan", "since=1"):
        assert problem(hub.http.get(f"/v1/events?{query}")) == (422, "request"), query


def test_malformed_last_event_id_is_422(hub: Hub, parties: Parties) -> None:
    proposed = hub.proposed(parties)
    answer = hub.http.get(f"/v1/releases/{proposed.id}/events", headers={"Last-Event-ID": "x"})
    assert problem(answer) == (422, "request")
