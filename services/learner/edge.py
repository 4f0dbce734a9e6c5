"""Around every request: a bound on its body, and counts for `/metrics`."""

import asyncio
from time import perf_counter

from fastapi import HTTPException
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 8 << 20
_PATIENCE_SECONDS = 60.0


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
    """Stops reading a body that is too large, whatever its headers say, or takes too long."""

    def __init__(self, app: ASGIApp, *, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._app = app
        self._patience_seconds = patience_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count one request's body while it comes in."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        until = asyncio.get_running_loop().time() + self._patience_seconds
        received, more = 0, True

        async def counted() -> Message:
            nonlocal received, more
            try:
                async with asyncio.timeout_at(until if more else None):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, "the body did not come in time; send it again") from None
            more = message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise HTTPException(413, f"the body exceeds {MAX_BODY_BYTES} bytes; send fewer rows at a time")
            return message

        await self._app(scope, counted, send)


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in {"GET", "HEAD", "POST"} else "other"
