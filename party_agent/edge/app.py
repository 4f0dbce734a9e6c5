"""The agent's local HTTP API: on its Unix socket for the operator, and by scoped tokens for the party's own systems."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from errno import EACCES, EDQUOT, EFBIG, EIO, ENOSPC, EPERM, EROFS
from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal

import structlog
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import Field

from commingle.party_agent.edge.api import LocalApi, UnauthorisedError, document, guard, resolve_source, ruling_of
from commingle.party_agent.edge.loop import explained, facts, primary_code
from commingle.party_agent.edge.uploads import LARGEST_PIECE_BYTES, MOST_PIECES, CloseRequest, Uploads
from commingle.party_agent.edge.views import (
    MOST_AT_ONCE,
    export_audit,
    job_view,
    ledger_view,
    metrics_text,
    proposal_view,
    regression_line,
    regression_view,
    status_view,
)
from commingle.party_agent.errors import (
    AgentError,
    ConflictError,
    DataError,
    LedgerBusyError,
    LedgerError,
    NotFoundError,
    PieceError,
    SampleError,
    SourceError,
    SourceRefusedError,
    TooManyUploadsError,
    UnwitnessedError,
    WritingError,
)
from commingle.party_agent.home.datasets import Dataset, DatasetRequest
from commingle.party_agent.home.tokens import AgentScope
from commingle.party_agent.rounds.forecasts import Forecasts
from commingle.party_agent.rounds.proposals import DecisionNote, Proposal
from commingle.party_agent.wire.answers import (
    ARROW,
    CSV,
    EXAMPLES,
    JSON_LINES,
    DatasetList,
    DatasetView,
    Health,
    JobList,
    JobView,
    LedgerView,
    PieceView,
    ProposalList,
    ProposalView,
    ProposedView,
    RegressionList,
    RegressionView,
    StatusView,
    UploadView,
)
from commingle.party_agent.wire.owner_words import Viewer, sees_counts
from commingle.shared.documents.model import Digest, Name
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.documents.study import Study
from commingle.shared.errors import PrivacyError, ProtocolError
from commingle.shared.release.ledger_fold import Ruling
from commingle.shared.runtime.bodies import read_body
from commingle.shared.runtime.errors import (
    NoRoomError,
    RemoteError,
    ScopeError,
    SettingsError,
    TooLargeError,
    TruncatedError,
)
from commingle.shared.runtime.pages.site import Site, add_reference
from commingle.shared.runtime.problem import AGAIN, QueryParameters, describe, problem, service_app, status_of, takes

if TYPE_CHECKING:
    from commingle.party_agent.regression.service import Regressions

_Regression = Annotated[str, Path(description="Id of the regression, 64 hex digits.")]
_TO_BE_READ: dict[int | str, dict[str, Any]] = {202: {"description": "For a token: what it said, before a row is read"}}
DatasetName = Annotated[Name, Path(description="The data set that the rows are for.")]
UploadName = Annotated[
    Name,
    Path(description="What the caller calls this upload; the same name again is the same upload, so that every call "
    "can be repeated. Nobody else's uploads have names in common with it."),
]  # fmt: skip
Number = Annotated[int, Path(ge=1, le=MOST_PIECES, description="Which piece; sent again, it takes its own place.")]
_ROWS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": f"At most {LARGEST_PIECE_BYTES >> 20} MiB and a million rows, uncompressed.",
        "content": {
            CSV: {"schema": {"type": "string", "description": "UTF-8 with a header line."},
                  "example": EXAMPLES[CSV]},
            JSON_LINES: {"schema": {"type": "string", "description": "An object a line."},
                         "example": EXAMPLES[JSON_LINES]},
            ARROW: {"schema": {"type": "string", "format": "binary",
                               "description": "An IPC stream without dictionaries."}},
        },
    }
}  # fmt: skip


Consortium = Annotated[str | None, Query(description="Which consortium, if this member belongs to several.")]
ReleaseId = Annotated[str, Path(description="Id of the release, 64 hex digits.")]
_MEDIA_TYPES = {"manifest": "application/json", "moments": "application/json"}
_PARQUET = "application/vnd.apache.parquet"
_CELL_BYTES, _OVERHEAD_BYTES, _MOST_COLUMNS = 16, 64 << 20, 257
_FILES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file, byte for byte as it was signed",
        "content": {"application/json": {"schema": {}}, _PARQUET: {"schema": {"type": "string", "format": "binary"}}},
    }
}

STATUSES = {
    ScopeError: 403,
    SourceRefusedError: 403,
    NotFoundError: 404,
    ConflictError: 409,
    TooLargeError: 413,
    TruncatedError: 408,
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
    WritingError: 503,
    LedgerBusyError: 503,
    AgentError: 500,
    RemoteError: 502,
}
_SCOPES: dict[str, AgentScope] = {"GET": "read", "PUT": "decide", "POST": "register"}
_SPENDING: dict[str, AgentScope] = {**_SCOPES, "POST": "decide"}  # where a POST spends budget
_PUSHING: dict[str, AgentScope] = dict.fromkeys(("GET", "PUT", "POST", "DELETE"), "register")
_PROPOSING: dict[str, AgentScope] = {**_SCOPES, "POST": "propose"}
_NOT_READY: dict[int | str, dict[str, Any]] = {503: {"description": "The same with the code of what is wrong"}}
_LEDGER_SECONDS = 5
_OF_DISKS = frozenset({ENOSPC, EDQUOT, EFBIG, EIO, EROFS, EACCES, EPERM})
_MEND = "Free space or mend the disk, and try again."
_LET_GO = "End what holds HOME/ledger.sqlite, and try again."
_log = structlog.get_logger()


class LedgerQuery(QueryParameters):
    """Which charges."""

    release: Digest | None = Field(None, description="Id of a release: of the charges its own alone.")
    before: Digest | None = Field(None, description="`next` of the page with later ones.")
    limit: int = Field(MOST_AT_ONCE, ge=1, le=MOST_AT_ONCE, description="How many at most.")


class ProposalsQuery(QueryParameters):
    """Which proposals."""

    waiting: bool | None = Field(None, description="Those that wait for a decision, or the others; without it all.")
    after: Digest | None = Field(None, description="`next` of the page before.")
    limit: int = Field(MOST_AT_ONCE, ge=1, le=MOST_AT_ONCE, description="How many at most.")


def create_app(api: LocalApi) -> FastAPI:
    app = service_app("Commingle party agent", {**STATUSES, UnauthorisedError: 401})
    for kind in (sqlite3.OperationalError, OSError):
        app.add_exception_handler(kind, _on_disk)
    add_reference(app, Site(None, name=app.title, pages=(("/docs", "Interface"),)))
    _add_health(app, api)
    for routes, scopes in (
        (_data_routes, _SCOPES),
        (_release_routes, _SCOPES),
        (_regression_routes, _SPENDING),
        (_upload_routes, _PUSHING),
        (_propose_routes, _PROPOSING),
    ):
        app.include_router(routes(api), prefix="/v1", dependencies=[Depends(guard(api, scopes))])
    describe(app, (DatasetRequest, DecisionNote, RegressionRequest, Study, CloseRequest))
    return app


async def _on_disk(request: Request, error: Exception) -> Response:
    if isinstance(error, sqlite3.Error):
        faulty = primary_code(error) == sqlite3.SQLITE_ERROR  # in the SQL itself, as a full or locked disk is not
    else:
        faulty = getattr(error, "errno", None) not in _OF_DISKS
    if faulty:
        raise error
    told = explained(error)
    _log.error("request failed", path=request.url.path, **facts(told))
    remedy = _MEND if isinstance(told, WritingError) else _LET_GO  # nothing but the loop tries again by itself
    return problem(status_of(told, STATUSES), told.code, str(told), remedy)


def _add_health(app: FastAPI, api: LocalApi) -> None:
    @app.get("/healthz")
    async def healthz() -> Health:
        """Whether the process answers."""
        return Health(status="ok")

    @app.get("/readyz", responses=_NOT_READY)
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

    @app.get("/metrics", response_class=Response, dependencies=[Depends(guard(api, _SCOPES))])
    def metrics() -> Response:
        """Prometheus metrics: budget, charges, proposals that wait, touch with the coordinators."""
        return Response(metrics_text(api.agents, api.loops), media_type=CONTENT_TYPE_LATEST)


def _upload_routes(api: LocalApi) -> APIRouter:
    router, agents = APIRouter(prefix="/datasets/{name}/uploads/{upload}", tags=["rows"]), api.agents

    def of(request: Request) -> Uploads:
        owner = "" if request.state.operator else request.state.digest
        return Uploads(agents.home, agents.datasets, agents.clock, owner)

    @router.put("", status_code=201, responses=AGAIN)
    def begin(name: DatasetName, upload: UploadName, request: Request, response: Response) -> UploadView:
        """Begin to push rows of a data set that its owner declared so. Repeated it answers 200 and changes nothing."""
        uploads = of(request)
        response.status_code = 201 if uploads.begin(name, upload) else 200
        return uploads.view(name, upload)

    @router.put("/pieces/{number}", openapi_extra=_ROWS)
    async def put(name: DatasetName, upload: UploadName, number: Number, request: Request) -> PieceView:
        """Send some rows. They are held against the schema: a refusal names row and column, never a value."""
        uploads, kind = of(request), request.headers.get("content-type", "")
        body = await read_body(request, LARGEST_PIECE_BYTES)
        return await run_in_threadpool(uploads.put, name, upload, number, body, kind)

    @router.get("")
    def view(name: DatasetName, upload: UploadName, request: Request) -> UploadView:
        """Which pieces are in, after an interruption."""
        return of(request).view(name, upload)

    @router.delete("", status_code=204)
    def drop(name: DatasetName, upload: UploadName, request: Request) -> None:
        """Forget an upload that was not closed, and its rows."""
        of(request).drop(name, upload)

    @router.post("/close", openapi_extra=takes(CloseRequest, EXAMPLES))
    async def close(name: DatasetName, upload: UploadName, request: Request) -> DatasetView:
        """Read the rows of all pieces; releases that are approved from then on are made of them."""
        asked = await document(request, CloseRequest)
        made = await api.readings.run(of(request).close, name, upload, asked)
        return made.view(counts=sees_counts(Viewer.SENDER))

    return router


def _data_routes(api: LocalApi) -> APIRouter:
    router, agents = APIRouter(), api.agents

    def shown(dataset: Dataset, request: Request) -> DatasetView:
        return dataset.view(counts=sees_counts(request.state.viewer))

    @router.get("/status")
    def status() -> StatusView:
        """Who this agent is and how it is."""
        return status_view(agents, api.loops)

    @router.get("/datasets")
    def datasets(request: Request) -> DatasetList:
        """All data sets that the owner has declared; counts are shown to the operator only."""
        return DatasetList(items=tuple(shown(dataset, request) for dataset in agents.datasets.all()))

    @router.post("/datasets", status_code=201, openapi_extra=takes(DatasetRequest, EXAMPLES))
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
        return shown(await api.readings.run(partial(agents.datasets.register, wanted, replace=replace)), request)

    @router.post("/datasets/{name}/reading", responses=_TO_BE_READ)
    async def read_again(
        name: DatasetName, request: Request, response: Response, later: BackgroundTasks
    ) -> DatasetView:
        """Read a declared data set again. A token is answered before, and learns nothing of the rows.

        Releases that were approved go on with the rows that were approved.
        """
        if request.state.operator:
            return shown(await api.readings.run(partial(agents.datasets.read_again, name, strict=True)), request)
        declared = await run_in_threadpool(agents.datasets.readable, name)
        later.add_task(api.readings.run_newest, name, agents.datasets.try_again, name)
        response.status_code = HTTPStatus.ACCEPTED
        return shown(Dataset(**dict(declared)), request)

    @router.get("/ledger")
    def ledger(query: Annotated[LedgerQuery, Query()]) -> LedgerView:
        """Remaining budget, and charges, a page at a time from the newest on."""
        return ledger_view(agents.ledger, query.release, before=query.before, most=query.limit)

    @router.get("/audit")
    def audit() -> SignedDocument:
        """The ledger's whole chain with everything this member has signed, signed for an auditor."""
        return export_audit(agents)

    return router


