"""Endpoints for whoever operates the coordinator, and the middleware that counts."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.coordinator import Coordinator
from coordinator.metrics import Metrics


def operations_router(coordinator: Coordinator, metrics: Metrics) -> APIRouter:
    """`/healthz`, `/readyz` and `/metrics`."""
    router = APIRouter(tags=["operations"])

    @router.get("/healthz")
    def health() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @router.get("/readyz")
    def ready() -> dict[str, str]:
        """Database and blob directory work; a 503 problem says which does not."""
        with coordinator.store.read() as tx:
            tx.events.last()
        coordinator.blobs.check()
        return {"status": "ready"}

    @router.get("/metrics", response_class=Response)
    def show_metrics() -> Response:
        """Prometheus metrics of this process."""
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router


class CountRequests:
    """Counts answers by route and status. Routes, not paths: names of parties and releases stay out."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.requests.labels(scope["method"], route, str(status)).inc()
