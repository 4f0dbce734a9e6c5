"""A PostgreSQL server that a test can stop and start."""

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PostgresServer, _binaries, _unprivileged, _wait_for

_STOP_SECONDS = 60
# commits reach the operating system, so that they outlive the server, which is all that dies here
_OPTIONS = ("-c", "listen_addresses=", "-c", "fsync=off")


@dataclass
class Postgres:
    """One server over one directory."""

    server: PostgresServer
    binaries: Path
    identity: dict[str, Any]
    _process: "subprocess.Popen[bytes] | None" = field(default=None)

    @property
    def url(self) -> str:
        return self.server.url

    def start(self) -> None:
        directory = self.server.directory
        command = [str(self.binaries / "postgres"), "-D", str(directory / "data"), "-k", str(directory), *_OPTIONS]
        with (directory / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory, **self.identity)
        self._process = process
        _wait_for(self.server, process)

    def stop(self) -> None:
        """PostgreSQL's immediate shutdown: no farewell to anybody, recovery at the next start."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_STOP_SECONDS)
            self._process = None


@contextmanager
def own_postgres() -> Iterator[Postgres]:
    """A running server of one's own; skips where PostgreSQL is not installed."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server binaries on this machine")
    user = _unprivileged()
    identity: dict[str, Any] = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    directory = Path(tempfile.mkdtemp(prefix="commingle-pg-"))
    if user is not None:
        shutil.chown(directory, user.pw_uid, user.pw_gid)
    options = ("-U", "commingle", "-A", "trust", "--locale=C", "-E", "UTF8", "--no-sync")
    command = [str(binaries / "initdb"), "-D", str(directory / "data"), *options]
    subprocess.run(command, check=True, capture_output=True, cwd=directory, **identity)
    database = Postgres(PostgresServer(directory), binaries, identity)
    try:
        database.start()
        yield database
    finally:
        database.stop()
        shutil.rmtree(directory)
