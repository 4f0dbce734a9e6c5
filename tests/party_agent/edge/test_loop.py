"""The loop: how it is told of steps, what stops it, what it retries and how long it waits."""

import errno
import json
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from threading import Event, Thread

import httpx
import pytest
from structlog.testing import capture_logs

from commingle.party_agent.edge.loop import Backoff, Listener, Loop, explained
from commingle.party_agent.errors import OtherNameError
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.errors import NonsenseError, RemoteProblemError, UnreachableError
from tests.hostile.actors import LocalUser
from tests.party_agent.releasing import publish
from tests.world.command import eventually
from tests.world.consortium import BY_HAND, Consortium, CrashError, Noise
from tests.world.transport import answering, no_fault, unreachable


def test_delays_double_up_to_a_minute_with_a_quarter_of_jitter() -> None:
    backoff = Backoff()
    delays = [backoff.fail(100.0) for _ in range(40)]
    for i, delay in enumerate(delays):
        plain = min(60.0, 0.5 * 2**i)
        assert plain <= delay <= plain * 1.25
    assert backoff.until == 100.0 + delays[-1]


def test_coordinator_that_is_back_waits_ten_seconds_at_most(pair: Consortium) -> None:
    release = pair.propose()
    with pair.agent("clinic") as agent, capture_logs() as logs:
        loop = Loop(agent)
        pair.coordinator.before = answering(503, b"", part="/approvals/")
        loop.turn()
        assert loop.releases[release].failures == 1
        loop.releases[release].until = float("inf")
        pair.coordinator.before = unreachable("GET", "/v1/")
        loop.stop.set()  # no pause is really waited for
        for _ in range(40):
            with pytest.raises(UnreachableError) as away:
                loop.turn()
            loop.pause(away.value, "coordinator unavailable")
            assert loop.coordinator.until - time.monotonic() <= 10
        pair.coordinator.before = no_fault
        turns(loop, 2)
        assert loop.trouble is None
    assert "clinic" in pair.coordinator.found(release).approvals
    assert [log["event"] for log in logs].count("reachable again") == 1


@pytest.mark.parametrize("name", ["clinic2", "insurer"])
def test_home_with_another_name_signs_nothing_and_says_so_once(pair: Consortium, name: str) -> None:
    pair.propose()
    LocalUser(pair).edit_settings(name=name)
    with pair.agent("clinic") as agent, capture_logs() as logs:
        loop = Loop(agent)
        loop.stop.set()  # no pause is really waited for
        for _ in range(3):
            with pytest.raises(OtherNameError) as kept_off:
                loop.turn()
            loop.pause(kept_off.value, "coordinator unavailable")
        assert 'Write "name": "clinic" into HOME/settings.json' in kept_off.value.remedy
        assert agent.ledger.charges() == {}
    assert [log["event"] for log in logs] == ["coordinator unavailable"]


WAITS = ("/clinic/releases", "/insurer/releases")


def turns(loop: Loop, count: int) -> None:
    for _ in range(count):
        loop.turn()
        for backoff in loop.releases.values():
            backoff.until = 0.0


@pytest.mark.parametrize("shown", [True, False])
def test_release_takes_each_member_three_requests_beside_its_waits(
    pair: Consortium, monkeypatch: pytest.MonkeyPatch, *, shown: bool
) -> None:
    """However many members there are: nobody asks for what others do, but to be sure once a minute.

    A coordinator that does not show the members' heads with the end of a release is asked for them.
    """
    if not shown:
        pair.coordinator.rewrite = lambda _, said: {name: said[name] for name in said if name != "heads"}
    monkeypatch.setattr("commingle.party_agent.edge.loop.WHOLE_SECONDS", 3600)
    with pair.agent("clinic") as clinic, pair.agent("insurer") as insurer:
        loops = Loop(clinic), Loop(insurer)
        for title in ("first", "second"):
            pair.coordinator.requests.clear()
            release = pair.propose(title=title)
            for _ in range(6):
                for loop in loops:
                    turns(loop, 1)
            assert pair.state(release) == "published"
            assert clinic.jobs.get(release).stage == "published"  # type: ignore[union-attr]
    asked = Counter(request for request in pair.coordinator.requests if not request.endswith(WAITS))
    own = {f"PUT /v1/releases/{release}/{what}/{name}" for what in ("approvals", "blocks") for name in pair.homes}
    heads = {f"PUT /v1/parties/{name}/ledger-heads" for name in pair.homes}
    assert asked == Counter(dict.fromkeys(own | heads, 1)) + Counter({"GET /v1/ledger-heads": 0 if shown else 2})


