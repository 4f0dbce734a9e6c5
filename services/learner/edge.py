"""Around every request: a bound on its body, and counts for `/metrics`."""

from time import perf_counter

from fastapi import HTTPException
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 8 << 20


class Metrics:
    """One registry per application, so that two in a process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "commingle_learner_requests", "Requests", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "commingle_learner_request_seconds", "Time to answer", ["route"], registry=self.registry
        )
        self.fits = Counter("commingle_learner_fits", "Fits computed", ["estimator"], registry=self.registry)


class Measured:
    """Counts requests by route template, so that labels stay few whatever is asked."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Watch one request."""
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
            route = getattr(scope.get("route"), "path", "unknown")
            self._metrics.requests.labels(_method(scope), route, status).inc()
            self._metrics.seconds.labels(route).observe(perf_counter() - started)


class BodyLimit:
    """Stops reading a body that is too large, whatever its headers say."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count one request's body while it comes in."""
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise HTTPException(413, f"the body exceeds {MAX_BODY_BYTES} bytes; send fewer rows at a time")
            return message

        await self._app(scope, counted, send)


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in {"GET", "HEAD", "POST"} else "other"
