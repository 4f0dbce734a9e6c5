"""The two tiers of tests, and a private PostgreSQL in a temporary directory, on a Unix socket, gone at the end."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

_SLOW_FOLDERS = ("benchmarks", "e2e", "tools")
_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
_START_SECONDS = 60
_OPTIONS = ("listen_addresses=", "fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")


@pytest.hookimpl(trylast=True)  # after hypothesis has loaded the profile of its option, on which this one builds
def pytest_configure() -> None:
    """No deadlines: how long an example takes says more about the machine's other work than about the code."""
    settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("unhurried")


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


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server with one database."""

    directory: Path

    @property
    def url(self) -> str:
        """The database, as the coordinator's settings would write it."""
        return f"postgresql://commingle@/postgres?host={self.directory}"

    def empty(self) -> None:
        """Drop whatever an earlier test left."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server binaries on this machine")
    user = _unprivileged()
    directory = Path(tempfile.mkdtemp(prefix="commingle-pg-"))
    try:
        if user is not None:
            os.chown(directory, user.pw_uid, user.pw_gid)
        identity: dict[str, Any] = (
            {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        )
        data = directory / "data"
        subprocess.run(
            [
                binaries / "initdb",
                "-D",
                data,
                "-U",
                "commingle",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
            ],
            check=True,
            capture_output=True,
            cwd=directory,
            **identity,
        )
        options = [part for option in _OPTIONS for part in ("-c", option)]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [binaries / "postgres", "-D", data, "-k", directory, *options],
                stdout=log,
                stderr=log,
                cwd=directory,
                **identity,
            )
        try:
            server = PostgresServer(directory)
            _wait_for(server, process)
            yield server
        finally:
            process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
            process.wait(_START_SECONDS)
    finally:
        shutil.rmtree(directory)


def _binaries() -> Path | None:
    def version(path: Path) -> int:
        return int(path.parent.name) if path.parent.name.isdigit() else 0

    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=version, reverse=True)
    on_path = shutil.which("postgres")
    candidates = [*installed, *([Path(on_path).resolve().parent] if on_path else [])]
    return next((path for path in candidates if (path / "initdb").exists() and (path / "postgres").exists()), None)


def _unprivileged() -> pwd.struct_passwd | None:
    """Whom the server runs as where the tests run as root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _wait_for(server: PostgresServer, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            psycopg.connect(server.url).close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return
