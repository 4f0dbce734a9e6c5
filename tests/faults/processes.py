"""Coordinator and agents as real processes that are really killed.

Each is forked from a server process that has loaded their code already (multiprocessing's forkserver), so that a test
can afford dozens of restarts; apart from that it is the `commingle` command.
"""

import json
import multiprocessing
import os
import resource
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from commingle.shared.runtime.faults import VARIABLE

_START_SECONDS = 120.0
_END_SECONDS = 120.0
_POLL_SECONDS = 0.02
_UNLIMITED = resource.RLIM_INFINITY
_context = multiprocessing.get_context("forkserver")
# pandas, because pyarrow looks for it at its first conversion
_context.set_forkserver_preload(
    ["commingle.coordinator.cli", "commingle.party_agent.cli", "pandas", "tests.faults.processes"]
)


def _become(arguments: list[str], environment: Mapping[str, str], out: str, log: str) -> None:
    from commingle.__main__ import main

    os.environ.update(environment)
    for descriptor, path in ((1, out), (2, log)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    main(arguments)


def _fork(arguments: tuple[object, ...], *, out: Path, log: Path, fault: str = "") -> ForkServerProcess:
    process = _context.Process(
        target=_become, args=([str(word) for word in arguments], {VARIABLE: fault}, str(out), str(log)), daemon=True
    )
    process.start()
    return process


def run(folder: Path, *arguments: object) -> tuple[int, Any]:
    """Run a command to its end; its exit code and what it printed as JSON."""
    stem = f"{time.monotonic_ns()}-{arguments[1]}"
    out, log = folder / f"{stem}.out", folder / f"{stem}.log"
    process = _fork((*arguments, "--json"), out=out, log=log)
    process.join(_END_SECONDS)
    assert process.exitcode is not None, f"{arguments} does not end"
    return process.exitcode, json.loads(out.read_text())


def _reserved() -> socket.socket:
    """Bound and never listening: the kernel gives its port to nobody else, and a server may listen on it."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


@dataclass
class Server:
    """A `serve` command that is started, killed and started again, always on the same port if it takes one.

    Attributes:
        folder: where its output goes.
        arguments: the command without its port.
        on_a_port: whether it listens on the network, and not only at a socket in its home.
    """

    folder: Path
    arguments: tuple[object, ...]
    on_a_port: bool = True
    _port: socket.socket = field(default_factory=_reserved)
    _process: ForkServerProcess | None = None
    _starts: int = field(default=0)

    def start(self, *, fault: str = "") -> None:
        """Start it and wait until it listens."""
        self._starts += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        out = self.folder / f"{self._starts:03}.out"
        arguments = (*self.arguments, *(("--port", self._port.getsockname()[1]) if self.on_a_port else ()))
        self._process = _fork(arguments, out=out, log=self.log, fault=fault)
        until = time.monotonic() + _START_SECONDS
        while not (out.exists() and out.read_text().endswith("\n")):
            assert self._process.is_alive(), self.log.read_text()
            assert time.monotonic() < until
            time.sleep(_POLL_SECONDS)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port.getsockname()[1]}"

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def wait_for_death(self) -> None:
        """It kills itself at its fault point."""
        assert self._process is not None
        self._process.join(_END_SECONDS)
        assert self._process.exitcode == -signal.SIGKILL, f"still alive or ended otherwise: {self.log.read_text()}"

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """As `kill -9` does."""
        if self._process is not None and self._process.is_alive():
            self._process.kill()
            self._process.join(_END_SECONDS)

    def close(self) -> None:
        """Kill it for good."""
        self.kill()
        self._port.close()

    def fill_disk(self, *, full: bool) -> None:
        """No file may grow from now on, logs included; or space is there again."""
        assert self._process is not None
        assert self._process.pid is not None
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (0 if full else _UNLIMITED, _UNLIMITED))
