"""Steps of releases as spans of OpenTelemetry: one trace for each release, across all services that work on it.

A trace and its root are named by a hash of the release, so that services agree on them without a word to each other.
A span says which step of which release was taken, by whom, when, and whether it failed. Its words are those written in
this product's code, and a digest: nothing that anybody sent, and no text of an error. FastAPI's own telemetry is off,
because it sends addresses that were asked for, and messages of faults, which could quote a row.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from hashlib import sha256
from time import time_ns
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

from commingle.shared import __version__
from commingle.shared.errors import MissingExtraError

NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""What FastAPI is told."""

_DIGEST = re.compile("[0-9a-f]{64}")
_FAILED = 500
_named = ContextVar[SpanContext | None]("_named", default=None)  # the span that is being made has this name


def trace_to(url: str, *, service: str, **facts: str) -> None:
    """Send this process's spans to a collector at a URL, by OTLP over HTTP, until it ends. Once for a process.

    Raises MissingExtraError.
    """
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
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url.rstrip('/')}/v1/traces")))
    trace.set_tracer_provider(provider)


def trace_id(release: str) -> str:
    """The trace of a release, in 32 hexadecimal digits."""
    return sha256(f"commingle/trace/{release}".encode()).hexdigest()[:32]


@contextmanager
def span(step: str, release: str) -> Iterator[None]:
    """A step of a release: it takes as long as the block, and has failed where that raises."""
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
    """A request about a release was answered just now, after so long. Others are no part of any trace."""
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
    """The root of a release's trace, from its proposal until it is over."""
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