def test_open_releases_take_one_request_a_minute_until_one_of_them_changes(pair: Consortium) -> None:
    with pair.agent("clinic") as clinic, pair.agent("insurer") as insurer:
        releases = [pair.propose(title=title) for title in ("first", "second", "third")]
        look, other = (partial(agent.step, Loop(agent).attend) for agent in (clinic, insurer))
        for _ in range(2):  # the second sees that the first has approved
            look()
        pair.coordinator.requests.clear()
        for _ in range(3):
            look()
        assert set(pair.coordinator.requests) == {"GET /v1/releases"}  # page by page
        other()
        pair.coordinator.requests.clear()
        look()
        shown = Counter(f"GET /v1/releases/{release}" for release in releases)
        assert Counter(each for each in pair.coordinator.requests if each in shown) == shown
        assert all("clinic" in pair.coordinator.found(release).blocks for release in releases)


def test_failure_on_one_release_is_told_in_its_job_and_does_not_keep_from_others(pair: Consortium) -> None:
    bad = pair.propose(title="bad")
    good = pair.propose(title="good")
    pair.coordinator.before = answering(200, b"nonsense", part=f"/v1/releases/{bad}")
    with pair.agent("clinic") as agent, capture_logs() as logs:
        turns(Loop(agent), 1)
        job = agent.jobs.get(bad)
        assert job is not None
        assert job.error is not None
        assert "something else than expected" in job.error
    assert "clinic" in pair.coordinator.found(good).approvals
    assert [log["error"] for log in logs if log["event"] == "postponed"] == ["nonsense"]


