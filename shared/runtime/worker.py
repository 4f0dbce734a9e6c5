"""A process that computes for strangers: it can be stopped at any time, and stops itself when a job costs too much.

A thread cannot be stopped and shares the interpreter with everything else that is being answered. Processes are forked
from a server that has loaded what jobs need and runs no thread of its own (`forkserver`), so a new one costs little.
"""

import multiprocessing
import os
import resource
import signal
from collections.abc import Callable
from math import ceil
from multiprocessing.connection import Connection
from threading import Lock
from time import process_time
from typing import Any, Protocol

from commingle.shared.errors import CommingleError
from commingle.shared.runtime.errors import TooCostlyError
from commingle.shared.runtime.threads import threads

CPU_SECONDS = 10
MEMORY_BYTES = 2 << 30
"""What a worker may have of its own: a table of two attributes of 127 levels would take 8 GB of everybody's."""
_NICENESS = 5  # who answers short requests comes first
_DYING_SECONDS = 10
_LESS = "Ask for less at a time: fewer attributes, levels, penalties or rows."


class JobFaultError(Exception):
    """A defect in a job. Only its class is told: its message could hold anything."""


class Worker(Protocol):
    """Does one job after the other."""

    def run(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:  # noqa: ANN401 - whatever it gives
        """Call the function and wait for its result.

        Raises:
            CommingleError: what the function raises; TooCostlyError: it was stopped.
            JobFaultError: any other error, or the end of the worker.
        """

    def stop(self) -> None:
        """End it, and the job that is being done, at once. It cannot be used afterwards."""


class ProcessWorker:
    """A worker in a process of its own, started by its first job.

    Args:
        preload: modules that jobs need, loaded once for all workers of this process.
        cpu_seconds: what a job may cost, rounded up to whole seconds of the process.
    """

    def __init__(self, *, preload: tuple[str, ...] = (), cpu_seconds: int = CPU_SECONDS) -> None:
        self._preload = preload
        self._cpu_seconds = cpu_seconds
        self._turn = Lock()
        self._started: tuple[Any, Connection] | None = None
        self._stopped = False

    def run(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:  # noqa: ANN401 - whatever it gives
        """See `Worker`. Function, arguments and result are pickled."""
        with self._turn:
            process, jobs = self._started = self._started or self._start()
            if self._stopped:  # meanwhile, by another thread, which saw no process
                process.kill()
            try:
                jobs.send((function, arguments))
                done, result = jobs.recv()
            except (EOFError, OSError):
                jobs.close()
                raise self._why(process) from None
        if done:
            return result
        raise result

    def stop(self) -> None:
        """See `Worker`."""
        self._stopped = True
        if self._started is not None:
            self._started[0].kill()

    def _start(self) -> tuple[Any, Connection]:
        os.environ.update(threads(os.environ))  # read by libraries while they load, which here they have
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, *self._preload])
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self._cpu_seconds), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def _why(self, process: Any) -> Exception:  # noqa: ANN401 - of a context, which has no public type
        process.join(_DYING_SECONDS)
        if process.exitcode == -signal.SIGXCPU:
            return TooCostlyError(
                f"computing this takes more than {self._cpu_seconds} seconds",
                remedy=_LESS,
            )
        return JobFaultError("stopped" if self._stopped else f"exit code {process.exitcode}")


def _work(jobs: Connection, cpu_seconds: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the process that started this ends it
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    own = MEMORY_BYTES if most == resource.RLIM_INFINITY else min(MEMORY_BYTES, most)
    resource.setrlimit(resource.RLIMIT_DATA, (own, most))
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    while True:
        try:
            function, arguments = jobs.recv()
        except EOFError:
            return
        resource.setrlimit(resource.RLIMIT_CPU, (ceil(process_time()) + cpu_seconds, most))
        try:
            answer = True, function(*arguments)
        except CommingleError as error:
            answer = False, error
        except MemoryError:
            said = f"computing this takes more than {MEMORY_BYTES >> 30} GiB of memory"
            answer = False, TooCostlyError(said, remedy=_LESS)
        except Exception as error:  # noqa: BLE001 - told by class
            answer = False, JobFaultError(type(error).__name__)
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        jobs.send(answer)
