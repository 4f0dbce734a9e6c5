"""How an agent is told of steps: by a stream, and by single answers where no stream comes through."""

import json
from collections.abc import Callable

import httpx
import pytest
from structlog.testing import capture_logs

from commingle.party_agent.edge.loop import Listener
from commingle.party_agent.wire.coordinator_client import CoordinatorClient
from commingle.shared.runtime.errors import UnreachableError

STREAM = "text/event-stream"
NOTHING_THERE = {"type": "urn:commingle:problem:unknown", "detail": "no such path"}


def steps(last: int) -> bytes:
    return json.dumps({"items": [], "last": last, "heads": None}).encode()


def stream(*lasts: int) -> httpx.Response:
    events = b"".join(b": waiting\n\nevent: steps\ndata: %b\n\n" % steps(last) for last in lasts)
    return httpx.Response(200, content=events, headers={"Content-Type": STREAM})


class Asked:
    """A coordinator that answers as it is told, and what it was asked."""

    def __init__(self, answer: Callable[[bool], httpx.Response]) -> None:
        self.answer = answer
        self.requests: list[tuple[str, str, bool]] = []
        http = httpx.Client(transport=httpx.MockTransport(self._handle), base_url="http://coordinator")
        self.listener = Listener(CoordinatorClient(http), "clinic")

    def _handle(self, request: httpx.Request) -> httpx.Response:
        streamed = request.headers["accept"] == STREAM
        self.requests.append((request.url.path, request.url.params["after"], streamed))
        if request.url.path == "/v1/events":
            return httpx.Response(200, json={"items": [], "last": 3})
        return self.answer(streamed)

    def last(self, *, alone: bool = False) -> int:
        return self.listener.next(10, alone=alone).last


def test_one_request_tells_of_many_steps_and_the_next_goes_on_after_the_last() -> None:
    hub = Asked(lambda _: stream(4, 5, 6))
    hub.listener.begin()
    assert [hub.last() for _ in range(4)] == [4, 5, 6, 4]
    path = "/v1/parties/clinic/releases"
    assert hub.requests[1:] == [(path, "3", True), (path, "6", True)]


def test_coordinator_without_streams_is_asked_each_time() -> None:
    hub = Asked(lambda _: httpx.Response(200, content=steps(7)))
    assert [hub.last(), hub.last()] == [7, 7]
    assert [after for _, after, _ in hub.requests] == ["0", "7"]


def test_step_that_has_to_come_in_time_is_asked_for_alone_and_ends_the_stream() -> None:
    hub = Asked(lambda streamed: stream(4, 5) if streamed else httpx.Response(200, content=steps(9)))
    assert [hub.last(), hub.last(alone=True), hub.last()] == [4, 9, 4]
    assert [(after, streamed) for _, after, streamed in hub.requests] == [("0", True), ("4", False), ("9", True)]


def test_streams_that_stay_silent_are_given_up_and_single_answers_taken() -> None:
    hub = Asked(lambda streamed: stream() if streamed else httpx.Response(200, content=steps(9)))
    with capture_logs() as logs:
        for _ in range(2):
            with pytest.raises(UnreachableError):
                hub.last()
            hub.listener.lose()
        assert [hub.last(), hub.last()] == [9, 9]
    assert [log["event"] for log in logs] == ["streams do not come through"]


def test_stream_that_breaks_after_it_told_something_is_not_held_against_streams() -> None:
    hub = Asked(lambda _: stream(4))
    for _ in range(3):
        hub.answer = lambda _: stream(4)
        assert hub.last() == 4
        hub.answer = lambda _: stream()
        with pytest.raises(UnreachableError):
            hub.last()
        hub.listener.lose()
    assert all(streamed for _, _, streamed in hub.requests)


def test_stream_is_begun_anew_after_the_coordinator_was_away() -> None:
    hub = Asked(lambda _: stream(4, 5))
    hub.listener.begin()
    assert hub.last() == 4
    hub.listener.lose()
    hub.listener.begin()
    assert hub.last() == 4
    assert [path for path, _, _ in hub.requests] == ["/v1/events", "/v1/parties/clinic/releases"] * 2