def test_failing_release_is_left_alone_until_its_delay_is_over(
    pair: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commingle.party_agent.edge.loop.FIRST_DELAY_SECONDS", 60.0)
    release = pair.propose()
    pair.coordinator.before = unreachable("PUT", "/approvals/")
    with pair.agent("clinic") as agent:
        loop = Loop(agent)
        agent.step(loop.attend)
        agent.step(loop.attend)
        assert pair.coordinator.requests.count(f"PUT /v1/releases/{release}/approvals/clinic") == 1
        assert loop.releases[release].failures == 1
        pair.coordinator.before = no_fault
        loop.releases[release].until = time.monotonic()
        turns(loop, 1)
        assert loop.releases == {}
    assert "clinic" in pair.coordinator.found(release).approvals


def test_release_that_failed_and_is_listed_no_more_does_not_make_the_loop_spin(pair: Consortium) -> None:
    release = pair.propose()
    pair.coordinator.before = answering(200, b"nonsense", part=f"/v1/releases/{release}")
    with pair.agent("clinic") as agent:
        loop = Loop(agent)
        loop.turn()
        pair.coordinator.rewrite = lambda path, said: {**said, "items": []} if path == "/v1/releases" else said
        loop.releases[release].until = time.monotonic() - 1
        pair.coordinator.requests.clear()
        loop.turn()
    assert pair.coordinator.requests[-1] == "GET /v1/parties/clinic/releases"


def test_bug_in_one_release_does_not_end_the_loop_and_its_message_stays_out_of_sight(pair: Consortium) -> None:
    release = pair.propose()
    for name in ("clinic", "insurer"):
        pair.step(name)

    def tell_a_value() -> None:
        raise ValueError("SENTINEL")

    with pair.agent("clinic", draw=Noise(meanwhile=tell_a_value)) as agent, capture_logs() as logs:
        loop = Loop(agent)
        turns(loop, 2)
        error = agent.jobs.get(release).error  # type: ignore[union-attr]
        assert error is not None
        assert "an unexpected fault (ValueError)" in error
    assert "SENTINEL" not in f"{logs}{error}"


def test_work_on_a_release_has_one_name_that_travels_with_its_requests(pair: Consortium) -> None:
    first, second = pair.propose(title="first"), pair.propose(title="second")
    asked: dict[str, set[str]] = {first: set(), second: set()}

    def listen(request: httpx.Request) -> None:
        for release, names in asked.items():
            if release in request.url.path and "x-request-id" in request.headers:
                names.add(request.headers["x-request-id"])

    pair.coordinator.before = listen
    with pair.agent("clinic") as agent:
        agent.step(Loop(agent).attend)
    assert len(asked[first]) == len(asked[second]) == 1
    assert asked[first] != asked[second]


def test_refusal_is_logged_with_the_code_that_was_given_and_a_full_disk_with_its_errno(pair: Consortium) -> None:
    release = pair.propose()
    answer = {"type": "urn:commingle:problem:storage", "title": "x", "status": 503, "detail": "away", "remedy": "-"}
    body = json.dumps(answer).encode()
    pair.coordinator.before = answering(503, body, part="/approvals/", content_type="application/problem+json")
    with pair.agent("clinic") as agent, capture_logs() as logs:
        loop = Loop(agent)
        agent.step(loop.attend)

        def full() -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        assert loop.unwritten is None
        loop.attend("other", full)
        assert "No space left" in str(loop.unwritten)
        loop.releases["other"].until = 0.0  # it was due long since and not tried: it is over
        assert loop.unwritten is None
    said = {log["release"]: log for log in logs if log["event"] == "postponed"}
    assert (said[release]["error"], said[release]["problem"]) == ("remote-problem", "storage")
    assert (said["other"]["error"], said["other"]["errno"]) == ("disk", "ENOSPC")


def test_trouble_is_logged_when_it_begins_and_when_it_is_another_and_told_as_long_as_it_lasts(pair: Consortium) -> None:
    with pair.agent("clinic") as agent, capture_logs() as logs:
        loop = Loop(agent)
        loop.stop.set()  # no pause is really waited for
        revoked = RemoteProblemError("clinic was revoked", remedy="Ask.", status=403, problem="revoked")
        full = OSError(errno.ENOSPC, "No space left on device")
        for error in (revoked, revoked, revoked, explained(full), explained(full), revoked):
            loop.pause(error, "coordinator unavailable")
        assert loop.trouble is revoked
    said = [log.get("problem") or log["errno"] for log in logs if log["event"] == "coordinator unavailable"]
    assert said == ["revoked", "ENOSPC", "revoked"]


def test_full_disk_is_told_as_that_and_the_loop_goes_on_when_there_is_room(
    pair: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.propose()
    told: list[str] = []
    with pair.agent("clinic") as agent:
        loop, step = Loop(agent), agent.step

        def full(*_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(type(agent), "step", full)
        monkeypatch.setattr(Event, "wait", lambda event, _=None: event.set())
        loop.run(on_halt=lambda: told.append("halted"))
        said = "" if loop.trouble is None else loop.trouble.diagnostics()
        assert "the ledger cannot be written" in said
        assert "Free space" in said
        monkeypatch.setattr(type(agent), "step", lambda _, *given: step(*given))
        loop.turn()
        assert loop.trouble is None
    assert told == []


def run(loop: Loop, *, until: Event, halts: list[str]) -> Thread:
    def on_halt() -> None:
        halts.append("halted")
        until.set()

    thread = Thread(target=loop.run, kwargs={"on_halt": on_halt})
    thread.start()
    return thread


def test_ledger_that_was_set_back_halts_the_loop_at_its_first_look_even_after_publication(pair: Consortium) -> None:
    publish(pair)
    pair.homes["clinic"].database.unlink()
    halted, halts = Event(), list[str]()
    with pair.agent("clinic") as agent:
        loop = Loop(agent)
        thread = run(loop, until=halted, halts=halts)
        assert halted.wait(60)
        thread.join(60)
        assert loop.halted is not None
        assert loop.halted.code == "stale-ledger"
    assert halts == ["halted"]


@pytest.mark.parametrize(
    ("fault", "said"), [(httpx.ConnectError("refused"), "no answer"), (CrashError(), "CrashError")]
)
def test_fault_outside_every_release_is_told_as_trouble_and_the_loop_goes_on(
    pair: Consortium, fault: Exception, said: str
) -> None:
    release = pair.propose()

    def away(_: httpx.Request) -> None:
        raise fault

    pair.coordinator.before = away
    with pair.agent("clinic") as agent:
        loop = Loop(agent)
        thread = run(loop, until=Event(), halts=[])
        eventually(lambda: loop.trouble is not None, what="no trouble", seconds=60)
        assert said in str(loop.trouble)
        pair.coordinator.before = no_fault
        eventually(lambda: loop.trouble is None, what="not back", seconds=60)
        loop.stop.set()
        thread.join(60)
        assert loop.halted is None
    assert "clinic" in pair.coordinator.found(release).approvals


@pytest.mark.parametrize("body", [b"", b"{}", b'{"last": "soon"}'])
def test_events_that_are_nonsense_are_trouble(pair: Consortium, body: bytes) -> None:
    pair.coordinator.before = answering(200, body, part="/v1/events")
    with pair.agent("clinic") as agent, pytest.raises(NonsenseError):
        Loop(agent).turn()


def test_proposal_whose_first_look_failed_waits_for_a_person_once_it_was_looked_at(pair: Consortium) -> None:
    pair.homes["clinic"].save_policy(BY_HAND)
    release = pair.propose()
    pair.coordinator.before = answering(200, b"nonsense", part=f"/v1/releases/{release}")
    with pair.agent("clinic") as agent:
        loop = Loop(agent)
        turns(loop, 1)
        pair.coordinator.before = no_fault
        loop.releases.clear()  # its delay is over
        turns(loop, 1)
        job = agent.jobs.get(release)
    assert job is not None
    assert (job.stage, job.error) == ("waiting for a person", None)


STREAM = "text/event-stream"


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


def test_what_is_not_written_can_be_asked_for_while_releases_are_postponed_and_tried(pair: Consortium) -> None:
    with pair.agent("clinic") as agent:
        loop, over, every = Loop(agent), Event(), sys.getswitchinterval()

        def postpone() -> None:
            while not over.is_set():
                for number in range(50):
                    loop.releases[str(number)] = Backoff(until=time.monotonic() + 5)
                for number in range(50):
                    loop.releases.pop(str(number))

        sys.setswitchinterval(1e-5)
        try:
            (thread := Thread(target=postpone)).start()
            assert all(loop.unwritten is None for _ in range(20_000))
        finally:
            over.set()
            thread.join()
            sys.setswitchinterval(every)
