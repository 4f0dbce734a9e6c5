"""Waiting for the head of an answer, but not for ever: httpx bounds each read, and a head can come byte by byte."""

from collections.abc import Mapping
from contextlib import suppress
from socket import SHUT_RDWR
from threading import Timer
from typing import Any
from weakref import WeakKeyDictionary

import httpx

_CONNECTED = frozenset({"connection.connect_tcp.complete", "connection.start_tls.complete"})
# a request that is not sent to its end may have been answered before
_ASKED = frozenset({"http11.send_request_body.complete", "http11.send_request_body.failed"})
_ANSWERED = frozenset({"http11.receive_response_headers.complete", "http11.receive_response_headers.failed"})
_connections: WeakKeyDictionary[httpx.Client, list[Any]] = WeakKeyDictionary()


class HeadWatch:
    """To be handed to a request as httpcore's `trace` extension, which tells what happens to it.

    From the end of the request to the end of the answer's head pass `seconds` at most; then the client's connections
    are cut, all of them, as nobody says which one the request is on. Whoever waits on one sees it broken.
    """

    def __init__(self, client: httpx.Client, *, seconds: float) -> None:
        self._streams = _connections.setdefault(client, [])
        self._seconds = seconds
        self._timer = Timer(seconds, self._cut)

    def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        """Something happened."""
        if event in _CONNECTED:
            self._streams[:] = [s for s in self._streams if s.get_extra_info("socket").fileno() >= 0]
            self._streams.append(info["return_value"])
        elif event in _ASKED:
            self._timer = Timer(self._seconds, self._cut)
            self._timer.daemon = True
            self._timer.start()
        elif event in _ANSWERED:
            self._timer.cancel()

    def _cut(self) -> None:
        for stream in self._streams:
            with suppress(OSError):  # closed meanwhile
                stream.get_extra_info("socket").shutdown(SHUT_RDWR)
