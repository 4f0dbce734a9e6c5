"""Around every request: a bound on its body, and counts for `/metrics`."""

import asyncio

from fastapi import HTTPException
from prometheus_client import Counter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commingle.shared.runtime.metrics import RequestMetrics

MAX_BODY_BYTES = 8 << 20
_PATIENCE_SECONDS = 60.0


class Metrics(RequestMetrics):
    """Those of requests, and what only a learner has."""

    def __init__(self) -> None:
        super().__init__("learner")
        self.fits = Counter("commingle_learner_fits", "Fits computed", ["estimator"], registry=self.registry)


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
