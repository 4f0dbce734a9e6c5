"""The agent's local HTTP API: on its Unix socket for the operator, and by scoped tokens for the party's own systems."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST

from commingle.party_agent.data.datasets import Dataset, DatasetRequest
from commingle.party_agent.edge import examples
from commingle.party_agent.edge.bodies import document, read_body
from commingle.party_agent.edge.loop import Loops
from commingle.party_agent.edge.metrics import metrics_text
from commingle.party_agent.edge.own_thread import OwnThread
from commingle.party_agent.edge.release_routes import ReleaseId, files_router, propose_router
from commingle.party_agent.edge.upload_routes import DatasetName, uploads_router
from commingle.party_agent.edge.uploads import CloseRequest
from commingle.party_agent.edge.views import (
    consortium_view,
    export_audit,
    job_view,
    ledger_view,
    proposal_view,
    proposal_views,
)
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
from commingle.party_agent.home.source_paths import resolve_source
from commingle.party_agent.home.tokens import AgentScope, find_token
from commingle.party_agent.ledger.requests import regression_line, regression_view
from commingle.party_agent.ledger.rulings import Ruling
from commingle.party_agent.rounds.agents import Agents
from commingle.party_agent.rounds.counts import Viewer, sees_counts
from commingle.party_agent.rounds.forecasts import Forecasts
from commingle.party_agent.rounds.proposals import DecisionNote, Proposal
from commingle.party_agent.wire.answers import (
    DatasetList,
    DatasetView,
    Health,
    JobList,
    JobView,
    LedgerView,
    ProposalList,
    ProposalView,
    RegressionList,
    RegressionView,
    StatusView,
)
from commingle.shared import __version__
from commingle.shared.documents.errors import ProtocolError
from commingle.shared.documents.model import decode
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.documents.statements import SignedDocument
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
from commingle.shared.runtime.problem import PROBLEM_RESPONSES, describe, install_problems, takes
from commingle.shared.text import printable

if TYPE_CHECKING:
    from commingle.party_agent.regression.service import Regressions

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
_Regression = Annotated[str, Path(description="Id of the regression, 64 hex digits.")]
_NOT_READY: dict[int | str, dict[str, Any]] = {503: {"description": "The same with the code of what is wrong"}}
_LEDGER_SECONDS = 5
_TO_BE_READ: dict[int | str, dict[str, Any]] = {202: {"description": "For a token: what it said, before a row is read"}}


class UnauthorisedError(AgentError):
    """No valid bearer token."""

    code = "unauthorised"


@dataclass(frozen=True, slots=True)
class LocalApi:
    """What the API works on.

    Attributes:
        loops: None where a command runs the API in its own process.
        peer_is_operator: whether only the operator can be at the other end, so that who sends no token is. On the
            network nobody is: there, tokens alone count.
        readings: where tables are read, one at a time.
        ledger: where `/readyz` asks the ledger.
    """

    agents: Agents
    loops: Loops | None
    peer_is_operator: bool
    readings: OwnThread = field(default_factory=lambda: OwnThread("readings"))
    ledger: OwnThread = field(default_factory=lambda: OwnThread("readiness"))


def create_app(api: LocalApi) -> FastAPI:
    """The local API."""
    app = FastAPI(
        title="Commingle party agent",
        version=__version__,
        docs_url=None,  # those pages run other people's scripts, where the token would be pasted
        redoc_url=None,
        responses=PROBLEM_RESPONSES,
    )
    install_problems(app, {**STATUSES, UnauthorisedError: 401})
    site = Site(None, name="Commingle party agent", pages=(("/docs", "Interface"),))
    site.add_files(app)
    add_reference(app, site, lambda: app.openapi())  # noqa: PLW0108 - as it is in the end
    app.include_router(_open_routes(api))
    app.include_router(_metrics_route(api), dependencies=[Depends(_guard(api))])
    app.include_router(_data_routes(api), prefix="/v1", dependencies=[Depends(_guard(api))])
    app.include_router(_release_routes(api), prefix="/v1", dependencies=[Depends(_guard(api))])
    app.include_router(_regression_routes(api), prefix="/v1", dependencies=[Depends(_guard(api, _SPENDING))])
    app.include_router(
        uploads_router(api.agents, api.readings), prefix="/v1", dependencies=[Depends(_guard(api, _PUSHING))]
    )
    app.include_router(propose_router(api.agents), prefix="/v1", dependencies=[Depends(_guard(api, _PROPOSING))])
    app.include_router(files_router(api.agents), prefix="/v1", dependencies=[Depends(_guard(api))])
    describe(app, (DatasetRequest, DecisionNote, RegressionRequest, Study, CloseRequest))
    return app


def _guard(api: LocalApi, scope_of: dict[str, AgentScope] = _SCOPES) -> Any:  # noqa: ANN401 - a FastAPI dependency
    bearer = HTTPBearer(auto_error=False)

    def check(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> None:
        request.state.operator = api.peer_is_operator and "authorization" not in request.headers
        request.state.viewer = Viewer.OPERATOR if request.state.operator else Viewer.TOKEN
        if request.state.operator:
            return
        text = "" if given is None else given.credentials
        found = find_token(api.agents.home, text, api.agents.clock())
        if found is None:
            raise UnauthorisedError(
                "no valid bearer token", remedy="Make one: commingle party token create; send Authorization: Bearer …"
            )
        request.state.token, token = found
        request.state.person, scope = token.person, scope_of[request.method]
        if scope not in token.scopes:
            raise ScopeError(
                f"this token does not have the scope {scope}", remedy="Make one: commingle party token create"
            )

    return check


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


def _data_routes(api: LocalApi) -> APIRouter:
    router, agents = APIRouter(), api.agents

    @router.get("/status")
    def status() -> StatusView:
        """Who this agent is and how it is."""
        problem = api.loops.problem if api.loops else None
        return StatusView(
            name=agents.identity.name,
            fingerprint=agents.identity.signing_key.fingerprint,
            consortia=tuple(consortium_view(one, api.loops) for one in agents.consortia),
            running=api.loops is not None,
            trouble=problem.diagnostics() if problem else None,
        )

    @router.get("/datasets")
    def datasets(request: Request) -> DatasetList:
        """All data sets that the owner has declared; counts are shown to the operator only."""
        counts = sees_counts(request.state.viewer)
        return DatasetList(items=tuple(dataset.view(counts=counts) for dataset in agents.datasets.all()))

    @router.post(
        "/datasets",
        status_code=201,
        openapi_extra=takes(DatasetRequest, examples.DATASET),
    )
    async def register(
        request: Request,
        *,
        replace: Annotated[bool, Query(description="Whether the data set may be there already.")] = False,
    ) -> DatasetView:
        """Declare a data set, read and validate it. For the operator alone: a token chooses no source and no key."""
        if not request.state.operator:
            raise ScopeError(
                "only the operator declares data sets",
                remedy="On the agent's machine: commingle party datasets add. A token can have it read again.",
            )
        asked = await document(request, DatasetRequest)
        source = await run_in_threadpool(resolve_source, agents.home, asked.source)
        wanted = asked.model_copy(update={"source": source})
        counts = sees_counts(request.state.viewer)
        return (await api.readings.run(partial(agents.datasets.register, wanted, replace=replace))).view(counts=counts)

    @router.post(
        "/datasets/{name}/reading",
        responses=_TO_BE_READ,
    )
    async def read_again(
        name: DatasetName, request: Request, response: Response, later: BackgroundTasks
    ) -> DatasetView:
        """Read a declared data set again. A token is answered before, and learns nothing of the rows.

        Releases that were approved go on with the rows that were approved.
        """
        counts = sees_counts(request.state.viewer)
        if request.state.operator:
            return (await api.readings.run(partial(agents.datasets.read_again, name, strict=True))).view(counts=counts)
        declared = await run_in_threadpool(agents.datasets.readable, name)
        later.add_task(api.readings.run_newest, name, agents.datasets.try_again, name)
        response.status_code = HTTPStatus.ACCEPTED
        return Dataset(**dict(declared)).view(counts=counts)

    @router.get("/ledger")
    def ledger() -> LedgerView:
        """Charges and remaining budget."""
        return ledger_view(agents.ledger)

    @router.get("/audit")
    def audit() -> SignedDocument:
        """The ledger's whole chain with everything this party has signed, signed for an auditor."""
        return export_audit(agents)

    return router


