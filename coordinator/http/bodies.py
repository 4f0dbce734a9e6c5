"""Reading request bodies within limits, and sending files."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import BinaryIO

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from commingle.coordinator.errors import TruncatedError
from commingle.shared.runtime.disk import Disks
from commingle.shared.runtime.errors import BusyError, RequestSignatureError, TooLargeError
from commingle.shared.runtime.request_signing import body_digest

JSON_LIMIT = 4 << 20
_PIECE = 1 << 20
_DRAINED = 64 << 20
_LONGEST_LENGTH = 18  # digits
_PATIENCE_SECONDS = 60.0
_SLOWEST = 64 << 10  # bytes per second a sender has to keep up, beyond the patience


class Body:
    """A request's body, read once, piece by piece, from a sender who does not take for ever.

    Attributes:
        digest: what its Content-Digest must be; None where it is not held against one.
        complete: whether all of it has been written to a file.
    """

    def __init__(self, request: Request, *, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        announced = request.headers.get("content-length", "")
        known = announced.isdecimal() and len(announced) <= _LONGEST_LENGTH
        self._announced = int(announced) if known else 0
        self._stream = request.stream()
        self.digest: str | None = None
        self._until = asyncio.get_running_loop().time() + patience_seconds
        self._waiting: asyncio.Timeout | None = None
        self._given_up = False
        self.complete = False

    async def pieces(self, limit: int) -> AsyncIterator[bytes]:
        """What arrives.

        Raises:
            TooLargeError: as soon as it is known to be more than `limit` bytes.
            TruncatedError: the client went away before the end, or is too slow.
            RequestSignatureError: at the end, where this is not the body that was signed.
        """
        received, hashed = 0, sha256()
        self._until += limit / _SLOWEST
        if self._announced <= limit:
            async for piece in self._until_gone():
                received += len(piece)
                if received > limit:
                    break
                hashed.update(piece)
                yield piece
        if max(self._announced, received) > limit:
            raise TooLargeError(
                f"the body is larger than the {limit} bytes an honest one can have here",
                remedy="Send the document or block this place asks for.",
            )
        if self.digest not in {None, body_digest(hashed.digest())}:
            raise RequestSignatureError(
                "the body is not the one that was signed", remedy="Something changed it on its way; send it again."
            )

    async def copy(self, file: BinaryIO, *, limit: int, disks: Disks) -> None:
        """Write what arrives to a file. Raises like `pieces`, and OSError.

        Raises:
            NoRoomError: for the rest, and for a copy of the whole, there is no room any more.
        """
        written = 0

        def write(piece: bytes) -> None:
            disks.require(2 * limit - written)
            file.write(piece)

        async for piece in self.pieces(limit):
            await run_in_threadpool(write, piece)
            written += len(piece)
        self.complete = True

    def give_up(self) -> None:
        """Wait for no more of it: its sender gets TruncatedError."""
        self._given_up = True
        if self._waiting is not None:
            self._waiting.reschedule(0.0)

    async def drain(self) -> None:
        """Read and drop what is left of a refused body, within reason.

        A client that is still sending when the connection closes may never see why it was refused.
        """
        received = 0
        async for piece in self._until_gone():
            received += len(piece)
            if received > _DRAINED:
                return

    async def _until_gone(self) -> AsyncIterator[bytes]:
        try:
            while (piece := await self._next()) is not None:
                yield piece
        except ClientDisconnect:
            raise TruncatedError("the body ended early", remedy="Send it again.") from None
        except TimeoutError:
            raise TruncatedError(
                "the body did not come in time", remedy="Send it again over a faster connection."
            ) from None

    async def _next(self) -> bytes | None:
        try:
            async with asyncio.timeout_at(0.0 if self._given_up else self._until) as self._waiting:
                return await anext(self._stream, None)
        finally:
            self._waiting = None


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

        Args:
            place: whom and what it is for.
            party: whose signature let it in.
            body: what is received.
            limit: its bytes at most.
            most: bytes at most of all that the party sends at once.

        Raises:
            BusyError: the one before is being stored, or the party sends too much at once.
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
