"""What a service tells about its work: counts of requests for Prometheus, log lines, and steps of releases as spans.

Every request has a name, which stands in its answer and in every log line about it.

OpenTelemetry gets one trace for each release, across all services that work on it. A hash of the release names the
trace and its root, so services agree on both without a word to each other. A span says which step of which release was
taken, by whom, when, and whether it failed. It holds words of this product's code and a digest: nothing that anybody
sent, and no text of an error. FastAPI's own telemetry is off: it sends addresses that were asked for, and messages of
faults, which could quote a row.
"""

import logging
import re
import secrets
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from hashlib import sha256
from time import perf_counter, time_ns
from typing import Any
from warnings import catch_warnings

import structlog
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commingle.shared import __version__
from commingle.shared.errors import MissingExtraError

NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""Turns FastAPI's own telemetry off."""

_DIGEST = re.compile("[0-9a-f]{64}")
_FAILED = 500
_named = ContextVar[SpanContext | None]("_named", default=None)  # the name of the span that is being made


def trace_to(url: str, *, service: str, **facts: str) -> None:
    """Send this process's spans to a collector by OTLP over HTTP. Once for a process. Raises MissingExtraError."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("opentelemetry-exporter-otlp-proto-http", extra="otel") from None

    class Names(RandomIdGenerator):
        def generate_span_id(self) -> int:
            named = _named.get()
            return super().generate_span_id() if named is None else named.span_id

        def generate_trace_id(self) -> int:
            named = _named.get()
            return super().generate_trace_id() if named is None else named.trace_id

    about = {"service.name": f"commingle-{service}", "service.version": __version__}
    resource = Resource(about | {f"commingle.{name}": fact for name, fact in facts.items()})
    provider = TracerProvider(resource=resource, id_generator=Names())
    with catch_warnings(action="ignore"):  # requests misses what commands leave out, and needs it for no collector
        exporter = OTLPSpanExporter(f"{url.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def trace_id(release: str) -> str:
    """The trace of a release, in 32 hexadecimal digits."""
    return sha256(f"commingle/trace/{release}".encode()).hexdigest()[:32]


@contextmanager
def span(step: str, release: str) -> Iterator[None]:
    """A step of a release: it takes as long as the block, and fails if the block raises."""
    with _tracer().start_as_current_span(
        step,
        context=_under(release),
        attributes={"commingle.release": release},
        record_exception=False,
        set_status_on_exception=False,
    ) as made:
        try:
            yield
        except BaseException:
            made.set_status(StatusCode.ERROR)
            raise


def answered(method: str, route: str, status: int, *, release: object, seconds: float) -> None:
    """Record a request about a release that was answered just now. Other requests are part of no trace."""
    if not isinstance(release, str) or _DIGEST.fullmatch(release) is None:
        return
    about = {"commingle.release": release, "http.request.method": method, "http.route": route}
    began, now = time_ns() - int(seconds * 1e9), time_ns()
    made = _tracer().start_span(f"{method} {route}", _under(release), SpanKind.SERVER, about, start_time=began)
    made.set_attribute("http.response.status_code", status)
    if status >= _FAILED:
        made.set_status(StatusCode.ERROR)
    made.end(now)


def ended(release: str, *, state: str, proposed: datetime, now: datetime) -> None:
    """Record the root of a release's trace, from its proposal until it is over."""
    token = _named.set(_root(release))
    try:
        made = _tracer().start_span(
            "release",
            trace.set_span_in_context(trace.INVALID_SPAN),
            attributes={"commingle.release": release, "commingle.state": state},
            start_time=_nanoseconds(proposed),
        )
    finally:
        _named.reset(token)
    made.end(_nanoseconds(now))


def _tracer() -> trace.Tracer:
    return trace.get_tracer("commingle", __version__)


def _under(release: str) -> Any:  # noqa: ANN401 - opentelemetry's own type of contexts is not public
    return trace.set_span_in_context(NonRecordingSpan(_root(release)))


def _root(release: str) -> SpanContext:
    number = trace_id(release)
    sampled = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(number, 16), int(number[:16], 16), is_remote=True, trace_flags=sampled)


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1e9)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT"})


class RequestMetrics:
    """Counts of requests, in a registry of their own: two applications in one process do not mix.

    Routes in `waiting` answer when something happens; their times say nothing about the speed of the service.
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
    """Counts answers by route template and status: so labels stay few, and hold no names of parties."""

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
            answered(method, route, status, release=release, seconds=taken)


_HEADER = b"x-request-id"
_ACCEPTED = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
_CALLER = re.compile(rb"commingle/[A-Za-z0-9_.+-]{1,32}")


class RequestIds:
    """Takes a caller's X-Request-Id if it is harmless, or makes one; and notes the version of a Commingle client."""

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
    """On a full disk or without a reader a log cannot be written; the work that it is about must go on."""

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    log = debug = info = warn = warning = fatal = failure = err = error = critical = exception = msg


class _OfLibraries(logging.Handler):
    """Makes a library's message a line like ours, without its traceback, whose messages could hold anything."""

    def emit(self, record: logging.LogRecord) -> None:
        level = min(record.levelno, logging.CRITICAL) // 10 * 10  # structlog has names for these alone
        try:
            said = record.getMessage()
        except Exception:  # noqa: BLE001 - its arguments do not fit it: that must not end what the library does
            said = str(record.msg)
        structlog.get_logger().log(level, said, library=record.name)


def _with_trace(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return event if "release" not in event else {**event, "trace_id": trace_id(str(event["release"]))}


def configure_logging(*, service: str, level: str = "info", **facts: str) -> None:
    """Send the logs of this process and its libraries to standard error; lines have the version and `facts`.

    Nothing hands values from private rows, keys or seeds to a logger; see docs/threat-model.md.
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
    # a library may have set another level for its own loggers, as Dask does
    logging.basicConfig(level=logging.WARNING, handlers=[_OfLibraries(logging.WARNING)])
    # faults are logged by problem.py
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
