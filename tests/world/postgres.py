"""A private PostgreSQL in a temporary directory, on a Unix socket, gone at the end; it can be stopped and started."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

_SECONDS = 60


@dataclass
class PostgresServer:
    """A server with one database.

    Attributes:
        directory: where its data, socket and log are.
        binaries: where PostgreSQL is installed.
        options: of the server.
    """

    directory: Path
    binaries: Path
    options: tuple[str, ...]
    _identity: dict[str, Any]
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"postgresql://commingle@/postgres?host={self.directory}"

    def empty(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")

    def make(self) -> None:
        options = ("-U", "commingle", "-A", "trust", "--locale=C", "-E", "UTF8", "--no-sync")
        command = [str(self.binaries / "initdb"), "-D", str(self.directory / "data"), *options]
        subprocess.run(command, check=True, capture_output=True, cwd=self.directory, **self._identity)

    def start(self) -> None:
        options = [word for option in self.options for word in ("-c", option)]
        data, where = str(self.directory / "data"), str(self.directory)
        command = [str(self.binaries / "postgres"), "-D", data, "-k", where, *options]
        with (self.directory / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory, **self._identity)
        self._process = process
        until = time.monotonic() + _SECONDS
        while True:
            try:
                psycopg.connect(self.url).close()
            except psycopg.OperationalError:
                if process.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.05)
            else:
                return

    def signal(self, number: signal.Signals) -> None:
        """To all of its processes, as a frozen machine has it."""
        if self._process is not None:
            pid = self._process.pid
            for each in (pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())):
                os.kill(each, number)

    def stop(self) -> None:
        """PostgreSQL's immediate shutdown: no farewell to anybody, recovery at the next start."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_SECONDS)
            self._process = None


@contextmanager
def own_postgres(*options: str) -> Iterator[PostgresServer]:
    """A running server; skips where PostgreSQL is not installed.

    Without options commits reach the operating system, so that they outlive the server, which is all that dies.
    """
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server binaries on this machine")
    user = _unprivileged()
    identity: dict[str, Any] = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    directory = Path(tempfile.mkdtemp(prefix="commingle-pg-"))
    if user is not None:
        os.chown(directory, user.pw_uid, user.pw_gid)
    server = PostgresServer(directory, binaries, ("listen_addresses=", "fsync=off", *options), identity)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


def _binaries() -> Path | None:
    def version(path: Path) -> int:
        return int(path.parent.name) if path.parent.name.isdigit() else 0

    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=version, reverse=True)
    on_path = shutil.which("postgres")
    candidates = [*installed, *([Path(on_path).resolve().parent] if on_path else [])]
    return next((path for path in candidates if (path / "initdb").exists() and (path / "postgres").exists()), None)


def _unprivileged() -> pwd.struct_passwd | None:
    """The user that the server runs as where the tests run as root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]
