"""Waiting for another process, not for ever: httpx bounds each write and each read, and both can go byte by byte."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock, Timer
from typing import Any
from weakref import WeakKeyDictionary

import httpx

_CONNECTED = frozenset({"connection.connect_tcp.complete", "connection.start_tls.complete"})
_connections: WeakKeyDictionary[httpx.Client, list[Any]] = WeakKeyDictionary()
_guard = Lock()  # a client may be used by several threads, each of which connects


class Watch:
    """To be handed to a request as httpcore's `trace` extension, which tells what happens to it.

    The request is sent within `sending_seconds`, from its end to the end of the answer's head pass
    `answering_seconds` at most, and from there to the end of its body `reading_seconds`, whatever comes meanwhile.
    Then the client's connections are cut, all of them, as nobody says which one the request is on. Whoever waits on
    one sees it broken.
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
        self._timer: Timer | None = None

    def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        """Something happened."""
        if event in _CONNECTED:
            with _guard:
                self._streams[:] = [s for s in self._streams if s.get_extra_info("socket").fileno() >= 0]
                self._streams.append(info["return_value"])
        elif event in self._seconds_from:
            self._start(self._seconds_from[event])

    def stop(self) -> None:
        """Nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _start(self, seconds: float) -> None:
        self.stop()
        self._timer = Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def _cut(self) -> None:
        with _guard:
            for stream in self._streams:
                with suppress(OSError):  # closed meanwhile
                    # not SSLSocket's own, after which the socket would be read as plain text
                    socket.socket.shutdown(stream.get_extra_info("socket"), socket.SHUT_RDWR)
