"""Endpoints about the coordinator and its members."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from coordinator.coordinator import Coordinator
from coordinator.http.bodies import json_body, takes
from coordinator.http.cursor import decode_cursor, encode_cursor
from coordinator.http.queries import PageQuery
from coordinator.http.views import CoordinatorView, PartyPage, PartyView, party_view
from coordinator.members import enrol, require_party
from shared import __version__
from shared.protocol.documents import decode
from shared.protocol.statements import SignedDocument


def members_router(coordinator: Coordinator) -> APIRouter:
    """`/v1/coordinator` and `/v1/parties`."""
    router = APIRouter(tags=["members"])

    @router.get("/v1/coordinator")
    def show_coordinator() -> CoordinatorView:
        """Who this coordinator is. Compare the fingerprint over another channel before relying on it."""
        return CoordinatorView(
            name=coordinator.name,
            signing_key=coordinator.key.verifying_key.raw.hex(),
            fingerprint=coordinator.key.fingerprint,
            software=f"commingle {__version__}",
        )

    @router.post("/v1/parties", status_code=201, openapi_extra=takes(SignedDocument))
    def enrol_party(body: Annotated[bytes, Depends(json_body)], response: Response) -> PartyView:
        """Enrol with a one-time invite: a signed document of kind `enrolment`."""
        party, new = enrol(coordinator, decode(SignedDocument, body))
        response.status_code = 201 if new else 200
        return party_view(party)

    @router.get("/v1/parties")
    def list_parties(query: Annotated[PageQuery, Query()]) -> PartyPage:
        """Members and their keys."""
        with coordinator.store.read() as tx:
            page = tx.members.page(after=decode_cursor(query.cursor), limit=query.limit)
        return PartyPage(items=tuple(map(party_view, page.items)), next=encode_cursor(page.next))

    @router.get("/v1/parties/{party}")
    def show_party(party: str) -> PartyView:
        """One member and its keys."""
        with coordinator.store.read() as tx:
            return party_view(require_party(tx, party))

    return router
