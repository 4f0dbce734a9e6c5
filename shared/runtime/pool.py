"""Who computes when: a few workers, one job of a client at a time, few waiting, none for a client that has hung up."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from commingle.shared.errors import CommingleError
from commingle.shared.runtime.errors import BusyError, TooCostlyError
from commingle.shared.runtime.worker import Worker

WORKERS, PER_CLIENT, WAITING = 2, 8, 64
_REMEDY = "Try again in a few seconds."
_SUBSCRIBER_BITS = 64  # of an IPv6 address; the rest its owner chooses freely

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Turn:
    client: str
    given: "asyncio.Future[None]"


class WorkPool:
    """Jobs in the order in which they came, but never two of one client at a time. For one event loop.

    Args:
        start: makes a worker, which does not start anything before its first job.
        workers: jobs done at a time.
        per_client: requests that one client may have here, the one that is being computed included.
        waiting: jobs of all clients that may wait.
    """

    def __init__(
        self,
        start: Callable[[], Worker],
        *,
        workers: int = WORKERS,
        per_client: int = PER_CLIENT,
        waiting: int = WAITING,
    ) -> None:
        self._start = start
        self._per_client, self._waiting, self._free = per_client, waiting, workers
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="pool")  # each waits for one worker
        self._idle: list[Worker] = []
        self._busy: list[Worker] = []
        self._places = Counter[str]()
        self._turns: list[_Turn] = []
        self._running: set[str] = set()

    def warm_up(self) -> None:
        """Start all workers, in the background."""
        self._idle += [self._start() for _ in range(self._free - len(self._idle))]
        for worker in self._idle:
            self._threads.submit(worker.run, int, ())

    def close(self) -> None:
        """Stop all workers and what they do."""
        for worker in (*self._idle, *self._busy):
            worker.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def place(self, client: str) -> Iterator[None]:
        """One of the client's requests, from before its body is read until it is answered.

        Raises:
            BusyError: it has as many as it may have.
        """
        if self._places[client] >= self._per_client:
            raise BusyError(f"{self._per_client} requests from your address are being computed", remedy=_REMEDY)
        self._places[client] += 1
        try:
            yield
        finally:
            self._places[client] -= 1
            self._places += Counter()  # forgets who has none

    async def run(self, client: str, function: Callable[..., T], *arguments: object) -> T:
        """Call the function in a worker when it is the client's turn. Cancelled, it frees the worker at once.

        Raises:
            BusyError: too many wait.
            CommingleError, JobFaultError: as `Worker.run`.
        """
        async with self.turn(client):
            return await self.do(function, *arguments)

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """From the client's turn on, in which it may `do` something. Raises BusyError: too many wait."""
        if len(self._turns) >= self._waiting:
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
        """Call the function in a worker, whose turn it is. Otherwise as `run`."""
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
    """Who asks: an IPv4 address, or the network of an IPv6 address. A proxy's where none is trusted to say for whom."""
    host = request.client.host if request.client else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    return str(address.ipv4_mapped or ip_network((int(address), _SUBSCRIBER_BITS), strict=False))


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, which is cancelled when the client hangs up. The request's body must have been read.

    Raises:
        ClientDisconnect: it did.
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
