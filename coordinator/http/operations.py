"""Endpoints for the operator of the coordinator, and what they count for Prometheus."""

from collections.abc import Iterator

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from commingle.coordinator.coordinator import Coordinator
from commingle.coordinator.errors import StorageError
from commingle.coordinator.store.store import Store
from commingle.shared.runtime.middleware import RequestMetrics

_WAITING = frozenset({"/v1/events", "/v1/releases/{release}/events", "/v1/parties/{party}/releases"})


class CoordinatorMetrics(RequestMetrics):
    """Those of requests to this process, and what only a coordinator has."""

    def __init__(self, store: Store) -> None:
        super().__init__("coordinator", waiting=_WAITING)
        self.uploaded = Counter(
            "commingle_coordinator_uploaded_bytes", "Bytes of recorded blocks.", registry=self.registry
        )
        self.registry.register(_Rounds(store))

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)


class _Rounds(Collector):
    def __init__(self, store: Store) -> None:
        self._store = store

    def describe(self) -> list[GaugeMetricFamily]:
        """Known without asking the database."""
        return [self._works(), self._family()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Rounds by state, read when asked for. A database that is away is said: the rest is wanted then above all."""
        family = self._family()
        try:
            with self._store.read() as tx:
                for state, count in tx.releases.counts().items():
                    family.add_metric([state], count)
        except StorageError:
            yield self._works(0)
        else:
            yield from (self._works(1), family)

    def _works(self, value: float | None = None) -> GaugeMetricFamily:
        return GaugeMetricFamily("commingle_coordinator_database_up", "Whether the database answers.", value=value)

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily("commingle_coordinator_rounds", "Releases, by state.", labels=["state"])


def operations_router(coordinator: Coordinator, metrics: CoordinatorMetrics) -> APIRouter:
    """`/healthz`, `/readyz` and `/metrics`."""
    router = APIRouter(tags=["operations"])

    @router.get("/healthz")
    async def health() -> dict[str, str]:
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
