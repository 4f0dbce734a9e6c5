"""Endpoints of an exchange: the deal, masks passed on, countersignatures."""

from base64 import b64encode
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.responses import StreamingResponse

from commingle.coordinator.coordinator import Coordinator
from commingle.coordinator.dealing import hand_of
from commingle.coordinator.exchanges import countersign, expect_mask, open_mask_body, store_mask
from commingle.coordinator.http.access import Gate
from commingle.coordinator.http.bodies import takes
from commingle.coordinator.http.published import pieces_of
from commingle.coordinator.http.releases import shown
from commingle.coordinator.http.views import HandView, ReleaseView
from commingle.shared.documents.dsse import Envelope, parse_envelope

OCTETS = "application/octet-stream"
_CONTENT: dict[str, Any] = {OCTETS: {"schema": {"type": "string", "format": "binary"}}}
_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": _CONTENT}}


def exchanges_router(coordinator: Coordinator, gate: Gate) -> APIRouter:
    """`/v1/releases/{id}/deal/{party}`, `/masks/{party}` and `/countersignatures/{party}`."""
    router = APIRouter(prefix="/v1/releases", tags=["exchanges"])

    @router.get("/{release}/deal/{party}", dependencies=[Depends(gate.party)])
    def show_hand(release: str, party: str) -> HandView:
        """The signed deal with a party's package, sealed to its round key; for that party only."""
        statement, package = hand_of(coordinator, release, party)
        return HandView(statement=statement, package=b64encode(package).decode())

    @router.get(
        "/{release}/masks/{party}",
        response_class=Response,
        responses={200: {"content": _CONTENT}},
        dependencies=[Depends(gate.member)],
    )
    def fetch_mask(release: str, party: str) -> Response:
        """A party's masked rows, encrypted for the parties of the release; for these only."""
        return StreamingResponse(
            pieces_of(open_mask_body(coordinator, release, party)),
            media_type=OCTETS,
            headers={"Cache-Control": "no-store"},
        )

    @router.put("/{release}/countersignatures/{party}", status_code=201, openapi_extra=takes(Envelope))
    def put_countersignature(
        release: str, party: str, body: Annotated[bytes, Depends(gate.party_body)], response: Response
    ) -> ReleaseView:
        """That a party has checked every mask: a signed document of kind `countersignature`."""
        new = countersign(coordinator, release, party, parse_envelope(body))
        response.status_code = 201 if new else 200
        return shown(coordinator, release)

    _add_upload(router, coordinator, gate)
    return router


def _add_upload(router: APIRouter, coordinator: Coordinator, gate: Gate) -> None:
    @router.put("/{release}/masks/{party}", status_code=201, openapi_extra=_BODY)
    async def upload_mask(
        release: str,
        party: str,
        request: Request,
        response: Response,
        commingle_mask: Annotated[str, Header(description="Envelope of the MaskStatement, JSON on one line")],
    ) -> Envelope:
        """A party's masked rows, encrypted for the parties of the release; the signed statement is in the header."""
        new, _ = await gate.upload(
            request,
            party,
            expect=lambda: expect_mask(coordinator, release, party, parse_envelope(commingle_mask.encode())),
            store=partial(store_mask, coordinator),
        )
        response.status_code = 201 if new else 200
        return parse_envelope(commingle_mask.encode())