def _release_routes(api: LocalApi) -> APIRouter:
    router, agents = APIRouter(), api.agents

    def forecasts() -> Forecasts:
        return Forecasts(agents.store, asked_here=api.loops is None)

    @router.get("/proposals")
    def proposals(request: Request) -> ProposalList:
        """Everything this party has been asked; how many cells are missing is shown to the operator only."""
        return ProposalList(items=proposal_views(agents, forecasts(), request.state.viewer))

    @router.get("/proposals/{release}")
    def proposal(release: ReleaseId, request: Request) -> ProposalView:
        """One proposal."""
        return proposal_view(agents, agents.proposals.get(release), forecasts(), request.state.viewer)

    @router.put(
        "/proposals/{release}/approval",
        openapi_extra=takes(DecisionNote, examples.NOTE, required=False),
    )
    async def approve(request: Request, release: ReleaseId) -> ProposalView:
        """Approve: reserves the budget and signs. Who decided, and why, stays in this party's chain.

        Where the policy asks for two people, the first approval is noted and reserves nothing; the second, of another
        person, does.
        """
        return await decide(request, agents.approve, release)

    @router.put(
        "/proposals/{release}/rejection",
        openapi_extra=takes(DecisionNote, examples.NOTE, required=False),
    )
    async def reject(request: Request, release: ReleaseId) -> ProposalView:
        """Reject, or withdraw after an approval. The reason goes to the members; who decided stays in this chain."""
        return await decide(request, agents.reject, release)

    async def decide(request: Request, decision: Callable[[str, Ruling], Proposal], release: str) -> ProposalView:
        decided = await run_in_threadpool(decision, release, await _ruling(request))
        return await run_in_threadpool(proposal_view, agents, decided, forecasts(), request.state.viewer)

    @router.get("/jobs")
    def jobs(request: Request) -> JobList:
        """What has been done since the agent started; how far it is, in rows, is shown to the operator only."""
        return JobList(items=tuple(job_view(job, request.state.viewer) for job in agents.jobs.all()))

    @router.get("/jobs/{release}")
    def job(release: ReleaseId, request: Request) -> JobView:
        """Progress on one release."""
        found = agents.jobs.get(release)
        if found is None:
            raise NotFoundError("nothing has been done for this release", remedy="List the jobs: GET /v1/jobs")
        return job_view(found, request.state.viewer)

    return router


