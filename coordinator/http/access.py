"""What stands before an endpoint: a caller who may ask, by a signed request or a bearer token; a body within limits."""

import hmac
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import errorcode
from functools import partial
from typing import Any, BinaryIO, TypeAlias, TypeVar

import structlog
from fastapi import Request
from starlette.concurrency import run_in_threadpool

from commingle.coordinator.coordinator import Coordinator, require_release
from commingle.coordinator.errors import ReplayedRequestError, RevokedError, StorageError, UnauthenticatedError
from commingle.coordinator.members import CoordinatorScope
from commingle.coordinator.rounds import Expected
from commingle.shared.documents.dsse import VerifyingKey
from commingle.shared.documents.model import text_digest
from commingle.shared.errors import CommingleError
from commingle.shared.runtime.bodies import Body
from commingle.shared.runtime.errors import BusyError, ScopeError, TooLargeError
from commingle.shared.runtime.files import full_disk_as_no_room
from commingle.shared.runtime.problem import BEARER
from commingle.shared.runtime.request_signing import RequestHead, SignedRequest, is_signed, verify_request
from commingle.shared.wire import PartyRecord

JSON_LIMIT = 4 << 20
_PIECE = 1 << 20
_IMPLIED: dict[str, frozenset[str]] = {"read": frozenset({"read"}), "operate": frozenset({"read", "operate"})}
_log = structlog.get_logger()

Upload = TypeVar("Upload", bound=Expected[Any])
Stored = TypeVar("Stored")
SCHEMES: Mapping[str, Any] = {
    **BEARER,
    "Signature": {
        "type": "apiKey",
        "in": "header",
        "name": "Signature",
        "description": "A member signs the request by RFC 9421, with `Signature-Input` and `Content-Digest`.",
    },
}
"""The ways to say who asks, as an OpenAPI document names them."""
_Security: TypeAlias = list[dict[str, list[str]]]
_SIGNED: _Security = [{"Signature": []}]
_READING: _Security = [{}, *_SIGNED, {"HTTPBearer": []}]  # a coordinator says whether reads are public
_PROPOSING: _Security = [*_SIGNED, {"HTTPBearer": []}]
_OPEN = frozenset({"/healthz", "/readyz", "/metrics", "/v1/coordinator"})
_FOR_MEMBERS = ("/ledger-heads", "/columns", "/columns/{party}", "/replies", "/replies/{party}")


def pieces_of(file: BinaryIO) -> Iterator[bytes]:
    """The rest of a file, piece by piece; closed at the end."""
    with file:
        yield from iter(partial(file.read, _PIECE), b"")


@dataclass(frozen=True, slots=True)
class _Upload:
    party: str
    limit: int
    body: Body


@dataclass(frozen=True, slots=True)
class Arriving:
    """Bodies on their way in, for one event loop; their files are gone when they are closed.

    The database counts what is kept for good.
    """

    _uploads: dict[str, _Upload] = field(default_factory=dict)

    @contextmanager
    def only(self, place: str, party: str, body: Body, *, limit: int, most: int) -> Iterator[None]:
        """Receive and store one body for a place; a body that is still coming to that place is given up for it.

        The signature of `party` has let it in. `most` is the most bytes of all that it sends at once.
        """
        remedy = "Send it again in a few seconds."
        if (before := self._uploads.get(place)) is not None:
            if before.body.complete:
                raise BusyError("the same is being stored just now", remedy=remedy)
            before.body.give_up()
        others = sum(one.limit for at, one in self._uploads.items() if one.party == party and at != place)
        if others + limit > most:
            raise BusyError(f"{party} sends more at once than it may have kept here", remedy=remedy)
        self._uploads[place] = own = _Upload(party, limit, body)
        try:
            yield
        finally:
            if self._uploads.get(place) is own:
                del self._uploads[place]


