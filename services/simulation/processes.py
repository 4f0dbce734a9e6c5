"""Starting `commingle` commands as processes of their own, and always stopping them.

Every child is tied to this process: it is stopped when the simulation ends in whatever way, and on Linux the kernel
kills it when the simulation is killed outright (PR_SET_PDEATHSIG).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Self

from commingle.services.simulation.errors import ProcessError

Command = Sequence[str | Path]

_START_SECONDS = 120.0
_COMMAND_SECONDS = 600.0
_GRACE_SECONDS = 2.0  # nothing of a child is needed after it is told to stop
_POLL_SECONDS = 0.02
_SHOWN_LINES = 12
_SEPARATOR = "\x1e"
_LOG_REMEDY = "Its whole log says more."
# What a child runs: it ties its life to its parent's, makes sure that the parent was still there, and becomes
# `commingle`, once per command; a separator follows what each command printed.
_CHILD = """
import ctypes, json, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)
parent, commands = json.loads(sys.argv[1])
if os.getppid() != parent:
    sys.exit(1)
from commingle.__main__ import main
for command in commands:
    try:
        main(command)
    except SystemExit as ended:
        if ended.code:
            raise
    print(chr(30), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Running:
    """A child, with the files its output goes to."""

    name: str
    process: "subprocess.Popen[bytes]"
    out: Path
    log: Path

    def require_alive(self) -> None:
        """Raise ProcessError, with its last words, if it has ended."""
        code = self.process.poll()
        if code is not None:
            raise ProcessError(f"{self.name} ended with code {code}{self.last_words()}", remedy=_LOG_REMEDY)

    def last_words(self) -> str:
        """The end of its log, indented."""
        lines = self.log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
        return "".join(f"\n    {line}" for line in lines)


@dataclass(slots=True)
class Processes:
    """All children of a simulation. Use as a context; leaving it stops them.

    Attributes:
        logs: where their output goes.
        threads: how many each may use for linear algebra.
    """

    logs: Path
    threads: int = 1
    _running: list[Running] = field(default_factory=list)
    _started: int = 0

    def __enter__(self) -> Self:
        self.logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        with _undisturbed():
            self._stop()

    def check(self) -> None:
        """Raise ProcessError if a server has ended."""
        for running in self._running:
            running.require_alive()

    def last_words(self, names: Collection[str]) -> str:
        """What these servers logged last."""
        return "".join(f"\n  {r.name}:{r.last_words()}" for r in self._running if r.name in names)

    def run(self, jobs: Mapping[str, Sequence[Command]]) -> dict[str, list[Any]]:
        """Run jobs, as many at a time as there are processors; what their commands printed, as JSON.

        Args:
            jobs: by name, the commands that a process of its own runs one after the other.

        Raises:
            ProcessError: a command fails or does not end.
        """
        deadline = time.monotonic() + _COMMAND_SECONDS
        waiting, busy = list(jobs.items()), list[Running]()
        results: dict[str, list[Any]] = {}
        while waiting or busy:
            while waiting and len(busy) < (os.cpu_count() or 1):
                name, commands = waiting.pop(0)
                busy.append(self._start(name, [(*command, "--json") for command in commands]))
            time.sleep(_POLL_SECONDS)
            for job in [job for job in busy if job.process.poll() is not None]:
                busy.remove(job)
                results[job.name] = self._results(job)
            if busy and time.monotonic() > deadline:
                raise ProcessError(f"{busy[0].name} does not end{busy[0].last_words()}", remedy=_LOG_REMEDY)
        return {name: results[name] for name in jobs}

    def start(self, name: str, command: Command) -> Running:
        """Start a server without waiting for it."""
        return self._start(name, [command])

    def address(self, server: Running) -> str:
        """Where a started server listens, once it does.

        Raises:
            ProcessError: it ends or does not listen in time.
        """
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            server.require_alive()
            line, newline, _ = server.out.read_text().partition("\n")
            if newline:
                return str(json.loads(line)["url"])
            time.sleep(_POLL_SECONDS)
        raise ProcessError(
            f"{server.name} does not listen after {_START_SECONDS:.0f} s{server.last_words()}", remedy=_LOG_REMEDY
        )

    def _start(self, name: str, commands: Sequence[Command]) -> Running:
        self._started += 1
        what = json.dumps([os.getpid(), [[str(word) for word in command] for command in commands]])
        stem = f"{self._started:03}-{name}"
        out, log = self.logs / f"{stem}.out", self.logs / f"{stem}.log"
        with out.open("wb") as stdout, log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _CHILD, what],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C reaches the simulation only, which stops children in order
            )
        running = Running(name, process, out, log)
        self._running.append(running)
        return running

    def _environment(self) -> dict[str, str]:
        threads = str(self.threads)
        return {
            **os.environ,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            "OPENBLAS_NUM_THREADS": threads,
            "OMP_NUM_THREADS": threads,
        }

    def _results(self, job: Running) -> list[Any]:
        self._running.remove(job)
        if job.process.returncode:
            raise ProcessError(f"{job.name} failed{job.last_words()}", remedy=_LOG_REMEDY)
        return [json.loads(part) for part in job.out.read_text().split(_SEPARATOR)[:-1]]

    def _stop(self) -> None:
        for running in self._running:
            if running.process.poll() is None:
                running.process.terminate()
        deadline = time.monotonic() + _GRACE_SECONDS
        for running in self._running:
            try:
                running.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                running.process.kill()
                running.process.wait()


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
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


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Stopping takes seconds; an impatient second Ctrl-C must not leave children behind."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
