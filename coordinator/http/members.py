"""Endpoints about the coordinator and its members."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from commingle.coordinator.coordinator import Coordinator, export_member_log
from commingle.coordinator.http.access import Authenticator
from commingle.coordinator.http.views import AfterQuery, HeadsQuery, PageQuery, decode_cursor, encode_cursor
from commingle.coordinator.members import (
    depart,
    enrol,
    newest_heads,
    publish_identity,
    relay,
    require_party,
    rotate,
    witness,
)
from commingle.shared import __version__
from commingle.shared.documents.dsse import Envelope, parse_envelope
from commingle.shared.documents.model import decode
from commingle.shared.documents.statements import RotationRequest, SignedDocument
from commingle.shared.runtime.problem import AGAIN, takes
from commingle.shared.wire import (
    CoordinatorIdentity,
    LedgerHeads,
    PartyKeys,
    PartyPage,
    PartyRecord,
    SealedLinkageKey,
    SealedLinkageKeys,
)


def members_router(coordinator: Coordinator, auth: Authenticator) -> APIRouter:
    router = APIRouter(tags=["members"])

    @router.get("/v1/coordinator")
    def show_coordinator() -> CoordinatorIdentity:
        """Who this coordinator is. Compare the fingerprint over another channel before relying on it."""
        return CoordinatorIdentity(
            name=coordinator.name,
            signing_key=coordinator.key.verifying_key.raw.hex(),
            fingerprint=coordinator.key.fingerprint,
            software=f"commingle {__version__}",
        )

    @router.post("/v1/parties", status_code=201, responses=AGAIN, openapi_extra=takes(SignedDocument))
    def enrol_party(body: Annotated[bytes, Depends(auth.unsigned_body)], response: Response) -> PartyRecord:
        """Enrol with a one-time invite: a signed document of kind `enrolment`."""
        party, new = enrol(coordinator, decode(SignedDocument, body))
        response.status_code = 201 if new else 200
        return party

    @router.get("/v1/parties", dependencies=[Depends(auth.reader)])
    def list_parties(query: Annotated[PageQuery, Query()]) -> PartyPage:
        """Members and their keys."""
        with coordinator.store.read() as tx:
            page = tx.members.page(after=decode_cursor(query.cursor), limit=query.limit)
        return PartyPage(items=page.items, next=encode_cursor(page.next))

    @router.get("/v1/parties/{party}", dependencies=[Depends(auth.reader)])
    def show_party(party: str) -> PartyRecord:
        """One member and its keys."""
        with coordinator.store.read() as tx:
            return require_party(tx, party)

    @router.get("/v1/parties/{party}/keys", dependencies=[Depends(auth.reader)])
    def list_keys(party: str) -> PartyKeys:
        """A member's signing keys, the oldest first, each with the signed rotation that brought it."""
        with coordinator.store.read() as tx:
            return PartyKeys(items=tx.members.keys(require_party(tx, party).name))

    @router.post("/v1/parties/{party}/keys", status_code=201, responses=AGAIN, openapi_extra=takes(RotationRequest))
    def rotate_key(party: str, body: Annotated[bytes, Depends(auth.party_body)], response: Response) -> PartyRecord:
        """Replace a member's signing key; open releases that name the old one end."""
        member, new = rotate(coordinator, party, decode(RotationRequest, body))
        response.status_code = 201 if new else 200
        return member

    @router.put("/v1/parties/{party}/departure", status_code=201, openapi_extra=takes(Envelope))
    def leave(party: str, body: Annotated[bytes, Depends(auth.party_body)]) -> PartyRecord:
        """End the own membership: a signed document of kind `departure`. Open releases of the member end."""
        return depart(coordinator, party, parse_envelope(body))

    @router.get("/v1/member-log", dependencies=[Depends(auth.reader)])
    def show_log() -> SignedDocument:
        """Every key every member has had, as one signed chain: a signed document of kind `member-log`."""
        return export_member_log(coordinator)

    _add_linkage(router, coordinator, auth)
    _add_heads(router, coordinator, auth)
    return router


def _add_heads(router: APIRouter, coordinator: Coordinator, auth: Authenticator) -> None:
    @router.get("/v1/ledger-heads", dependencies=[Depends(auth.enrolled)])
    def list_newest_heads() -> LedgerHeads:
        """How far each member's ledger has come: its newest signed statement. For members only."""
        return LedgerHeads(items=newest_heads(coordinator))

    @router.get("/v1/parties/{party}/ledger-heads", dependencies=[Depends(auth.enrolled)])
    def list_heads(party: str, query: Annotated[HeadsQuery, Query()]) -> LedgerHeads:
        """What a member has stated of its ledger, the newest first. For members only."""
        with coordinator.store.read() as tx:
            name = require_party(tx, party).name
            return LedgerHeads(items=tx.heads.history(name, below=query.below, limit=query.limit))

    @router.put(
        "/v1/parties/{party}/ledger-heads", status_code=201, responses=AGAIN, openapi_extra=takes(SignedDocument)
    )
    def put_head(
        party: str,
        query: Annotated[AfterQuery, Query()],
        body: Annotated[bytes, Depends(auth.enrolled_body)],
        response: Response,
    ) -> SignedDocument:
        """State how far the ledger has come: signed by its member as kind `ledger-head`, brought by any member.

        It is refused unless it goes further than the newest one and `after` names that one's head.
        """
        signed = decode(SignedDocument, body)
        response.status_code = 201 if witness(coordinator, party, signed, after=query.after) else 200
        return signed


def _add_linkage(router: APIRouter, coordinator: Coordinator, auth: Authenticator) -> None:
    @router.put("/v1/parties/{party}/identity", status_code=201, responses=AGAIN, openapi_extra=takes(Envelope))
    def put_identity(party: str, body: Annotated[bytes, Depends(auth.party_body)], response: Response) -> PartyRecord:
        """Show a member's keys under its own signature: a signed document of kind `identity`."""
        member, new = publish_identity(coordinator, party, parse_envelope(body))
        response.status_code = 201 if new else 200
        return member

    @router.get("/v1/parties/{party}/linkage-keys", dependencies=[Depends(auth.reader)])
    def list_linkage_keys(party: str) -> SealedLinkageKeys:
        """Linkage keys that members sealed to this one. Nobody else can open them."""
        with coordinator.store.read() as tx:
            return SealedLinkageKeys(items=tx.linkage.of(require_party(tx, party).name))

    @router.put(
        "/v1/parties/{party}/linkage-keys/{sender}", status_code=201, responses=AGAIN, openapi_extra=takes(Envelope)
    )
    def put_linkage_key(
        party: str, sender: str, body: Annotated[bytes, Depends(auth.sender_body)], response: Response
    ) -> SealedLinkageKey:
        """Leave a linkage key, sealed to this member, by the sender: a signed document of kind `linkage-key`."""
        envelope = parse_envelope(body)
        response.status_code = 201 if relay(coordinator, party, sender, envelope) else 200
        return SealedLinkageKey(sender=sender, envelope=envelope)
