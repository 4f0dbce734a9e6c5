"""Waiting for another process within limits: httpx bounds each write and each read, but both can go byte by byte.

docs/adr/0041 says why a thread does this, and not asyncio.
"""

import socket
from collections.abc import Mapping
from contextlib import suppress
from threading import Condition, Lock, Thread
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

import httpx

_CONNECTED = frozenset({"connection.connect_tcp.complete", "connection.start_tls.complete"})
_connections: WeakKeyDictionary[httpx.Client, list[Any]] = WeakKeyDictionary()
_guard = Lock()  # a client may be used by several threads, each of which connects


class Watch:
    """Give it to a request as httpcore's `trace` extension, which reports what happens to the request.

    The request is sent within `sending_seconds`. From its end to the end of the answer's head at most
    `answering_seconds` pass, and from there to the end of the body `reading_seconds`, whatever comes meanwhile. Then
    all connections of the client are cut, as nothing says which one the request is on. Other requests that wait on one
    see it broken.
    """

    def __init__(
        self, client: httpx.Client, *, sending_seconds: float, answering_seconds: float, reading_seconds: float
    ) -> None:
        self._streams = _connections.setdefault(client, [])
        self._seconds_from = {
            "http11.send_request_headers.started": sending_seconds,
            "http11.send_request_body.complete": answering_seconds,
            "http11.send_request_body.failed": answering_seconds,  # it may have been answered before its end
            "http11.receive_response_headers.complete": reading_seconds,
        }

    def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if event in _CONNECTED:
            with _guard:
                self._streams[:] = [s for s in self._streams if s.get_extra_info("socket").fileno() >= 0]
                self._streams.append(info["return_value"])
        elif event in self._seconds_from:
            _alarms.set(self, monotonic() + self._seconds_from[event])

    def stop(self) -> None:
        _alarms.cancel(self)

    def cut(self) -> None:
        with _guard:
            for stream in self._streams:
                with suppress(OSError):  # closed meanwhile
                    # not SSLSocket's own, after which the socket would be read as plain text
                    socket.socket.shutdown(stream.get_extra_info("socket"), socket.SHUT_RDWR)


class _Alarms:
    """When the time of each watch is over: one thread for all, as requests are many and hardly any is cut."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._due: dict[Watch, float] = {}
        self._wakes_at = 0.0
        self._thread: Thread | None = None

    def set(self, watch: Watch, at: float) -> None:
        with self._changed:
            self._due[watch] = at
            if self._thread is None or not self._thread.is_alive():  # as in a process that was forked
                self._thread = Thread(target=self._run, daemon=True)
                self._thread.start()
            elif at < self._wakes_at:
                self._changed.notify()

    def cancel(self, watch: Watch) -> None:
        with self._changed:
            self._due.pop(watch, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                over = [watch for watch, at in self._due.items() if at <= monotonic()]
                for watch in over:
                    del self._due[watch]
                if not over:
                    self._wakes_at = min(self._due.values(), default=float("inf"))
                    self._changed.wait(None if self._wakes_at == float("inf") else self._wakes_at - monotonic())
            for watch in over:
                watch.cut()


_alarms = _Alarms()
