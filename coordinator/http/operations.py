"""Endpoints for whoever operates the coordinator."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from commingle.coordinator.coordinator import Coordinator
from commingle.coordinator.metrics import Metrics


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
