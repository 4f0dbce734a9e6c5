"""Around every request of every service: counted for Prometheus, and named in its answer and every log line."""

import logging
import re
import secrets
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from time import perf_counter
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commingle.shared import __version__
from commingle.shared.runtime import tracing
from commingle.shared.text import printable

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT"})


class RequestMetrics:
    """What is counted about requests, in a registry of its own: two applications in a process do not mix.

    Args:
        service: part of every name.
        waiting: routes that answer when something happens; how long they take says nothing of how fast the service is.
    """

    def __init__(self, service: str, *, waiting: frozenset[str] = frozenset()) -> None:
        self.registry = CollectorRegistry()
        self.waiting = waiting
        self.requests = Counter(
            f"commingle_{service}_requests",
            "Requests answered, by route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            f"commingle_{service}_request_seconds", "Time to answer.", ["route"], registry=self.registry
        )
        self.waits = Histogram(
            f"commingle_{service}_wait_seconds",
            "Time that long polls waited and streams were open.",
            ["route"],
            registry=self.registry,
        )


class CountRequests:
    """Counts answers by route template and status: labels stay few whatever is asked, and names of parties stay out."""

    def __init__(self, app: ASGIApp, *, metrics: RequestMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        started = perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.requests.labels(method, route, str(status)).inc()
            seconds = self._metrics.waits if route in self._metrics.waiting else self._metrics.seconds
            seconds.labels(route).observe(taken := perf_counter() - started)
            release = scope.get("path_params", {}).get("release")
            tracing.answered(method, route, status, release=release, seconds=taken)


_HEADER = b"x-request-id"
_ACCEPTED = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
_CALLER = re.compile(rb"commingle/[A-Za-z0-9_.+-]{1,32}")


class RequestIds:
    """Takes over a caller's X-Request-Id where it is harmless, else makes one; and notes a Commingle's version."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given, caller = headers.get(_HEADER, b""), headers.get(b"user-agent", b"")
        name = given if _ACCEPTED.fullmatch(given) else secrets.token_hex(8).encode()
        noted = {"caller": caller.decode()} if _CALLER.fullmatch(caller) else {}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (_HEADER, name)]
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=name.decode(), **noted):
            await self._app(scope, receive, answer)


class _UnfailingLogger(structlog.PrintLogger):
    """A log that cannot be written, on a full disk or to a reader that is gone, must not end the work it is about."""

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    log = debug = info = warn = warning = fatal = failure = err = error = critical = exception = msg


class _PlainFormatter(logging.Formatter):
    """What a library says may quote what it was sent."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep_lines=True)


def _with_trace(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return event if "release" not in event else {**event, "trace_id": tracing.trace_id(str(event["release"]))}


def configure_logging(*, service: str, level: str = "info", **facts: str) -> None:
    """Send this process's own logs and those of its libraries to standard error; lines have version and `facts`.

    Values from private rows, keys and seeds are never handed to a logger; see docs/threat-model.md.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            lambda _, __, event: {"service": service, "version": __version__, **facts, **event},
            structlog.contextvars.merge_contextvars,
            _with_trace,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: _UnfailingLogger(sys.stderr),  # standard error as it is when something is said
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_PlainFormatter("%(name)s: %(message)s"))
    handler.setLevel(logging.WARNING)  # a library may have set another level for its own loggers, as Dask does
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # its tracebacks quote messages, which could hold anything; faults are logged by problem.py without them
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
