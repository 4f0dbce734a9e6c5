"""Endpoints of a party's contribution to a release: the exchange, where there is one, and its block."""

from base64 import b64encode
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from commingle.coordinator.coordinator import Coordinator, require_release
from commingle.coordinator.dealing import sealed_package
from commingle.coordinator.exchanges import countersign, expect_mask, open_mask_body, store_mask
from commingle.coordinator.http.access import Authenticator
from commingle.coordinator.http.bodies import pieces_of, takes
from commingle.coordinator.http.operations import CoordinatorMetrics
from commingle.coordinator.http.releases import release_answer
from commingle.coordinator.http.views import release_summary
from commingle.coordinator.publisher import Publisher
from commingle.coordinator.uploads import expect_block, store_block
from commingle.shared.documents.dsse import Envelope, parse_envelope
from commingle.shared.release.block import ARROW_STREAM
from commingle.shared.wire import ReleaseDetails, ReleaseSummary, SealedPackage

_OCTETS = "application/octet-stream"


def _binary(media_type: str) -> dict[str, Any]:
    return {media_type: {"schema": {"type": "string", "format": "binary"}}}


def _takes_binary(media_type: str) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": _binary(media_type)}}


def exchanges_router(coordinator: Coordinator, auth: Authenticator) -> APIRouter:
    """`/v1/releases/{id}/deal/{party}`, `/masks/{party}` and `/countersignatures/{party}`."""
    router = APIRouter(prefix="/v1/releases", tags=["exchanges"])

    @router.get("/{release}/deal/{party}", dependencies=[Depends(auth.party)])
    def show_package(release: str, party: str) -> SealedPackage:
        """The signed deal with a party's package, sealed to its round key; for that party only."""
        statement, package = sealed_package(coordinator, release, party)
        return SealedPackage(statement=statement, package=b64encode(package))

    @router.get(
        "/{release}/masks/{party}",
        response_class=Response,
        responses={200: {"content": _binary(_OCTETS)}},
        dependencies=[Depends(auth.member)],
    )
    def fetch_mask(release: str, party: str) -> Response:
        """A party's masked rows, encrypted for the parties of the release; for these only."""
        return StreamingResponse(
            pieces_of(open_mask_body(coordinator, release, party)),
            media_type=_OCTETS,
            headers={"Cache-Control": "no-store"},
        )

    @router.put("/{release}/countersignatures/{party}", status_code=201, openapi_extra=takes(Envelope))
    def put_countersignature(
        release: str, party: str, body: Annotated[bytes, Depends(auth.party_body)], response: Response
    ) -> ReleaseDetails:
        """That a party has checked every mask: a signed document of kind `countersignature`."""
        new = countersign(coordinator, release, party, parse_envelope(body))
        response.status_code = 201 if new else 200
        return release_answer(coordinator, release)

    _add_mask_upload(router, coordinator, auth)
    return router


def _add_mask_upload(router: APIRouter, coordinator: Coordinator, auth: Authenticator) -> None:
    @router.put("/{release}/masks/{party}", status_code=201, openapi_extra=_takes_binary(_OCTETS))
    async def upload_mask(
        release: str,
        party: str,
        request: Request,
        response: Response,
        commingle_mask: Annotated[str, Header(description="Envelope of the MaskStatement, JSON on one line")],
    ) -> Envelope:
        """A party's masked rows, encrypted for the parties of the release; the signed statement is in the header."""
        new, _ = await auth.upload(
            request,
            party,
            expect=lambda: expect_mask(coordinator, release, party, parse_envelope(commingle_mask.encode())),
            store=partial(store_mask, coordinator),
        )
        response.status_code = 201 if new else 200
        return parse_envelope(commingle_mask.encode())


def blocks_router(
    coordinator: Coordinator, auth: Authenticator, publisher: Publisher, metrics: CoordinatorMetrics
) -> APIRouter:
    """`PUT /v1/releases/{id}/blocks/{party}`."""
    router = APIRouter(prefix="/v1/releases", tags=["releases"])

    def summary(release: str) -> ReleaseSummary:
        with coordinator.store.read() as tx:
            return release_summary(require_release(tx, release).summary)

    @router.put("/{release}/blocks/{party}", status_code=201, openapi_extra=_takes_binary(ARROW_STREAM))
    async def upload_block(
        release: str,
        party: str,
        request: Request,
        response: Response,
        commingle_block: Annotated[str, Header(description="Envelope of the BlockStatement, JSON on one line")],
    ) -> ReleaseSummary:
        """A party's privatised block: an Arrow IPC stream, its signed statement in the header."""
        new, size = await auth.upload(
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
