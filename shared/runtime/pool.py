"""Computes jobs of clients in processes that can be stopped at any time.

A few workers do at most one job of a client at a time. Few jobs wait, and none for a client that has hung up. A worker
stops itself when a job costs too much. A thread could not be stopped, and shares the interpreter with all other
requests. Processes are forked from a server that has loaded what jobs need and runs no thread of its own
(`forkserver`), so a new one costs little.
"""

import asyncio
import multiprocessing
import os
import resource
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil
from multiprocessing.connection import Connection
from threading import Lock
from time import process_time
from typing import Any, Protocol, TypeVar

from starlette.requests import ClientDisconnect, Request

from commingle.shared.errors import CommingleError
from commingle.shared.runtime.cli import threads
from commingle.shared.runtime.errors import BusyError, TooCostlyError

CPU_SECONDS = 10
MEMORY_BYTES = 2 << 30
"""How much memory a worker may have: a request of a few bytes may ask for matrices of many levels."""
_NICENESS = 5  # the process that answers short requests comes first
_DYING_SECONDS = 10
_LESS = "Ask for less at a time: fewer attributes, levels, penalties or rows."


class JobFaultError(Exception):
    """A defect in a job. It tells only the class: a message could hold anything."""


class Worker(Protocol):
    """Does one job after the other."""

    def run(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:  # noqa: ANN401 - whatever it gives
        """Call the function and wait for its result.

        Raises CommingleError: as the function; TooCostlyError: it was stopped; JobFaultError: any other error, or the
        end of the worker.
        """

    def stop(self) -> None:
        """End it at once, and its job with it. It cannot be used afterwards."""


class ProcessWorker:
    """A worker in a process of its own, started by its first job.

    The modules `preload`, which jobs need, load once for all workers of this process. A job may cost `cpu_seconds`,
    rounded up to whole seconds of the process.
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
            if self._stopped:  # by another thread meanwhile, which saw no process
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


WORKERS = 2  # jobs done at a time
PER_CLIENT = 8  # requests that a client may have here, with the one that is being computed
WAITING = 64  # jobs of all clients that may wait
_REMEDY = "Try again in a few seconds."
_SUBSCRIBER_BITS = 64  # of an IPv6 address; the rest its owner chooses freely

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Turn:
    client: str
    given: "asyncio.Future[None]"


class WorkPool:
    """Jobs in the order in which they came, but never two of one client at a time. For one event loop."""

    def __init__(self, start: Callable[[], Worker]) -> None:
        self._start = start  # makes a worker, which starts nothing before its first job
        self._free = WORKERS
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="pool")  # each waits for one worker
        self._idle: list[Worker] = []
        self._busy: list[Worker] = []
        self._places = Counter[str]()
        self._turns: list[_Turn] = []
        self._running: set[str] = set()

    def warm_up(self) -> None:
        self._idle += [self._start() for _ in range(self._free - len(self._idle))]
        for worker in self._idle:
            self._threads.submit(worker.run, int, ())

    def close(self) -> None:
        for worker in (*self._idle, *self._busy):
            worker.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def place(self, client: str) -> Iterator[None]:
        """One of the client's requests, from before its body is read until it is answered.

        Raises BusyError: the client has `PER_CLIENT` requests here already.
        """
        if self._places[client] >= PER_CLIENT:
            raise BusyError(f"{PER_CLIENT} requests from your address are being computed", remedy=_REMEDY)
        self._places[client] += 1
        try:
            yield
        finally:
            self._places[client] -= 1
            self._places += Counter()  # forgets who has none

    async def run(self, client: str, function: Callable[..., T], *arguments: object) -> T:
        """Call the function in a worker when it is the client's turn. If cancelled, it frees the worker at once.

        Raises BusyError: too many wait; CommingleError, JobFaultError: as `Worker.run`.
        """
        async with self.turn(client):
            return await self.do(function, *arguments)

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for the client's turn, in which it may `do` something. Raises BusyError: too many wait."""
        if len(self._turns) >= WAITING:
            raise BusyError("too many requests wait to be computed", remedy=_REMEDY)
        turn = _Turn(client, asyncio.get_running_loop().create_future())
        self._turns.append(turn)
        self._give_turns()
        try:
            await turn.given
            yield
        finally:
            if turn in self._turns:
                self._turns.remove(turn)
            else:
                self._end(client)

    async def do(self, function: Callable[..., T], *arguments: object) -> T:
        """Call the function in a worker, in the client's turn. Otherwise as `run`."""
        worker = self._idle.pop() if self._idle else self._start()
        self._busy.append(worker)
        usable = False
        try:
            loop = asyncio.get_running_loop()
            result: T = await loop.run_in_executor(self._threads, worker.run, function, arguments)
            usable = True
        except TooCostlyError:
            raise  # the worker is gone
        except CommingleError:
            usable = True
            raise
        else:
            return result
        finally:
            self._busy.remove(worker)
            if usable:
                self._idle.append(worker)
            else:
                worker.stop()

    def _end(self, client: str) -> None:
        self._running.remove(client)
        self._free += 1
        self._give_turns()

    def _give_turns(self) -> None:
        for turn in tuple(self._turns):
            if self._free and turn.client not in self._running and not turn.given.done():
                self._turns.remove(turn)
                self._running.add(turn.client)
                self._free -= 1
                turn.given.set_result(None)


def client_of(request: Request) -> str:
    """The client: an IPv4 address, or an IPv6 network; a proxy's if no proxy is trusted to name clients."""
    host = request.client.host if request.client else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    return str(address.ipv4_mapped or ip_network((int(address), _SUBSCRIBER_BITS), strict=False))


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, which is cancelled if the client hangs up. Read the request's body before.

    Raises ClientDisconnect: the client hung up.
    """
    doing = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise ClientDisconnect
    finally:
        for task in (doing, leaving):
            task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await doing


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
