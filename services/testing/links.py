"""A link between one agent and the coordinator, which loses, delays, repeats and changes messages for a test.

The agent is enrolled at the address of its link, as if the link were a reverse proxy: neither agent nor coordinator
knows of it. Request signatures cover no host, so they hold behind it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random
from socket import socket
from threading import Lock
from typing import Any, Literal

import httpx

from commingle.shared.runtime.server import Served, listen

Fault = Literal["drop", "lose answer", "delay", "duplicate", "garble", "garble answer"]
"""A fault of a message.

`drop`: it never arrives. `lose answer`: it arrives, but its answer does not. `delay`: it arrives later. `duplicate`: it
arrives twice. `garble`: it arrives with one bit changed. `garble answer`: its answer arrives with one bit changed.
"""
_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"te", b"upgrade", b"host", b"trailer"})
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Scope]]
_Send = Callable[[Mapping[str, Any]], Awaitable[None]]


@dataclass(slots=True)
class Injected:
    """A fault that waits for messages.

    Attributes:
        fault: the fault of these messages.
        method: strikes messages of this method only; None for any.
        path: strikes messages only whose path contains this.
        times: how many more messages it strikes.
        seconds: how long `delay` takes.
        struck: how many messages it has struck.
    """

    fault: Fault
    method: str | None
    path: str
    times: int
    seconds: float
    struck: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """The quality of a connection.

    Attributes:
        seconds: latency of a message and its answer together, besides the time for their bytes.
        bytes_per_second: in each direction of each connection.
        lost: the share of messages, and of answers, whose connection breaks.
    """

    seconds: float = 0.0
    bytes_per_second: float = inf
    lost: float = 0.0


@dataclass(eq=False)
class Link:
    """One agent's way to the coordinator.

    Attributes:
        target: the coordinator's address.
        requests: method and path of every message, the oldest first.
    """

    target: str
    requests: list[str] = field(default_factory=list)
    _faults: list[Injected] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)
    _listener: socket = field(default_factory=lambda: listen(host="127.0.0.1", port=0))
    _client: httpx.AsyncClient | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _passing: set[asyncio.Task[None]] = field(default_factory=set)
    _down: bool = False
    _line: Line = Line()
    _draw: Random = field(default_factory=lambda: Random(0))  # noqa: S311 - for faults

    @property
    def url(self) -> str:
        """The address at which the agent reaches the coordinator."""
        return self.served.url

    @property
    def served(self) -> Served:
        """The link as an ASGI application."""
        return Served(self, self._listener)

    def inject(
        self, fault: Fault, *, method: str | None = None, path: str = "", times: int = 1, seconds: float = 1.0
    ) -> Injected:
        """Strike the next messages of this agent.

        Args:
            fault: the fault of these messages.
            method: strikes messages of this method only.
            path: strikes messages only whose path contains this, such as `/blocks/`.
            times: how many messages it strikes.
            seconds: how long `delay` takes.

        Returns:
            The fault, whose `struck` counts the messages that it has struck so far.
        """
        injected = Injected(fault, method, path, times, seconds)
        with self._lock:
            self._faults.append(injected)
        return injected

    def slow(self, *, seconds: float = 0.2, bytes_per_second: float = 125_000, lost: float = 0.01) -> None:
        """Carry all further messages as a slow line does; by default 200 ms, 1 Mbit/s, and one of a hundred lost.

        Args:
            seconds: latency of a message and its answer together, besides the time for their bytes.
            bytes_per_second: in each direction of each connection.
            lost: the share of messages, and of answers, whose connection breaks.
        """
        self._line = Line(seconds, bytes_per_second, lost)

    def cut(self) -> None:
        """Break every open connection, and let no message arrive until `mend`."""
        self._down = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._break_off)

    def mend(self) -> None:
        """Let messages arrive again."""
        self._down = False

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        body = await _body_of(receive, self._line)
        passing = asyncio.create_task(self._pass(partial(self._request, scope), body, send))
        gone = asyncio.create_task(_gone(receive))
        self._passing.add(passing)
        await asyncio.wait({passing, gone}, return_when=asyncio.FIRST_COMPLETED)
        for task in (passing, gone):
            task.cancel()
        await asyncio.gather(passing, gone, return_exceptions=True)
        self._passing.discard(passing)

    async def _live(self, receive: _Receive, send: _Send) -> None:
        await receive()
        self._loop = asyncio.get_running_loop()
        async with httpx.AsyncClient(base_url=self.target, timeout=None, trust_env=False) as self._client:  # noqa: S113 - as long as it takes
            await send({"type": "lifespan.startup.complete"})
            await receive()
        self._loop = None
        await send({"type": "lifespan.shutdown.complete"})

    def _break_off(self) -> None:
        for task in self._passing:
            task.cancel()

    def _request(self, scope: _Scope, body: bytes) -> httpx.Request:
        path = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        kept = [(name, value) for name, value in scope["headers"] if name not in _HOP_BY_HOP | {b"content-length"}]
        url = httpx.URL(self.target).copy_with(raw_path=path)
        return httpx.Request(scope["method"], url, headers=kept, content=body or None)

    def _strike(self, request: httpx.Request) -> Injected | None:
        method, path = request.method, request.url.path
        with self._lock:
            self.requests.append(f"{method} {path}")
            for fault in self._faults:
                if fault.times > 0 and fault.method in {None, method} and fault.path in path:
                    fault.times, fault.struck = fault.times - 1, fault.struck + 1
                    return fault
        return None

    async def _pass(self, request: Callable[[bytes], httpx.Request], body: bytes, send: _Send) -> None:
        # `cut` cancels this; without an answer the agent's connection breaks
        answered = False
        try:
            struck, line = self._strike(request(b"")), self._line
            fault = None if struck is None else struck.fault
            await asyncio.sleep(line.seconds)
            if self._loses(line):
                return
            if struck is not None and fault == "delay":
                await asyncio.sleep(struck.seconds)
            if self._down or fault == "drop":
                return
            if fault in {"duplicate", "lose answer"}:
                async with self._answer(request(body)) as first:
                    await first.aread()
            if fault == "lose answer":
                return
            async with self._answer(request(_garbled(body) if fault == "garble" else body)) as answer:
                answered = not self._loses(line)
                if answered:
                    await _forward(answer, send, line, garble=fault == "garble answer")
        except httpx.TransportError:
            pass
        finally:
            if not answered:
                await _cut(send)

    def _loses(self, line: Line) -> bool:
        return self._draw.random() < line.lost

    @asynccontextmanager
    async def _answer(self, request: httpx.Request) -> AsyncIterator[httpx.Response]:
        assert self._client is not None  # noqa: S101 - made before the first request is taken
        answer = await self._client.send(request, stream=True)
        try:
            yield answer
        finally:
            await answer.aclose()


async def _body_of(receive: _Receive, line: Line) -> bytes:
    pieces, more = [], True
    while more:
        message = await receive()
        pieces.append(message.get("body", b""))
        await asyncio.sleep(len(pieces[-1]) / line.bytes_per_second)  # meanwhile the sender has to wait
        more = message.get("more_body", False)
    return b"".join(pieces)


async def _forward(answer: httpx.Response, send: _Send, line: Line, *, garble: bool) -> None:
    kept = [(name, value) for name, value in answer.headers.raw if name.lower() not in _HOP_BY_HOP]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": kept})
    async for piece in answer.aiter_raw():
        body = _garbled(piece) if garble else piece
        garble = False
        await asyncio.sleep(len(body) / line.bytes_per_second)
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: _Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cut(send: _Send) -> None:
    # an answer that ends before it has begun breaks the connection
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})


def _garbled(body: bytes) -> bytes:
    at = len(body) // 2
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :] if body else body
