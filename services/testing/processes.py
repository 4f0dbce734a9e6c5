"""Starting `commingle` commands as processes of their own, and always stopping them.

Loading takes such a process far longer than its work, so one process loads everything once and forks every child
(`preloaded`). This process stops each child when it is done with it. A child kills itself if this process is killed.
"""

import json
import multiprocessing
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from io import StringIO
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any, NoReturn, Self

from commingle.services.errors import ConsortiumError, ProcessError
from commingle.shared.runtime.cli import threads
from commingle.shared.runtime.faults import VARIABLE
from commingle.shared.runtime.files import close_to_others
from commingle.shared.runtime.tls import ServerTls

Command = Sequence[str | Path]

_START_SECONDS = 120.0
_COMMAND_SECONDS = 600.0
_GRACE_SECONDS = 2.0  # nothing of a child is needed after it is told to stop
_POLL_SECONDS = 0.02
_SHOWN_LINES = 12
_LOG_REMEDY = "Its whole log says more."
_PRELOADED = "commingle.services.testing.preloaded"


@dataclass(frozen=True, slots=True)
class Running:
    """A child, with the files of its output."""

    name: str
    process: ForkServerProcess
    out: Path
    log: Path

    def require_alive(self) -> None:
        """Raise ProcessError, with the end of its log, if it has ended."""
        code = self.process.exitcode
        if code is not None:
            raise ProcessError(f"{self.name} ended with code {code}{self.last_words()}", remedy=_LOG_REMEDY)

    def last_words(self) -> str:
        """The end of its log, indented."""
        return last_lines(self.log)


def last_lines(log: Path) -> str:
    """The last lines of a file, indented."""
    lines = log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
    return "".join(f"\n    {line}" for line in lines)


def only_processes(what: str) -> ConsortiumError:
    return ConsortiumError(what, remedy="Start the consortium with processes=True.")


@dataclass(slots=True)
class ServerProcess:
    """A `serve` command as a process, which you can kill and start again, always on the same port."""

    name: str
    command: Command
    _processes: "Processes"
    _running: Running | None = None

    @property
    def alive(self) -> bool:
        return self._running is not None and self._running.process.is_alive()

    @property
    def pid(self) -> int:
        """The process ID of what was started last."""
        return self._started.process.pid or 0

    def begin(self, *, fault: str = "") -> None:
        """Start it without waiting. It kills itself at the fault point, if given (`shared.runtime.faults`)."""
        self._running = self._processes.start(self.name, self.command, fault=fault)

    def await_listening(self) -> None:
        self._processes.address(self._started)

    def kill(self) -> None:
        if self._running is not None:
            self._running.process.kill()
            self._processes.forget(self._running)

    def await_death(self) -> None:
        """Return when it has killed itself at its fault point. Raises ProcessError: it ends otherwise."""
        process = self._started.process
        process.join(_COMMAND_SECONDS)
        if process.exitcode != -signal.SIGKILL:
            said = f"{self.name} has not killed itself (exit code {process.exitcode})"
            raise ProcessError(f"{said}{self._started.last_words()}", remedy=_LOG_REMEDY)
        self._processes.forget(self._started)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def fill_disk(self, *, full: bool) -> None:
        """Let no file of it grow, logs included, or lift this limit. Linux only."""
        limits = (0 if full else resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, limits)

    def set_clock(self, *, ahead: timedelta) -> None:
        raise ConsortiumError(
            f"the clock of a process cannot be set {ahead} ahead, it is the machine's",
            remedy="Start the consortium without processes.",
        )

    @property
    def _started(self) -> Running:
        if self._running is None:
            raise ProcessError(f"{self.name} was never started", remedy="Start it first.")
        return self._running


