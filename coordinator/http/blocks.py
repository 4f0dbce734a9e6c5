"""The endpoint that takes blocks."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from starlette.concurrency import run_in_threadpool

from commingle.coordinator.coordinator import Coordinator, require_release
from commingle.coordinator.http.access import Gate
from commingle.coordinator.http.views import ReleaseSummary, summary_view
from commingle.coordinator.metrics import Metrics
from commingle.coordinator.publisher import Publisher
from commingle.coordinator.uploads import expect_block, store_block
from commingle.shared.documents.dsse import parse_envelope
from commingle.shared.release.block import ARROW_STREAM

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

    @router.put("/{release}/blocks/{party}", status_code=201, openapi_extra=_BODY)
    async def upload_block(
        release: str,
        party: str,
        request: Request,
        response: Response,
        commingle_block: Annotated[str, Header(description="Envelope of the BlockStatement, JSON on one line")],
    ) -> ReleaseSummary:
        """A party's privatised block: an Arrow IPC stream, its signed statement in the header."""
        new, size = await gate.upload(
            request,
            party,
            expect=lambda: expect_block(coordinator, release, party, parse_envelope(commingle_block.encode())),
            store=partial(store_block, coordinator),
        )
        if new:
            metrics.uploaded.inc(size)
            publisher.wake()
        response.status_code = 201 if new else 200
        return await run_in_threadpool(summary, release)

    return router