class Authenticator:
    """Dependencies that let a request in or raise. A body has to have the digest that was signed."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._arriving = Arriving()

    async def reader(self, request: Request) -> str | None:
        """Refuse a caller who may not read. Returns the member that signed the request, unless it is a replay.

        Every signature is checked. A replay is refused only if reading is not public: otherwise it shows nothing that
        is not shown to everybody. No read writes to the database (`Reads`).
        """
        if request.method in {"GET", "HEAD"}:
            return await run_in_threadpool(self._reader, head_of(request))
        return None

    async def member(self, request: Request, release: str) -> None:
        def is_member(signer: str | None) -> bool:
            with self._coordinator.store.read() as tx:
                return signer in require_release(tx, release).shares

        said = "the request is not signed by a member of this release"
        remedy = "What members of a release exchange is for them alone."
        await run_in_threadpool(self._signer, request, is_member, said, remedy)

    async def enrolled(self, request: Request) -> None:
        await run_in_threadpool(self._enrolled, request)

    async def enrolled_body(self, request: Request) -> bytes:
        return await self._body(request, self._enrolled)

    async def unsigned_body(self, request: Request) -> bytes:
        return await self._body(request, lambda _: None)

    async def party_body(self, request: Request, party: str) -> bytes:
        return await self._body(request, partial(self._party, party=party))

    async def sender_body(self, request: Request, sender: str) -> bytes:
        return await self.party_body(request, sender)

    async def proposer_body(self, request: Request) -> bytes:
        return await self._body(request, self._proposer)

    async def upload(
        self, request: Request, party: str, *, expect: Callable[[], Upload], store: Callable[[Upload, BinaryIO], Stored]
    ) -> Stored:
        """Take what the member signed and sent; returns what `store` makes of it.

        `expect` checks what can be checked before the body is read, `store` the rest. Both run in a thread and refuse
        by raising.
        """
        body, coordinator = Body(request), self._coordinator

        def admit() -> tuple[Upload, BinaryIO]:
            body.digest = self._party(request, party=party).body
            expected = expect()
            self._require_room(expected.limit)
            return expected, coordinator.blobs.scratch()

        try:
            with full_disk_as_no_room():
                expected, file = await run_in_threadpool(admit)
                turn = self._arriving.only(
                    request.url.path, party, body, limit=expected.limit, most=coordinator.quotas.member
                )
                with file, turn:
                    await body.copy(file, limit=expected.limit, disks=coordinator.disks)
                    return await run_in_threadpool(store, expected, file)
        except CommingleError:
            await body.drain()
            raise
        except OSError as error:
            _log.error("upload not kept", error=type(error).__name__, errno=errorcode.get(error.errno or 0))
            raise StorageError(
                f"the upload cannot be kept ({error.strerror})", remedy="Nothing was recorded; send it again later."
            ) from None

    def _require_room(self, limit: int) -> None:
        most = self._coordinator.quotas.message
        if limit > most:
            raise TooLargeError(
                f"an honest body has {limit} bytes here, and {most} are taken",
                remedy="The operator raises largest_message_bytes in the coordinator's settings.",
            )
        self._coordinator.disks.require(2 * limit)  # while it comes, and beside that while it is stored

    async def _body(self, request: Request, check: Callable[[Request], SignedRequest | None]) -> bytes:
        body = Body(request)
        try:
            signed = await run_in_threadpool(check, request)
            body.digest = None if signed is None else signed.body
            return await body.read(JSON_LIMIT)
        except CommingleError:
            await body.drain()
            raise

    def _reader(self, head: RequestHead) -> str | None:
        coordinator = self._coordinator
        if is_signed(head):
            request, signer = self._verify_signature(head)
            if not coordinator.public_reads:
                self._refuse_replay(request)
            elif signer is None or not coordinator.reads.remember(request, now=coordinator.clock()):
                return None
            return None if signer is None else signer.name
        if not coordinator.public_reads:
            self._require_token(head, "read")
        return None

    def _party(self, request: Request, *, party: str) -> SignedRequest:
        said, remedy = f"the request is not signed by {party}", "A member decides and uploads for itself only."
        return self._signer(request, lambda signer: signer == party, said, remedy)

    def _enrolled(self, request: Request) -> SignedRequest:
        said, remedy = "the request is not signed by a member", "Ledger heads are for members only."
        return self._signer(request, lambda signer: signer is not None, said, remedy)

    def _proposer(self, request: Request) -> SignedRequest | None:
        # None if a token of scope `operate` lets it in; otherwise a member or the coordinator has signed it
        head = head_of(request)
        if not is_signed(head) and head.header("authorization") is not None:
            self._require_token(head, "operate")
            return None
        signed, _ = self._verify_signature(head)
        self._refuse_replay(signed)
        return signed

    def _signer(self, request: Request, may: Callable[[str | None], bool], refused: str, remedy: str) -> SignedRequest:
        signed, signer = self._verify_signature(head_of(request))
        if not may(None if signer is None else signer.name):
            raise ScopeError(refused, remedy=remedy)
        self._refuse_replay(signed)
        return signed

    def _verify_signature(self, head: RequestHead) -> tuple[SignedRequest, PartyRecord | None]:
        coordinator, own = self._coordinator, self._coordinator.key.verifying_key
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

    def _refuse_replay(self, request: SignedRequest) -> None:
        coordinator, now = self._coordinator, self._coordinator.clock()
        if request.body is None:  # it reads
            new = coordinator.reads.remember(request, now=now)
        else:
            with coordinator.store.write() as tx:
                new = tx.access.remember(request.signer, request.nonce, forget=request.forget, now=now)
        if not new:
            raise ReplayedRequestError(
                "this very request was received before",
                remedy="A repetition is signed afresh, with a new nonce; if you did not repeat it, somebody else did.",
            )

    def _require_token(self, head: RequestHead, scope: CoordinatorScope) -> None:
        kind, _, text = (head.header("authorization") or "").partition(" ")
        digest, now = text_digest(text.strip()), self._coordinator.clock()
        with self._coordinator.store.read() as tx:
            token = tx.access.token(digest=digest) if kind.lower() == "bearer" else None
        # found by the digest of 256 random bits: there is nothing to be learned from how long the search takes
        if token is None or not hmac.compare_digest(token.digest, digest) or not token.holds(now):
            raise UnauthenticatedError(
                "neither a member's signature nor a valid token",
                remedy="Ask the coordinator's operator for a token and send it: Authorization: Bearer …",
            )
        if scope not in _IMPLIED[token.scope]:
            raise ScopeError(f"this token does not have the scope {scope}", remedy="Ask for a token of that scope.")


def security_of(method: str, path: str) -> _Security:
    """Who may ask, as an OpenAPI document says it: any one of these."""
    if path in _OPEN or (method, path) == ("post", "/v1/parties"):
        return []
    if method == "get":
        return _SIGNED if path.endswith(_FOR_MEMBERS) else _READING
    return _PROPOSING if path == "/v1/releases" else _SIGNED


def head_of(request: Request) -> RequestHead:
    scope = request.scope
    query = scope["query_string"].decode("latin-1")
    path = scope["raw_path"].decode("latin-1")
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
    return RequestHead(scope["method"], f"{path}?{query}" if query else path, headers)
