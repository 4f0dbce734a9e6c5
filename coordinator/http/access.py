"""What stands before an endpoint: a signature or leave to read, and a body within limits; and sending files."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import errorcode
from functools import partial
from typing import Any, BinaryIO, TypeAlias, TypeVar

import structlog
from fastapi import Request
from starlette.concurrency import run_in_threadpool

from commingle.coordinator.access import (
    require_enrolled,
    require_member,
    require_party,
    require_proposer,
    require_reader,
)
from commingle.coordinator.contributions import Expected
from commingle.coordinator.coordinator import Coordinator
from commingle.coordinator.errors import StorageError
from commingle.shared.errors import CommingleError
from commingle.shared.runtime.bodies import Body
from commingle.shared.runtime.errors import BusyError, TooLargeError
from commingle.shared.runtime.files import full_disk_as_no_room
from commingle.shared.runtime.problem import BEARER
from commingle.shared.runtime.request_signing import RequestHead, SignedRequest

JSON_LIMIT = 4 << 20
_PIECE = 1 << 20
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
"""How a request says who asks, in the words of an OpenAPI document."""
_Security: TypeAlias = list[dict[str, list[str]]]
_SIGNED: _Security = [{"Signature": []}]
_READING: _Security = [{}, *_SIGNED, {"HTTPBearer": []}]  # a coordinator says whether reads are public
_PROPOSING: _Security = [*_SIGNED, {"HTTPBearer": []}]
_OPEN = frozenset({"/healthz", "/readyz", "/metrics", "/v1/coordinator"})
_FOR_MEMBERS = ("/ledger-heads", "/columns", "/columns/{party}", "/replies", "/replies/{party}")


def pieces_of(file: BinaryIO) -> Iterator[bytes]:
    """A file from where it stands, a piece at a time; closed at the end."""
    with file:
        yield from iter(partial(file.read, _PIECE), b"")


@dataclass(frozen=True, slots=True)
class _Upload:
    party: str
    limit: int
    body: Body


@dataclass(frozen=True, slots=True)
class Arriving:
    """For one event loop. What is kept for good the database counts; these files are gone when they are closed."""

    _uploads: dict[str, _Upload] = field(default_factory=dict)

    @contextmanager
    def only(self, place: str, party: str, body: Body, *, limit: int, most: int) -> Iterator[None]:
        """While a body is received and stored; one that is still coming to the same place is given up for it.

        `party` has let it in by its signature; `most`: bytes at most of all that it sends at once.
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
    """Dependencies that let a request in or raise. Bodies are held against the digest that was signed."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._arriving = Arriving()

    async def reader(self, request: Request) -> str | None:
        """Anyone who may read; the member that signed the request, if one did, and none where it is a replay."""
        if request.method in {"GET", "HEAD"}:
            return await run_in_threadpool(require_reader, self._coordinator, head_of(request))
        return None

    async def member(self, request: Request, release: str) -> None:
        """A request without a body that is signed by a member of the release in its path."""
        await run_in_threadpool(require_member, self._coordinator, head_of(request), release)

    async def enrolled(self, request: Request) -> None:
        """A request without a body that is signed by any member."""
        await run_in_threadpool(require_enrolled, self._coordinator, head_of(request))

    async def enrolled_body(self, request: Request) -> bytes:
        """The JSON body of a request that is signed by any member."""
        return await self._body(request, lambda: require_enrolled(self._coordinator, head_of(request)))

    async def unsigned_body(self, request: Request) -> bytes:
        """The JSON body of a request by anyone."""
        return await self._body(request, lambda: None)

    async def party_body(self, request: Request, party: str) -> bytes:
        """The JSON body of a request that is signed by the member in its path."""
        return await self._body(request, lambda: require_party(self._coordinator, head_of(request), party))

    async def sender_body(self, request: Request, sender: str) -> bytes:
        """The JSON body of a request that is signed by the sender in its path."""
        return await self.party_body(request, sender)

    async def proposer_body(self, request: Request) -> bytes:
        """The JSON body of a request by someone who may propose."""
        return await self._body(request, lambda: require_proposer(self._coordinator, head_of(request)))

    async def upload(
        self, request: Request, party: str, *, expect: Callable[[], Upload], store: Callable[[Upload, BinaryIO], Stored]
    ) -> Stored:
        """Take what the member signed and sent: what `store` makes of it.

        `expect` checks what can be checked before the body is read, `store` the rest; both in a thread, and refuse by
        raising.
        """
        body, coordinator = Body(request), self._coordinator

        def admit() -> tuple[Upload, BinaryIO]:
            body.digest = require_party(coordinator, head_of(request), party).body
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

    async def _body(self, request: Request, check: Callable[[], SignedRequest | None]) -> bytes:
        body = Body(request)
        try:
            signed = await run_in_threadpool(check)
            body.digest = None if signed is None else signed.body
            return await body.read(JSON_LIMIT)
        except CommingleError:
            await body.drain()
            raise


def security_of(method: str, path: str) -> _Security:
    """Who is let in, as an OpenAPI document says it: any one of these."""
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
