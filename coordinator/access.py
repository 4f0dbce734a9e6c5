"""Who calls: members and the operator by signed requests, others by bearer tokens."""

import hmac
import secrets
from datetime import datetime, timedelta
from typing import Literal

from commingle.coordinator.coordinator import Coordinator, require_release
from commingle.coordinator.errors import (
    NameTakenError,
    ReplayedRequestError,
    RevokedError,
    UnauthenticatedError,
    UnknownError,
)
from commingle.coordinator.store.members import TokenRow
from commingle.shared.documents.dsse import VerifyingKey
from commingle.shared.documents.model import text_digest
from commingle.shared.runtime.errors import ScopeError
from commingle.shared.runtime.request_signing import RequestHead, SignedRequest, is_signed, verify_request
from commingle.shared.wire import PartyRecord

CoordinatorScope = Literal["read", "operate"]
_PREFIX = "commingle-token.v1"
_IMPLIED: dict[str, frozenset[str]] = {"read": frozenset({"read"}), "operate": frozenset({"read", "operate"})}


def require_party(coordinator: Coordinator, head: RequestHead, party: str) -> SignedRequest:
    """The request, if this member signed it."""
    request, signer = _verify_signature(coordinator, head)
    if signer is None or signer.name != party:
        raise ScopeError(
            f"the request is not signed by {party}", remedy="A member decides and uploads for itself only."
        )
    _refuse_replay(coordinator, request)
    return request


def require_member(coordinator: Coordinator, head: RequestHead, release: str) -> SignedRequest:
    """The request, if a party of this release signed it."""
    request, signer = _verify_signature(coordinator, head)
    with coordinator.store.read() as tx:
        members = require_release(tx, release).shares
    if signer is None or signer.name not in members:
        raise ScopeError(
            "the request is not signed by a member of this release",
            remedy="What members of a release exchange is for them alone.",
        )
    _refuse_replay(coordinator, request)
    return request


def require_enrolled(coordinator: Coordinator, head: RequestHead) -> SignedRequest:
    """The request, if a member signed it, whichever. Raises ScopeError and what `require_party` raises."""
    request, signer = _verify_signature(coordinator, head)
    if signer is None:
        raise ScopeError("the request is not signed by a member", remedy="Ledger heads are for members only.")
    _refuse_replay(coordinator, request)
    return request


def require_proposer(coordinator: Coordinator, head: RequestHead) -> SignedRequest | None:
    """The request, if a member or the coordinator signed it; None where a token of scope `operate` lets it in."""
    if not is_signed(head) and head.header("authorization") is not None:
        _require_token(coordinator, head, "operate")
        return None
    request, _ = _verify_signature(coordinator, head)
    _refuse_replay(coordinator, request)
    return request


def require_reader(coordinator: Coordinator, head: RequestHead) -> str | None:
    """Refuse a caller who may not read. The member that signed the request, where one did and it is no replay.

    A signature is checked wherever there is one. A replay is refused only where reading is not public: elsewhere it
    shows nothing that is not shown to everybody. No read writes to the database (`reads`).
    """
    if is_signed(head):
        request, signer = _verify_signature(coordinator, head)
        if not coordinator.public_reads:
            _refuse_replay(coordinator, request)
        elif signer is None or not coordinator.reads.remember(request, now=coordinator.clock()):
            return None
        return None if signer is None else signer.name
    if not coordinator.public_reads:
        _require_token(coordinator, head, "read")
    return None


def create_token(coordinator: Coordinator, *, name: str, scope: CoordinatorScope, lifetime: timedelta | None) -> str:
    """A new bearer token. Only its digest is kept."""
    now = coordinator.clock()
    text = f"{_PREFIX}.{secrets.token_urlsafe(32)}"
    with coordinator.store.write() as tx:
        if tx.access.token(name=name) is not None:
            raise NameTakenError(f"there is a token named {name}", remedy="Choose another name.")
        expires = None if lifetime is None else now + lifetime
        tx.access.add_token(TokenRow(name, text_digest(text), scope, now, expires, None))
    return text


def revoke_token(coordinator: Coordinator, name: str) -> None:
    """Let nobody in with this token any more. Raises UnknownError."""
    with coordinator.store.write() as tx:
        if tx.access.token(name=name) is None:
            raise UnknownError(f"there is no token named {name}", remedy="commingle coordinator token list")
        tx.access.revoke_token(name, coordinator.clock())


def _verify_signature(coordinator: Coordinator, head: RequestHead) -> tuple[SignedRequest, PartyRecord | None]:
    own = coordinator.key.verifying_key
    found: list[PartyRecord] = []

    def key_of(fingerprint: str) -> VerifyingKey | None:
        if fingerprint == own.fingerprint:
            return own
        with coordinator.store.read() as tx:
            member = tx.members.by_key(fingerprint)
        if member is None:
            return None
        found.append(member)
        return VerifyingKey.from_hex(member.signing_key)

    request = verify_request(head, audience=own.fingerprint, key_of=key_of, now=coordinator.clock())
    signer = found[0] if found else None
    if signer is not None and signer.revoked is not None:
        raise RevokedError(
            f"{signer.name} has not been a member since {signer.revoked:%Y-%m-%d %H:%M} UTC",
            remedy="Ask the coordinator's operator for an invite: in the same name if it left, else in another.",
        )
    return request, signer


def _refuse_replay(coordinator: Coordinator, request: SignedRequest) -> None:
    if request.body is None:  # it reads
        new = coordinator.reads.remember(request, now=coordinator.clock())
    else:
        with coordinator.store.write() as tx:
            new = tx.access.remember(request.signer, request.nonce, forget=request.forget, now=coordinator.clock())
    if not new:
        raise ReplayedRequestError(
            "this very request was received before",
            remedy="A repetition is signed afresh, with a new nonce; if you did not repeat it, somebody else did.",
        )


def _require_token(coordinator: Coordinator, head: RequestHead, scope: CoordinatorScope) -> None:
    kind, _, text = (head.header("authorization") or "").partition(" ")
    digest = text_digest(text.strip())
    with coordinator.store.read() as tx:
        token = tx.access.token(digest=digest) if kind.lower() == "bearer" else None
    # found by the digest of 256 random bits: there is nothing to be learned from how long the search takes
    if token is None or not hmac.compare_digest(token.digest, digest) or not _valid(token, coordinator.clock()):
        raise UnauthenticatedError(
            "neither a member's signature nor a valid token",
            remedy="Ask the coordinator's operator for a token and send it: Authorization: Bearer …",
        )
    if scope not in _IMPLIED[token.scope]:
        raise ScopeError(f"this token does not have the scope {scope}", remedy="Ask for a token of that scope.")


def _valid(token: TokenRow, now: datetime) -> bool:
    return token.revoked is None and (token.expires is None or now < token.expires)
