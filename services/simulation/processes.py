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
from typing import IO, Any, NoReturn, Self, cast

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
# `commingle`: a server once, a worker for every command that comes in; a separator follows what each command printed.
_CHILD = """
import ctypes, json, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)
parent, server = json.loads(sys.argv[1])
if os.getppid() != parent:
    sys.exit(1)
from commingle.__main__ import leave_out_unused, main
leave_out_unused()
for command in [server] if server else map(json.loads, sys.stdin):
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

    def send(self, commands: Sequence[Command]) -> None:
        """Let a worker run commands, one after the other."""
        lines = [json.dumps([*map(str, command), "--json"]) + "\n" for command in commands]
        pipe = cast("IO[bytes]", self.process.stdin)  # workers are started with one
        with contextlib.suppress(BrokenPipeError):  # it has ended, which whoever waits for answers reports
            pipe.write("".join(lines).encode())
            pipe.flush()

    def answers(self) -> list[str]:
        """What each command that is over printed."""
        return self.out.read_text().split(_SEPARATOR)[:-1]

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
    _workers: list[Running] = field(default_factory=list)
    _started: int = 0

    def __enter__(self) -> Self:
        self.logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        with _ignore_signals():
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

        Workers stay for later jobs, because loading takes a process longer than most commands.

        Args:
            jobs: by name, the commands that one worker runs one after the other.

        Raises:
            ProcessError: a command fails or does not end.
        """
        deadline = time.monotonic() + _COMMAND_SECONDS
        waiting, busy = list(jobs.items()), dict[str, tuple[Running, int]]()
        results: dict[str, list[Any]] = {}
        while waiting or busy:
            while waiting and (idle := self._idle_worker([worker for worker, _ in busy.values()])) is not None:
                name, commands = waiting.pop(0)
                busy[name] = idle, len(idle.answers()) + len(commands)
                idle.send(commands)
            time.sleep(_POLL_SECONDS)
            for name, (worker, due) in list(busy.items()):
                ended, answers = worker.process.poll() is not None, worker.answers()
                if len(answers) == due:
                    results[name] = [json.loads(answer) for answer in answers[due - len(jobs[name]) :]]
                    del busy[name]
                elif ended or time.monotonic() > deadline:
                    what = "failed" if ended else "does not end"
                    raise ProcessError(f"{name} {what}{worker.last_words()}", remedy=_LOG_REMEDY)
        return {name: results[name] for name in jobs}

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

    def _idle_worker(self, busy: Collection[Running]) -> Running | None:
        """One that has nothing to do, a new one while there are fewer than processors, or None."""
        idle = [worker for worker in self._workers if worker not in busy]
        if not idle and len(self._workers) < (os.cpu_count() or 1):
            idle = [self.start("commands", None)]
            self._workers += idle
        return idle[0] if idle else None

    def start(self, name: str, server: Command | None) -> Running:
        """Start a server, or a worker that takes commands, without waiting for it."""
        self._started += 1
        what = json.dumps([os.getpid(), server and [str(word) for word in server]])
        stem = f"{self._started:03}-{name}"
        out, log = self.logs / f"{stem}.out", self.logs / f"{stem}.log"
        with out.open("wb") as stdout, log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _CHILD, what],
                stdin=subprocess.DEVNULL if server else subprocess.PIPE,
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
            if running.process.stdin is not None:
                running.process.stdin.close()


@contextlib.contextmanager
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


@contextlib.contextmanager
def _ignore_signals() -> Iterator[None]:
    """Stopping takes seconds; an impatient second Ctrl-C must not leave children behind."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
