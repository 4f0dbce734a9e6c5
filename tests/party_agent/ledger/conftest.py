from collections.abc import Iterator
from pathlib import Path

import pytest

from commingle.party_agent.ledger.store import AgentStore
from tests.party_agent.ledger.book import CAP, Book


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[AgentStore]:
    store = AgentStore(path)
    yield store
    store.close()


@pytest.fixture
def ledger(store: AgentStore) -> Book:
    return Book(store, cap=CAP)