def _regression_routes(api: LocalApi) -> APIRouter:
    router, agents = APIRouter(), api.agents

    def regressions_of() -> "Regressions":
        from commingle.party_agent.regression.service import Regressions  # noqa: PLC0415 - loads scipy: only who asks waits

        return Regressions(agents)

    @router.post("/regressions", status_code=201, openapi_extra=takes(RegressionRequest, EXAMPLES))
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


def _release_routes(api: LocalApi) -> APIRouter:
    router, agents = APIRouter(), api.agents

    def forecasts() -> Forecasts:
        return Forecasts(agents.store, asked_here=api.loops is None)

    @router.get("/proposals")
    def proposals(request: Request, query: Annotated[ProposalsQuery, Query()]) -> ProposalList:
        """What this member has been asked, a page at a time; how many cells are missing the operator alone is shown."""
        found = agents.proposals.page(waiting=query.waiting, after=query.after, limit=query.limit + 1)
        notes, viewer = agents.ledger.notes(), request.state.viewer
        items = tuple(proposal_view(agents, one, forecasts(), viewer, notes) for one in found[: query.limit])
        return ProposalList(items=items, next=items[-1].id if len(found) > query.limit else None)

    @router.get("/proposals/{release}")
    def proposal(release: ReleaseId, request: Request) -> ProposalView:
        """One proposal."""
        return proposal_view(agents, agents.proposals.get(release), forecasts(), request.state.viewer)

    @router.put("/proposals/{release}/approval", openapi_extra=takes(DecisionNote, EXAMPLES, required=False))
    async def approve(request: Request, release: ReleaseId) -> ProposalView:
        """Approve: reserves the budget and signs. Who decided, and why, stays in this member's chain.

        Where the policy asks for two people, the first approval is noted and reserves nothing; the second, of another
        person, does.
        """
        return await decide(request, agents.approve, release)

    @router.put("/proposals/{release}/rejection", openapi_extra=takes(DecisionNote, EXAMPLES, required=False))
    async def reject(request: Request, release: ReleaseId) -> ProposalView:
        """Reject, or withdraw after an approval. The reason goes to the members; who decided stays in this chain."""
        return await decide(request, agents.reject, release)

    async def decide(request: Request, decision: Callable[[str, Ruling], Proposal], release: str) -> ProposalView:
        decided = await run_in_threadpool(decision, release, await ruling_of(request))
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


