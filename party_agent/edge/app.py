"""The agent's local HTTP API: on its Unix socket for the operator, and by scoped tokens for the party's own systems."""

import asyncio
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST

from commingle.party_agent.data.datasets import DatasetRequest
from commingle.party_agent.edge.api import LocalApi, UnauthorisedError, guard
from commingle.party_agent.edge.data_routes import data_routes, regression_routes, upload_routes
from commingle.party_agent.edge.release_routes import file_routes, propose_routes, release_routes
from commingle.party_agent.edge.uploads import CloseRequest
from commingle.party_agent.edge.views import metrics_text
from commingle.party_agent.errors import (
    AgentError,
    ConflictError,
    DataError,
    LedgerError,
    NotFoundError,
    PieceError,
    SampleError,
    SourceError,
    SourceRefusedError,
    TooManyUploadsError,
    UnwitnessedError,
)
from commingle.party_agent.home.tokens import AgentScope
from commingle.party_agent.rounds.proposals import DecisionNote
from commingle.party_agent.wire.answers import Health
from commingle.shared import __version__
from commingle.shared.documents.errors import ProtocolError
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.documents.study import Study
from commingle.shared.dp.errors import PrivacyError
from commingle.shared.runtime.errors import (
    NoRoomError,
    RemoteError,
    RequestBodyError,
    ScopeError,
    SettingsError,
    TooLargeError,
)
from commingle.shared.runtime.pages.reference import add_reference
from commingle.shared.runtime.pages.site import Site
from commingle.shared.runtime.problem import PROBLEM_RESPONSES, describe, install_problems
from commingle.shared.runtime.tracing import NO_TELEMETRY

STATUSES = {
    ScopeError: 403,
    SourceRefusedError: 403,
    NotFoundError: 404,
    ConflictError: 409,
    TooLargeError: 413,
    RequestBodyError: 408,
    TooManyUploadsError: 429,
    NoRoomError: 507,
    DataError: 422,
    SourceError: 422,
    SampleError: 422,
    PieceError: 422,
    ProtocolError: 422,
    PrivacyError: 422,
    SettingsError: 500,
    LedgerError: 500,
    UnwitnessedError: 503,
    AgentError: 500,
    RemoteError: 502,
}
_SCOPES: dict[str, AgentScope] = {"GET": "read", "PUT": "decide", "POST": "register"}
_SPENDING: dict[str, AgentScope] = {**_SCOPES, "POST": "decide"}  # where a POST spends budget
_PUSHING: dict[str, AgentScope] = dict.fromkeys(("GET", "PUT", "POST", "DELETE"), "register")
_PROPOSING: dict[str, AgentScope] = {"POST": "propose"}
_NOT_READY: dict[int | str, dict[str, Any]] = {503: {"description": "The same with the code of what is wrong"}}
_LEDGER_SECONDS = 5


def create_app(api: LocalApi) -> FastAPI:
    """The local API."""
    app = FastAPI(
        title="Commingle party agent",
        version=__version__,
        telemetry=NO_TELEMETRY,
        docs_url=None,  # those pages run other people's scripts, where the token would be pasted
        redoc_url=None,
        responses=PROBLEM_RESPONSES,
    )
    install_problems(app, {**STATUSES, UnauthorisedError: 401})
    site = Site(None, name="Commingle party agent", pages=(("/docs", "Interface"),))
    site.add_files(app)
    add_reference(app, site, lambda: app.openapi())  # noqa: PLW0108 - as it is in the end
    app.include_router(_open_routes(api))
    app.include_router(_metrics_route(api), dependencies=[Depends(guard(api, _SCOPES))])
    for routes, scopes in (
        (data_routes, _SCOPES),
        (release_routes, _SCOPES),
        (regression_routes, _SPENDING),
        (upload_routes, _PUSHING),
        (propose_routes, _PROPOSING),
        (file_routes, _SCOPES),
    ):
        app.include_router(routes(api), prefix="/v1", dependencies=[Depends(guard(api, scopes))])
    describe(app, (DatasetRequest, DecisionNote, RegressionRequest, Study, CloseRequest))
    return app


def _open_routes(api: LocalApi) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz")
    async def healthz() -> Health:
        """Whether the process answers."""
        return Health(status="ok")

    @router.get("/readyz", responses=_NOT_READY)
    async def readyz(response: Response) -> Health:
        """Whether the agent can do its work: its ledger answers and so does its coordinator."""
        problem = api.loops.problem if api.loops else None
        status = problem.code if problem else "ok"
        try:
            async with asyncio.timeout(_LEDGER_SECONDS):
                await api.ledger.run(api.agents.ledger.spent)
        except TimeoutError:
            status = "busy"
        if status != "ok":
            response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
        return Health(status=status)

    return router


def _metrics_route(api: LocalApi) -> APIRouter:
    router = APIRouter()

    @router.get("/metrics", response_class=Response)
    def metrics() -> Response:
        """Prometheus metrics: budget, charges, proposals that wait, touch with the coordinators."""
        return Response(metrics_text(api.agents, api.loops), media_type=CONTENT_TYPE_LATEST)

    return router
