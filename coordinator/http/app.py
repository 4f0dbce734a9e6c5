"""The coordinator as one ASGI application, and the endpoints for its operator with what they count for Prometheus."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

from fastapi import APIRouter, Depends, FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool

from commingle.coordinator.coordinator import Coordinator
from commingle.coordinator.errors import (
    CursorError,
    InviteError,
    LedgerHeadError,
    NameTakenError,
    NotPublishedError,
    NotSentError,
    OtherBytesError,
    QuotaError,
    ReplayedRequestError,
    RevokedError,
    StateError,
    StorageError,
    TooManyProposalsError,
    UnauthenticatedError,
    UnknownError,
)
from commingle.coordinator.http.access import SCHEMES, Authenticator, security_of
from commingle.coordinator.http.members import members_router
from commingle.coordinator.http.releases import (
    blocks_router,
    exchanges_router,
    forecasts_router,
    published_router,
    releases_router,
    start_worker,
)
from commingle.coordinator.http.streams import Feed, streams_router
from commingle.coordinator.publisher import Publisher
from commingle.coordinator.store.store import Store
from commingle.shared.documents.dsse import Envelope
from commingle.shared.documents.statements import ApprovalRequest, RotationRequest, SignedDocument
from commingle.shared.errors import CommingleError, PrivacyError, ProtocolError, SignatureError
from commingle.shared.runtime.errors import (
    BusyError,
    NoRoomError,
    RequestSignatureError,
    ScopeError,
    TooCostlyError,
    TooLargeError,
    TruncatedError,
)
from commingle.shared.runtime.pages.site import Site, add_reference
from commingle.shared.runtime.pool import WorkPool
from commingle.shared.runtime.problem import describe, service_app
from commingle.shared.runtime.telemetry import CountRequests, RequestMetrics

_WAITING = frozenset({"/v1/events", "/v1/releases/{release}/events", "/v1/parties/{party}/releases"})
_BY_STATUS: Mapping[int, tuple[type[CommingleError], ...]] = {
    400: (TruncatedError,),
    401: (UnauthenticatedError, RequestSignatureError, ReplayedRequestError),
    403: (RevokedError, ScopeError, InviteError, SignatureError),
    404: (UnknownError,),
    409: (
        NameTakenError,
        OtherBytesError,
        LedgerHeadError,
        StateError,
        TooManyProposalsError,
        NotPublishedError,
        NotSentError,
    ),
    413: (TooLargeError,),
    422: (CursorError, ProtocolError, PrivacyError, TooCostlyError),
    503: (StorageError, BusyError),
    507: (QuotaError, NoRoomError),
}
STATUSES = {kind: status for status, kinds in _BY_STATUS.items() for kind in kinds}


class CoordinatorMetrics(RequestMetrics):
    """The metrics of requests to this process, and those that only a coordinator has."""

    def __init__(self, store: Store) -> None:
        super().__init__("coordinator", waiting=_WAITING)
        self.uploaded = Counter(
            "commingle_coordinator_uploaded_bytes", "Bytes of recorded blocks.", registry=self.registry
        )
        self.registry.register(_Rounds(store))

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Rounds(Collector):
    def __init__(self, store: Store) -> None:
        self._store = store

    def describe(self) -> list[GaugeMetricFamily]:
        return [self._works(), self._family()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Rounds by state, read when asked for. If the database is away, it says so: that is when the rest matters."""
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


def create_app(coordinator: Coordinator, publisher: Publisher, feed: Feed, *, pool: WorkPool | None = None) -> FastAPI:
    """The application. The publisher runs while the application does; the pool starts when it is first needed."""
    pool = pool or WorkPool(start_worker)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        publisher.start()
        with coordinator.store.listening():
            yield
        await run_in_threadpool(publisher.stop)
        pool.close()

    metrics = CoordinatorMetrics(coordinator.store)
    app = service_app("Commingle coordinator", STATUSES, lifespan=lifespan)
    app.add_middleware(CountRequests, metrics=metrics)
    auth = Authenticator(coordinator)
    readers = [Depends(auth.reader)]
    add_reference(app, Site(None, name=app.title, pages=(("/docs", "Interface"),)))
    app.include_router(members_router(coordinator, auth))
    app.include_router(releases_router(coordinator, auth), dependencies=readers)
    app.include_router(forecasts_router(coordinator, pool), dependencies=readers)
    app.include_router(exchanges_router(coordinator, auth))
    app.include_router(blocks_router(coordinator, auth, publisher, metrics.uploaded))
    app.include_router(published_router(coordinator), dependencies=readers)
    app.include_router(streams_router(coordinator, auth, feed))
    app.include_router(operations_router(coordinator, metrics))
    models = (SignedDocument, Envelope, ApprovalRequest, RotationRequest)
    describe(app, models, schemes=SCHEMES, security=security_of)
    return app
