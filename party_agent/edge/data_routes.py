"""Endpoints for a party's own data: its tables, rows that are pushed, regressions, ledger and history."""

import os
import pathlib
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from commingle.party_agent.data.datasets import Dataset, DatasetRequest
from commingle.party_agent.edge.api import (
    CLOSE,
    CSV_ROWS,
    DATASET,
    JSON_ROWS,
    REGRESSION,
    LocalApi,
    document,
    read_body,
)
from commingle.party_agent.edge.uploads import LARGEST_PIECE_BYTES, MOST_PIECES, CloseRequest, Uploads
from commingle.party_agent.edge.views import MOST_AT_ONCE, export_audit, ledger_view, status_view
from commingle.party_agent.errors import SourceError, SourceRefusedError
from commingle.party_agent.home.home import Home
from commingle.party_agent.ledger.requests import regression_line, regression_view
from commingle.party_agent.private.parquet_store import PartitionedSource
from commingle.party_agent.private.sources import PushedSource, Source
from commingle.party_agent.private.sql_store import SqlSource, database_file
from commingle.party_agent.rounds.jobs import Viewer, sees_counts
from commingle.party_agent.wire.answers import (
    ARROW,
    CSV,
    JSON_LINES,
    DatasetList,
    DatasetView,
    LedgerView,
    PieceView,
    RegressionList,
    RegressionView,
    StatusView,
    UploadView,
)
from commingle.shared.documents.model import Digest, Name
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.runtime.errors import ScopeError
from commingle.shared.runtime.problem import AGAIN, QueryParameters, takes

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
                  "example": CSV_ROWS},
            JSON_LINES: {"schema": {"type": "string", "description": "An object a line."},
                         "example": JSON_ROWS},
            ARROW: {"schema": {"type": "string", "format": "binary",
                               "description": "An IPC stream without dictionaries."}},
        },
    }
}  # fmt: skip


class LedgerQuery(QueryParameters):
    """Which charges."""

    release: Digest | None = Field(None, description="Id of a release: of the charges its own alone.")
    before: Digest | None = Field(None, description="`next` of the page with later ones.")
    limit: int = Field(MOST_AT_ONCE, ge=1, le=MOST_AT_ONCE, description="How many at most.")


def upload_routes(api: LocalApi) -> APIRouter:
    """`/datasets/{name}/uploads/{upload}`; what was pushed is read among the readings of other tables."""
    router, agents = APIRouter(prefix="/datasets/{name}/uploads/{upload}", tags=["rows"]), api.agents

    def of(request: Request) -> Uploads:
        owner = "" if request.state.operator else request.state.token
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

    @router.post("/close", openapi_extra=takes(CloseRequest, CLOSE))
    async def close(name: DatasetName, upload: UploadName, request: Request) -> DatasetView:
        """Read the rows of all pieces; releases that are approved from then on are made of them."""
        asked = await document(request, CloseRequest)
        made = await api.readings.run(of(request).close, name, upload, asked)
        return made.view(counts=sees_counts(Viewer.SENDER))

    return router


def data_routes(api: LocalApi) -> APIRouter:
    """`/status`, `/datasets`, `/ledger` and `/audit`."""
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

    @router.post("/datasets", status_code=201, openapi_extra=takes(DatasetRequest, DATASET))
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


def regression_routes(api: LocalApi) -> APIRouter:
    """`/regressions`."""
    router, agents = APIRouter(), api.agents

    def regressions_of() -> "Regressions":
        from commingle.party_agent.regression.service import Regressions  # noqa: PLC0415 - loads scipy: only who asks waits

        return Regressions(agents)

    @router.post("/regressions", status_code=201, openapi_extra=takes(RegressionRequest, REGRESSION))
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


def resolve_source(home: Home, source: Source) -> Source:
    """The source that may be declared: a file's path without symbolic links, so that none is pointed elsewhere later.

    Tables may lie anywhere but in the agent's own home, whose ledger and keys are nobody's rows.
    """
    if isinstance(source, PushedSource) or (isinstance(source, PartitionedSource) and source.is_remote):
        return source
    if not isinstance(source, SqlSource):
        source = source.model_copy(update={"path": str(_resolved(source.path))})
    name = database_file(source) if isinstance(source, SqlSource) else source.path
    if name is not None and _belongs_to(home, _resolved(name)):
        raise SourceRefusedError(
            "a file in the agent's own home is no source", remedy="Register a table that is kept elsewhere."
        )
    return source


def _resolved(path: str) -> pathlib.Path:
    try:
        return pathlib.Path(os.path.realpath(path))
    except ValueError:  # a NUL, or what is no text in the file system's encoding
        raise SourceError("the path of the source cannot be one", remedy="Check the path.") from None


def _belongs_to(home: Home, path: pathlib.Path) -> bool:
    if path.is_relative_to(home.root.resolve()):
        return True
    wanted = _inode(path)  # a hard link or a second mount is another name of a file
    own = (_inode(pathlib.Path(folder, name)) for folder, _, names in os.walk(home.root) for name in names)
    return wanted is not None and wanted in own


def _inode(path: pathlib.Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
