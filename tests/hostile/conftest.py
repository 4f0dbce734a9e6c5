from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.world.consortium import Consortium, consortium_of


@pytest.fixture
def pair(tmp_path: Path) -> Consortium:
    """A clinic and an insurer that approve by themselves."""
    return consortium_of(tmp_path, "clinic", "insurer")


@pytest.fixture(autouse=True)
def fresh_logging() -> Iterator[None]:
    """Commands configure logging for their process; tests share one."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
