"""Whole consortia in virtual time under random faults. The seeds are fixed: a failure can be looked at again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.faults.simulation import simulate

pytestmark = pytest.mark.slow
ROUNDS = 15
# of those that publish a third of their rounds: where the coordinator's clock jumps ahead, all that is open expires
SEEDS = (0, 1)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of failures are logged on the way."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("seed", SEEDS)
def test_rounds_under_random_faults_keep_every_promise(seed: int, tmp_path: Path) -> None:
    outcome = simulate(seed, rounds=ROUNDS, root=tmp_path)
    assert outcome.states.total() == ROUNDS
    assert outcome.states["published"] >= ROUNDS // 3
    assert outcome.faults.total() > 5 * ROUNDS