def _propose_routes(api: LocalApi) -> APIRouter:
    router, agents = APIRouter(tags=["releases"]), api.agents

    @router.post("/proposals", status_code=201, openapi_extra=takes(Study, EXAMPLES))
    async def propose(
        request: Request,
        consortium: Consortium = None,
        idempotency_key: Annotated[
            str | None,
            Header(
                max_length=200,
                description="The same for the same proposal: repeated, the call proposes nothing new. Kept for 30 "
                "days.",
            ),
        ] = None,
    ) -> ProposedView:
        """Propose a release in this member's name, signed with its key. Every member that it names decides on it."""
        owner = "" if request.state.operator else request.state.digest
        study = await document(request, Study)
        return await run_in_threadpool(agents.propose, study, owner=owner, key=idempotency_key, consortium=consortium)

    @router.post("/studies/answer", openapi_extra=takes(Study, EXAMPLES))
    async def answer(request: Request, consortium: Consortium = None) -> ProposalView:
        """Say what this member would answer to a study: as a proposal that nobody is sent. For the operator alone."""
        if not request.state.operator:
            raise ScopeError(
                "only the operator asks what this member would answer",
                remedy="On the agent's machine: commingle study check --home. A token can propose the study.",
            )
        study = await document(request, Study)
        asked = await run_in_threadpool(agents.tried, study, consortium=consortium)
        return await run_in_threadpool(proposal_view, agents, asked, None, request.state.viewer)

    @router.get("/releases/{release}/{file}", response_class=StreamingResponse, responses=_FILES)
    def download(
        release: ReleaseId,
        file: Annotated[
            Literal["manifest", "matrix", "moments"],
            Path(description="Which of the three files of a published release."),
        ],
    ) -> StreamingResponse:
        """A file of a release this member was asked for, from its coordinator. `commingle verify` checks all three."""
        spec = agents.proposals.get(release).spec
        largest = _OVERHEAD_BYTES + _CELL_BYTES * _MOST_COLUMNS * max(spec.k or 0, spec.n)
        pieces = agents.of(release).client.published(release, file, largest_bytes=largest)
        return StreamingResponse(_begun(pieces), media_type=_MEDIA_TYPES.get(file, _PARQUET))

    return router


def _begun(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """What can be refused is refused before the answer's head is sent."""
    return chain([next(pieces, b"")], pieces)
