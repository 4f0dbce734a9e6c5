"""Waiting for another process, not for ever: httpx bounds each write and each read, and both can go byte by byte."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from threading import Timer
from typing import Any
from weakref import WeakKeyDictionary

import httpx

_CONNECTED = frozenset({"connection.connect_tcp.complete", "connection.start_tls.complete"})
_SENDING = "http11.send_request_headers.started"
# a request that is not sent to its end may have been answered before
_ASKED = frozenset({"http11.send_request_body.complete", "http11.send_request_body.failed"})
_ANSWERED = frozenset({"http11.receive_response_headers.complete", "http11.receive_response_headers.failed"})
_connections: WeakKeyDictionary[httpx.Client, list[Any]] = WeakKeyDictionary()


class Watch:
    """To be handed to a request as httpcore's `trace` extension, which tells what happens to it.

    The request is sent within `sending_seconds`, and from its end to the end of the answer's head pass
    `answering_seconds` at most; then the client's connections are cut, all of them, as nobody says which one the
    request is on. Whoever waits on one sees it broken.
    """

    def __init__(self, client: httpx.Client, *, sending_seconds: float, answering_seconds: float) -> None:
        self._streams = _connections.setdefault(client, [])
        self._sending_seconds = sending_seconds
        self._answering_seconds = answering_seconds
        self._timer: Timer | None = None

    def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        """Something happened."""
        if event in _CONNECTED:
            self._streams[:] = [s for s in self._streams if s.get_extra_info("socket").fileno() >= 0]
            self._streams.append(info["return_value"])
        elif event == _SENDING:
            self._start(self._sending_seconds)
        elif event in _ASKED:
            self._start(self._answering_seconds)
        elif event in _ANSWERED:
            self.stop()

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
        for stream in self._streams:
            with suppress(OSError):  # closed meanwhile
                # not SSLSocket's own, after which the socket would be read as plain text
                socket.socket.shutdown(stream.get_extra_info("socket"), socket.SHUT_RDWR)
