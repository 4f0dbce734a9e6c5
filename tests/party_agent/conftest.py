"""The agents of a clinic whose releases a person decides, and their local API."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from commingle.party_agent.edge.api import LocalApi
from commingle.party_agent.edge.app import create_app
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.agents import Agents
from commingle.shared.runtime import faults
from commingle.shared.runtime.settings import system_clock
from tests.world.applications import in_turn
from tests.world.consortium import Consortium
from tests.world.coordinator import SetClock
from tests.world.tampering import TamperedCoordinator


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """No fault point stays armed for the next test."""
    yield
    faults.arm(lambda _: None)


@pytest.fixture
def coordinator(tmp_path: Path) -> TamperedCoordinator:
    """One that lives in the present, as commands do."""
    return TamperedCoordinator(tmp_path / "coordinator", clock=SetClock(system_clock()))


@pytest.fixture
def agents(consortium: Consortium) -> Iterator[Agents]:
    with consortium.agents("clinic") as agents:
        yield agents


@pytest.fixture
def agent(agents: Agents) -> Agent:
    return agents.consortia[0]


@pytest.fixture
def local(agents: Agents) -> LocalApi:
    """What is on the socket of the clinic's home."""
    return LocalApi(agents, loops=None, peer_is_operator=True)


@pytest.fixture
def api(local: LocalApi) -> Iterator[httpx.Client]:
    with httpx.Client(transport=in_turn(create_app, local), base_url="http://agent") as client:
        yield client
