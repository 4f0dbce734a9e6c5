"""Endpoints by which a party's own system pushes rows into a data set: begin, pieces, close."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.concurrency import run_in_threadpool

from commingle.party_agent.edge import examples
from commingle.party_agent.edge.bodies import document, read_body
from commingle.party_agent.edge.own_thread import OwnThread
from commingle.party_agent.edge.uploads import LARGEST_PIECE_BYTES, MOST_PIECES, CloseRequest, Uploads
from commingle.party_agent.rounds.agents import Agents
from commingle.party_agent.rounds.counts import Viewer, sees_counts
from commingle.party_agent.wire.answers import ARROW, CSV, JSON_LINES, DatasetView, PieceView, UploadView
from commingle.shared.documents.model import Name
from commingle.shared.runtime.problem import AGAIN, takes

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
                  "example": examples.CSV_ROWS},
            JSON_LINES: {"schema": {"type": "string", "description": "An object a line."},
                         "example": examples.JSON_ROWS},
            ARROW: {"schema": {"type": "string", "format": "binary",
                               "description": "An IPC stream without dictionaries."}},
        },
    }
}  # fmt: skip


def uploads_router(agents: Agents, readings: OwnThread) -> APIRouter:
    """`/datasets/{name}/uploads/{upload}`; what was pushed is read among the `readings` of other tables."""
    router = APIRouter(prefix="/datasets/{name}/uploads/{upload}", tags=["rows"])

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

    @router.post(
        "/close",
        openapi_extra=takes(CloseRequest, examples.CLOSE),
    )
    async def close(name: DatasetName, upload: UploadName, request: Request) -> DatasetView:
        """Read the rows of all pieces; releases that are approved from then on are made of them."""
        asked = await document(request, CloseRequest)
        made = await readings.run(of(request).close, name, upload, asked)
        return made.view(counts=sees_counts(Viewer.SENDER))

    return router
