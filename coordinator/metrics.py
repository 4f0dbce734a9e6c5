"""What this process counts, and the rounds the database knows, for Prometheus."""

from collections.abc import Iterator

from prometheus_client import Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from commingle.coordinator.store.store import Store
from commingle.shared.runtime.metrics import RequestMetrics


class Metrics(RequestMetrics):
    """Those of requests, and what only a coordinator has."""

    def __init__(self, store: Store) -> None:
        super().__init__("coordinator")
        self.uploaded = Counter(
            "commingle_coordinator_uploaded_bytes", "Bytes of recorded blocks.", registry=self.registry
        )
        self.registry.register(_Rounds(store))

    def text(self) -> bytes:
        """The exposition format. Raises StorageError."""
        return generate_latest(self.registry)


class _Rounds(Collector):
    def __init__(self, store: Store) -> None:
        self._store = store

    def describe(self) -> list[GaugeMetricFamily]:
        """Known without asking the database."""
        return [self._family()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Rounds by state, read when asked for."""
        family = self._family()
        with self._store.read() as tx:
            for state, count in tx.releases.counts().items():
                family.add_metric([state], count)
        yield family

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily("commingle_coordinator_rounds", "Releases, by state.", labels=["state"])
