"""Endpoints about releases: propose, list, decide."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from commingle.coordinator.coordinator import Coordinator, require_release
from commingle.coordinator.decisions import approve, reject
from commingle.coordinator.http.access import Gate
from commingle.coordinator.http.bodies import takes
from commingle.coordinator.http.cursor import decode_cursor, encode_cursor
from commingle.coordinator.http.queries import ReleasesQuery
from commingle.coordinator.http.views import ReleasePage, ReleaseView, release_view, summary_view
from commingle.coordinator.proposals import propose
from commingle.coordinator.publisher import Publisher
from commingle.shared.documents.dsse import Envelope, parse_envelope
from commingle.shared.documents.model import decode
from commingle.shared.documents.statements import ApprovalRequest


def releases_router(coordinator: Coordinator, gate: Gate, publisher: Publisher) -> APIRouter:
    """`/v1/releases`, approvals and rejections."""
    router = APIRouter(prefix="/v1/releases", tags=["releases"])

    @router.post("", status_code=201, openapi_extra=takes(Envelope))
    def propose_release(body: Annotated[bytes, Depends(gate.proposer_body)], response: Response) -> ReleaseView:
        """Propose a release: a signed document of kind `spec`, by this coordinator or a member."""
        release, new = propose(coordinator, parse_envelope(body))
        response.status_code = 201 if new else 200
        return release_view(release)

    @router.get("")
    def list_releases(query: Annotated[ReleasesQuery, Query()]) -> ReleasePage:
        """Releases, the newest first."""
        before = decode_cursor(query.cursor)
        with coordinator.store.read() as tx:
            page = tx.releases.page(state=query.state, before=before, limit=query.limit)
        return ReleasePage(items=tuple(map(summary_view, page.items)), next=encode_cursor(page.next))

    @router.get("/{release}")
    def show_release(release: str) -> ReleaseView:
        """One release with every signed document about it."""
        return shown(coordinator, release)

    @router.put("/{release}/approvals/{party}", status_code=201, openapi_extra=takes(ApprovalRequest))
    def approve_release(
        release: str, party: str, body: Annotated[bytes, Depends(gate.party_body)], response: Response
    ) -> ReleaseView:
        """A party's signed approval together with its alignment statement."""
        new = approve(coordinator, release, party, decode(ApprovalRequest, body))
        publisher.wake()  # the last one is what a deal waits for
        response.status_code = 201 if new else 200
        return shown(coordinator, release)

    @router.put("/{release}/rejections/{party}", status_code=201, openapi_extra=takes(Envelope))
    def reject_release(
        release: str, party: str, body: Annotated[bytes, Depends(gate.party_body)], response: Response
    ) -> ReleaseView:
        """A party's signed rejection, or its withdrawal after an approval."""
        new = reject(coordinator, release, party, parse_envelope(body))
        response.status_code = 201 if new else 200
        return shown(coordinator, release)

    return router


def shown(coordinator: Coordinator, release: str) -> ReleaseView:
    """A release as answered. Raises UnknownError."""
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    return release_view(found)  # with a forecast, which may take longer than a transaction should
