"""The two tiers of tests, one PostgreSQL for all of them, and the consortium of most."""

import atexit
import gc
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.world.command import Command
from tests.world.consortium import BY_HAND, NAMES, Consortium, consortium_of
from tests.world.coordinator import Hub
from tests.world.postgres import PostgresServer, own_postgres

_SLOW_FOLDERS = ("benchmarks", "e2e", "tools")
_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})


@pytest.hookimpl(trylast=True)  # after hypothesis has loaded the profile of its option, on which this one builds
def pytest_configure() -> None:
    """No deadlines: how long an example takes says more about the machine's other work than about the code."""
    settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("unhurried")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay: Python looks for no garbage among them, now or while tests run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # libraries in C++ report what is left as leaks


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole folders of the slow tier."""
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).parts[0] in _SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests record: how many neighbours a search tried, which epsilon an attack demonstrates."""
    ended = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    for report in ended:
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value} ({report.nodeid.rpartition('/')[2]})")


class ProcessStartedError(BaseException):
    """A test of the fast tier started a process: mark it slow. Not caught by `except Exception` in what it tests."""


class _Guard:
    """Refuses new processes while it is up. An audit hook sees them however they are started, and cannot be removed."""

    up = False

    def __call__(self, event: str, _: tuple[object, ...]) -> None:
        if self.up and event in _STARTS:
            raise ProcessStartedError("a test that starts a process needs @pytest.mark.slow")


_guard = _Guard()
sys.addaudithook(_guard)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Whatever is not marked slow starts no process, in none of its fixtures either."""
    _guard.up = item.get_closest_marker("slow") is None
    try:
        return (yield)
    finally:
        _guard.up = False


@pytest.fixture(autouse=True)
def fresh_logging() -> Iterator[None]:
    """Commands configure logging for their process; tests share one."""
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    """`commingle`, in this process."""
    return Command(capsys)


@pytest.fixture
def pair(tmp_path: Path) -> Consortium:
    """A clinic and an insurer that approve by themselves."""
    return consortium_of(tmp_path, "clinic", "insurer")


@pytest.fixture
def trio(tmp_path: Path) -> Consortium:
    """A pair and a laboratory."""
    return consortium_of(tmp_path, *NAMES)


@pytest.fixture
def consortium(tmp_path: Path) -> Consortium:
    """A pair in which a person decides."""
    return consortium_of(tmp_path, "clinic", "insurer", policy=BY_HAND)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(f"sqlite:///{tmp_path / 'coordinator.sqlite'}", tmp_path)
    yield hub
    hub.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with own_postgres("synchronous_commit=off", "full_page_writes=off", "max_connections=200") as server:
        yield server