def reserved_port() -> socket.socket:
    """A socket that is bound and never listens: the kernel keeps its port for a server of ours."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


@dataclass(slots=True)
class Processes:
    """All children of a program, with their output in `logs`; leaving the context stops them."""

    logs: Path
    _running: list[Running] = field(default_factory=list)
    _workers: dict[Connection, Running] = field(default_factory=dict)
    _begun: int = 0

    def __enter__(self) -> Self:
        close_to_others(self.logs)
        start_loading()
        return self

    def __exit__(self, *_: object) -> None:
        with _ignore_signals():
            self._stop()

    def check(self) -> None:
        for running in self._running:
            running.require_alive()

    def last_words(self, names: Collection[str]) -> str:
        return "".join(f"\n  {r.name}:{r.last_words()}" for r in self._running if r.name in names)

    def run(self, jobs: Mapping[str, Sequence[Command]]) -> dict[str, list[Any]]:
        """Run jobs, as many at a time as there are processors, and return the JSON that their commands print.

        A worker runs the commands of one job one after the other.
        """
        deadline = time.monotonic() + _COMMAND_SECONDS
        waiting, busy, results = list(jobs.items()), dict[Connection, str](), dict[str, list[Any]]()
        while waiting or busy:
            while waiting and (idle := self._idle_worker(busy)) is not None:
                busy[idle], commands = waiting.pop(0)
                with suppress(BrokenPipeError):  # it has ended: waiting for its answer reports that
                    idle.send([[*map(str, command), "--json"] for command in commands])
            ready = wait(list(busy), max(0.0, deadline - time.monotonic()))
            if not ready:
                worker, name = next(iter(busy.items()))
                raise self._failed(worker, f"{name} does not end")
            for worker in (worker for worker in list(busy) if worker in ready):
                name = busy.pop(worker)
                try:
                    results[name] = [json.loads(answer) for answer in worker.recv()]
                except (EOFError, ConnectionResetError):  # the latter if it has not read its commands
                    raise self._failed(worker, f"{name} failed") from None
        return {name: results[name] for name in jobs}

    def address(self, server: Running) -> str:
        """Wait until a server listens, and return its URL or the path of its socket."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            server.require_alive()
            line, newline, _ = server.out.read_text().partition("\n")
            if newline:
                said = json.loads(line)
                return str(said.get("url", said.get("socket")))
            time.sleep(_POLL_SECONDS)
        raise ProcessError(
            f"{server.name} does not listen after {_START_SECONDS:.0f} s{server.last_words()}", remedy=_LOG_REMEDY
        )

    def start(self, name: str, server: Command, *, fault: str = "") -> Running:
        """Start a server, without waiting for it."""
        return self._start(name, [*map(str, server)], fault=fault)

    def coordinator(self, home: Path, port: int) -> ServerProcess:
        return ServerProcess("coordinator", ("coordinator", "serve", "--home", home, "--port", str(port)), self)

    def agent(self, name: str, home: Path, port: int | None, tls: ServerTls | None) -> ServerProcess:
        network: Command = ()
        if port is not None and tls is not None:
            network = ("--port", str(port), "--tls-certificate", tls.certificate, "--tls-key", tls.key)
        return ServerProcess(name, ("party", "serve", "--home", home, *network), self)

    def forget(self, running: Running) -> None:
        """Wait for a child that is meant to end."""
        running.process.join()
        if running in self._running:
            self._running.remove(running)

    def _failed(self, worker: Connection, what: str) -> ProcessError:
        ended = self._workers.pop(worker)
        ended.process.terminate()
        self.forget(ended)
        worker.close()
        return ProcessError(f"{what}{ended.last_words()}", remedy=_LOG_REMEDY)

    def _idle_worker(self, busy: Collection[Connection]) -> Connection | None:
        idle = next((worker for worker in self._workers if worker not in busy), None)
        if idle is None and len(self._workers) < (os.cpu_count() or 1):
            idle, far_end = multiprocessing.Pipe()
            with far_end:
                self._workers[idle] = self._start("commands", far_end)
        return idle

    def _start(self, name: str, work: list[str] | Connection, *, fault: str = "") -> Running:
        self._begun += 1
        stem = f"{self._begun:03}-{name}"
        out, log = self.logs / f"{stem}.out", self.logs / f"{stem}.log"
        for path in (out, log):
            path.touch()  # this process may read them before the child opens them
        # no daemon: a learner starts workers of its own; `_stop` and each child's watch on this process end them
        process = multiprocessing.get_context("forkserver").Process(
            target=_become, args=(work, environment() | {VARIABLE: fault}, out, log), name=name, daemon=False
        )
        process.start()
        running = Running(name, process, out, log)
        self._running.append(running)
        return running

    def _stop(self) -> None:
        for running in self._running:
            running.process.terminate()
        deadline = time.monotonic() + _GRACE_SECONDS
        for running in self._running:
            running.process.join(max(0.0, deadline - time.monotonic()))
            running.process.kill()
            running.process.join()
        for worker in self._workers:
            worker.close()


def start_loading() -> None:
    """Start the process that forks children, unless it runs; it loads what they need in the background."""
    told = environment()
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        forkserver.set_forkserver_preload([_PRELOADED])
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def environment() -> dict[str, str]:
    """Environment variables of every child, whatever this process has."""
    return {
        **threads(os.environ),
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "PYTHONSAFEPATH": "1",  # nothing is loaded from where this program happens to be run
    }


def _become(work: list[str] | Connection, environment: Mapping[str, str], out: Path, log: Path) -> None:
    # in a child: be one server, or run commands as they come in and send back what each prints
    if (parent := multiprocessing.parent_process()) is not None:
        Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    os.setsid()  # Ctrl-C reaches the parent only, which stops children in order
    os.environ.update(environment)
    for path, stream in ((out, 1), (log, 2)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), stream)
    from commingle.__main__ import leave_out_unused, main  # noqa: PLC0415 - loaded before the fork

    leave_out_unused()
    if isinstance(work, list):
        main(work)
    else:
        with suppress(EOFError):
            while True:
                work.send([printed(main, command) for command in work.recv()])


def printed(main: Callable[[list[str]], None], command: list[str]) -> str:
    """The output of a command. One that fails ends this process."""
    with redirect_stdout(StringIO()) as out:
        try:
            main(command)
        except SystemExit as ended:
            if ended.code:
                raise
    return out.getvalue()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process the way Ctrl-C does, so that children are stopped.

    SIGINT is set too: a shell starts background jobs with it ignored.
    """

    def end(number: int, _: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _ignore_signals() -> Iterator[None]:
    # stopping takes seconds, and a second Ctrl-C must not leave children behind
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
