"""The endpoint that takes blocks."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from starlette.concurrency import run_in_threadpool

from coordinator.coordinator import Coordinator, require_release
from coordinator.errors import StorageError
from coordinator.http.access import Gate
from coordinator.http.bodies import Body
from coordinator.http.views import ReleaseSummary, summary_view
from coordinator.metrics import Metrics
from coordinator.publisher import Publisher
from coordinator.uploads import Expected, expect_block, store_block
from shared.errors import CommingleError
from shared.protocol.block import ARROW_STREAM
from shared.protocol.dsse import parse_envelope

_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}},
    }
}


def blocks_router(coordinator: Coordinator, gate: Gate, publisher: Publisher, metrics: Metrics) -> APIRouter:
    """`PUT /v1/releases/{id}/blocks/{party}`."""
    router = APIRouter(prefix="/v1/releases", tags=["releases"])

    def summary(release: str) -> ReleaseSummary:
        with coordinator.store.read() as tx:
            return summary_view(require_release(tx, release).summary)

    async def receive(expected: Expected, body: Body) -> bool:
        try:
            with await run_in_threadpool(coordinator.blobs.scratch) as file:
                await body.copy(file, limit=expected.limit)
                size = file.tell()
                new = await run_in_threadpool(store_block, coordinator, expected, file)
        except OSError:
            raise StorageError(
                "the upload cannot be kept (no space?)", remedy="Nothing was recorded; send the block again later."
            ) from None
        if new:
            metrics.uploaded.inc(size)
            publisher.wake()
        return new

    @router.put("/{release}/blocks/{party}", status_code=201, openapi_extra=_BODY)
    async def upload_block(
        release: str,
        party: str,
        request: Request,
        response: Response,
        commingle_block: Annotated[str, Header(description="Envelope of the BlockStatement, JSON on one line")],
    ) -> ReleaseSummary:
        """A party's privatised block: an Arrow IPC stream, its signed statement in the header."""
        body = Body(request)
        try:
            await gate.upload(request, party, body)
            envelope = parse_envelope(commingle_block.encode())
            expected = await run_in_threadpool(expect_block, coordinator, release, party, envelope)
            new = await receive(expected, body)
        except CommingleError:
            await body.drain()
            raise
        response.status_code = 201 if new else 200
        return await run_in_threadpool(summary, release)

    return router
