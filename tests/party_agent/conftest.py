from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from commingle.shared.runtime import faults
from tests.world.consortium import Consortium, consortium_of


@pytest.fixture(autouse=True)
def fresh_logging() -> Iterator[None]:
    """Commands configure logging for their process; tests share one."""
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """No fault point stays armed for the next test."""
    yield
    faults.arm(lambda _: None)


@pytest.fixture
def pair(tmp_path: Path) -> Consortium:
    """A clinic and an insurer that approve by themselves."""
    return consortium_of(tmp_path, "clinic", "insurer")
