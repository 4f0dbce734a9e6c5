"""A coordinator on each database, with two enrolled parties."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.world.command import Command
from tests.world.coordinator import Honest, Hub, Parties
from tests.world.exchange import Relayed, approved
from tests.world.postgres import PostgresServer


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'coordinator.sqlite'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    server.empty()
    return server.url


@pytest.fixture
def open_hub(database_url: str, tmp_path: Path) -> Iterator[Callable[..., Hub]]:
    """Opens a coordinator over the same database and files: a replica, or the same one restarted or limited."""
    hubs: list[Hub] = []

    def open_one(**given: Any) -> Hub:
        hubs.append(Hub(database_url, tmp_path, **given))
        return hubs[-1]

    yield open_one
    for hub in hubs:
        hub.close()


@pytest.fixture
def hub(open_hub: Callable[[], Hub]) -> Hub:
    return open_hub()


@pytest.fixture
def parties(hub: Hub) -> tuple[Honest, Honest]:
    return hub.enrolled("clinic"), hub.enrolled("registry")


@pytest.fixture
def clinic(parties: Parties) -> Honest:
    return parties[0]


@pytest.fixture
def registry(parties: Parties) -> Honest:
    return parties[1]


@pytest.fixture
def exchanging(hub: Hub, parties: Parties) -> Relayed:
    return approved(hub, parties)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, "coordinator")


@pytest.fixture
def home(command: Command, tmp_path: Path) -> Path:
    command.json("init", "--home", tmp_path / "hub")
    return tmp_path / "hub"
