from collections.abc import Iterator

import pytest

from commingle.shared.runtime import faults


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """No fault point stays armed for the next test."""
    yield
    faults.arm(lambda _: None)