def _regression_routes(api: LocalApi) -> APIRouter:
    router, agents = APIRouter(), api.agents

    def regressions_of() -> "Regressions":
        from commingle.party_agent.regression.service import Regressions  # noqa: PLC0415 - loads scipy: only who asks waits

        return Regressions(agents)

    @router.post(
        "/regressions",
        status_code=201,
        openapi_extra=takes(RegressionRequest, examples.REGRESSION),
    )
    async def regress(request: Request) -> RegressionView:
        """Pay for, compute and sign a regression. The same request again is the same regression and costs nothing."""
        wanted = await document(request, RegressionRequest)
        return regression_view(await run_in_threadpool(regressions_of().ask, wanted))

    @router.get("/regressions")
    def regressions() -> RegressionList:
        """Every regression that was paid for."""
        return RegressionList(items=tuple(regression_line(regression) for regression in regressions_of().all()))

    @router.get("/regressions/{regression}")
    def regression(regression: _Regression) -> RegressionView:
        """One of them with its signed document."""
        return regression_view(regressions_of().get(regression))

    return router


async def _ruling(request: Request) -> Ruling:
    """Who decides: whom the token was made for, or whom the body names, beside the token."""
    given = decode(DecisionNote, await read_body(request) or b"{}")
    if request.state.operator:
        name = given.by or "the operator"
        return Ruling(by=name, why=given.why, person=name)
    person, token = request.state.person, printable(request.state.token)[:50]
    if person and given.by not in {"", person}:
        raise ScopeError(f"this token is {person}'s, and nobody else decides with it", remedy="Leave `by` out.")
    name = given.by[:120]
    by = f"{name or person} (token {token})" if name or person else f"token {token}"
    return Ruling(by=by, why=given.why, token=request.state.token, person=person)
