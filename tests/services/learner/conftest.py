"""A learner before a coordinator that serves one release of rows."""

from collections.abc import Iterator

import httpx
import pytest

from tests.world.released import ServingCoordinator, learner, published


@pytest.fixture
def fake() -> ServingCoordinator:
    return ServingCoordinator.serving(published())


@pytest.fixture
def http(fake: ServingCoordinator) -> Iterator[httpx.Client]:
    with learner(fake) as client:
        yield client
