"""What a proposal will be worth is computed once, apart from the local API, and only while somebody decides."""

import json
from collections.abc import Callable
from dataclasses import asdict
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from commingle.party_agent.edge.api import LocalApi
from commingle.party_agent.edge.app import create_app
from commingle.party_agent.edge.loop import Loops
from commingle.party_agent.rounds.agents import Agents
from commingle.party_agent.rounds.forecasts import Forecaster, Forecasts, start_worker
from commingle.shared.forecast.forecast import computed_forecast
from commingle.shared.runtime.errors import TooCostlyError
from commingle.shared.runtime.pool import JobFaultError
from tests.world.applications import in_turn
from tests.world.consortium import BY_A_PERSON, Consortium, strictly
from tests.world.transport import InThread

LOOK_SECONDS = 0.02


class Counting(InThread):
    """Notes what it does."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def run(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        self.done += arguments
        return super().run(function, arguments)


class Failing(Counting):
    """Fails."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def run(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:  # noqa: ARG002 - it does nothing
        self.done += arguments
        raise self.error


class Endless(InThread):
    """Works until it is stopped."""

    def __init__(self) -> None:
        self.begun, self.stopped = Event(), Event()

    def run(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:  # noqa: ARG002 - as above
        self.begun.set()
        assert self.stopped.wait(60)
        raise JobFaultError("stopped")

    def stop(self) -> None:
        self.stopped.set()


def shown(agents: Agents, release: str) -> Any:
    """By an agent that runs."""
    way = in_turn(create_app, LocalApi(agents, Loops(agents), peer_is_operator=True))
    with httpx.Client(transport=way, base_url="http://agent") as http:
        one = http.get(f"/v1/proposals/{release}").json()
        assert one in http.get("/v1/proposals").json()["items"]
        return one


def proposed(consortium: Consortium, agents: Agents, **changes: Any) -> str:
    release = consortium.propose(**changes)
    agents.consortia[0].step(strictly)
    return release


def forecaster(agents: Agents, worker: InThread) -> Forecaster:
    return Forecaster(Forecasts(agents.store), start=lambda: worker, look_seconds=LOOK_SECONDS)


def test_api_of_an_agent_that_runs_computes_no_forecast(consortium: Consortium, agents: Agents) -> None:
    release = proposed(consortium, agents, mechanism="moments")
    before = computed_forecast.cache_info().misses
    view = shown(agents, release)
    assert computed_forecast.cache_info().misses == before
    assert (view["forecast"], view["forecast_state"]) == (None, "not_yet")
    assert view["outlook"][0].startswith("No forecast yet")
    assert view["exchange"]["bytes"] > 0  # what is quickly said is said
    assert len(view["outlook"]) > 1


def test_forecast_is_computed_once_and_is_there_when_the_agent_starts_again(consortium: Consortium) -> None:
    worker = Counting()
    with consortium.agents("clinic") as agents:
        release = proposed(consortium, agents)
        for _ in range(2):
            forecaster(agents, worker).run_once()
        spec = agents.proposals.get(release).spec
    with consortium.agents("clinic") as agents:
        forecaster(agents, worker).run_once()
        view = shown(agents, release)
    assert worker.done == [spec]
    expected = computed_forecast(spec)
    assert expected is not None
    assert (view["forecast"], view["forecast_state"]) == (json.loads(json.dumps(asdict(expected))), "computed")
    assert view["outlook"] == list(expected.sentences)


@pytest.mark.parametrize(
    ("error", "state"),
    [(TooCostlyError("too long", remedy="none"), "too_costly"), (JobFaultError("ValueError"), "failed")],
)
def test_forecast_that_cannot_be_had_is_not_tried_again(
    consortium: Consortium, agents: Agents, error: Exception, state: str
) -> None:
    release, worker = proposed(consortium, agents), Failing(error)
    for _ in range(2):
        forecaster(agents, worker).run_once()
    assert len(worker.done) == 1
    assert shown(agents, release)["forecast_state"] == state


def test_what_nobody_has_to_decide_any_more_is_cut(consortium: Consortium, agents: Agents) -> None:
    release, worker = proposed(consortium, agents), Endless()
    computing = Thread(target=forecaster(agents, worker).run_once, daemon=True)
    computing.start()
    assert worker.begun.wait(60)
    agents.reject(release, BY_A_PERSON)
    agents.consortia[0].step(strictly)
    computing.join(60)
    assert worker.stopped.is_set()
    assert not computing.is_alive()
    assert shown(agents, release)["forecast_state"] == "not_yet"


def test_what_was_approved_before_anybody_asked_is_computed_once_somebody_asks(
    consortium: Consortium, agents: Agents
) -> None:
    release, worker = proposed(consortium, agents), Counting()
    agents.approve(release, BY_A_PERSON)
    forecaster(agents, worker).run_once()
    assert worker.done == []
    assert shown(agents, release)["forecast_state"] == "not_yet"
    forecaster(agents, worker).run_once()
    assert shown(agents, release)["forecast_state"] == "computed"
    assert len(worker.done) == 1


def test_agent_that_stops_stops_what_is_computed(consortium: Consortium, agents: Agents) -> None:
    proposed(consortium, agents)
    worker = Endless()
    running = forecaster(agents, worker)
    running.begin()
    assert worker.begun.wait(60)
    running.finish()
    assert worker.stopped.wait(60)


def test_large_proposals_keep_no_small_one_waiting(consortium: Consortium, agents: Agents) -> None:
    large = proposed(consortium, agents, title="a study with a long title " + "x" * 100)
    small = proposed(consortium, agents, title="short")
    worker = Counting()
    forecaster(agents, worker).run_once()
    assert worker.done == [agents.proposals.get(release).spec for release in (small, large)]


@pytest.mark.slow
def test_process_of_its_own_says_what_this_process_would(consortium: Consortium, agents: Agents) -> None:
    release = proposed(consortium, agents)
    Forecaster(Forecasts(agents.store), start=start_worker).run_once()
    expected = computed_forecast(agents.proposals.get(release).spec)
    assert expected is not None
    assert shown(agents, release)["outlook"] == list(expected.sentences)
