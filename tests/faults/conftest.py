from collections.abc import Iterator

import pytest

from tests.faults.loopback import Loopback


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """One for all tests of a module, which leave it in whatever state."""
    loopback = Loopback(tmp_path_factory.mktemp("loopback"))
    try:
        loopback.set_up()
        yield loopback
    finally:
        loopback.close()
