"""The coordinator as one ASGI application."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
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
    TruncatedError,
    UnauthenticatedError,
    UnknownError,
)
from commingle.coordinator.feed import Feed
from commingle.coordinator.http.access import SCHEMES, Authenticator, security_of
from commingle.coordinator.http.contributions import blocks_router, exchanges_router
from commingle.coordinator.http.forecasts import forecasts_router, start_worker
from commingle.coordinator.http.members import members_router
from commingle.coordinator.http.operations import CoordinatorMetrics, operations_router
from commingle.coordinator.http.releases import published_router, releases_router
from commingle.coordinator.http.streams import streams_router
from commingle.coordinator.publisher import Publisher
from commingle.shared import __version__
from commingle.shared.documents.dsse import Envelope
from commingle.shared.documents.errors import ProtocolError, SignatureError
from commingle.shared.documents.statements import ApprovalRequest, RotationRequest, SignedDocument
from commingle.shared.dp.errors import PrivacyError
from commingle.shared.errors import CommingleError
from commingle.shared.runtime.errors import (
    BusyError,
    NoRoomError,
    RequestSignatureError,
    ScopeError,
    TooCostlyError,
    TooLargeError,
)
from commingle.shared.runtime.middleware import CountRequests
from commingle.shared.runtime.openapi import describe
from commingle.shared.runtime.pages.reference import add_reference
from commingle.shared.runtime.pages.site import Site
from commingle.shared.runtime.pool import WorkPool
from commingle.shared.runtime.problem import PROBLEM_RESPONSES, install_problems

STATUSES: Mapping[type[CommingleError], int] = {
    UnauthenticatedError: 401,
    RequestSignatureError: 401,
    ReplayedRequestError: 401,
    RevokedError: 403,
    ScopeError: 403,
    InviteError: 403,
    SignatureError: 403,
    UnknownError: 404,
    NameTakenError: 409,
    OtherBytesError: 409,
    LedgerHeadError: 409,
    StateError: 409,
    TooManyProposalsError: 409,
    NotPublishedError: 409,
    NotSentError: 409,
    QuotaError: 507,
    NoRoomError: 507,
    TooLargeError: 413,
    TruncatedError: 400,
    CursorError: 422,
    ProtocolError: 422,
    PrivacyError: 422,
    StorageError: 503,
    BusyError: 503,
    TooCostlyError: 422,
}


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
    app = FastAPI(
        title="Commingle coordinator",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=PROBLEM_RESPONSES,
    )
    install_problems(app, STATUSES)
    app.add_middleware(CountRequests, metrics=metrics)
    auth = Authenticator(coordinator)
    readers = [Depends(auth.reader)]
    site = Site(None, name="Commingle coordinator", pages=(("/docs", "Interface"),))
    site.add_files(app)
    add_reference(app, site, lambda: app.openapi())  # noqa: PLW0108 - as it is in the end
    app.include_router(members_router(coordinator, auth))
    app.include_router(releases_router(coordinator, auth), dependencies=readers)
    app.include_router(forecasts_router(coordinator, pool), dependencies=readers)
    app.include_router(exchanges_router(coordinator, auth))
    app.include_router(blocks_router(coordinator, auth, publisher, metrics))
    app.include_router(published_router(coordinator), dependencies=readers)
    app.include_router(streams_router(coordinator, auth, feed))
    app.include_router(operations_router(coordinator, metrics))
    models = (SignedDocument, Envelope, ApprovalRequest, RotationRequest)
    describe(app, models, schemes=SCHEMES, security=security_of)
    return app
