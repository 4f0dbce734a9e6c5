"""The bodies of requests, read once: within a limit, whatever headers say, and within a time."""

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from commingle.shared.runtime.errors import RequestSignatureError, TooLargeError, TruncatedError
from commingle.shared.runtime.files import Disks
from commingle.shared.runtime.request_signing import body_digest

_DRAINED = 64 << 20
_LONGEST_LENGTH = 18  # digits
_PATIENCE_SECONDS = 60.0
_SLOWEST = 64 << 10  # bytes per second a sender has to keep up, beyond the patience


class Body:
    """A request's body, read once, piece by piece, within a time.

    Attributes:
        digest: the Content-Digest that the body must have; None where it has none to match.
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
        """The pieces as they arrive.

        Raises TooLargeError: as soon as it is known that there are more than `limit` bytes; TruncatedError: the client
        went away before the end, or is too slow; RequestSignatureError: at the end, if this is not the body that was
        signed.
        """
        received, hashed = 0, sha256()
        self._until += limit / _SLOWEST
        if self._announced <= limit:
            async for piece in self._until_gone():
                received += len(piece)
                if received > limit:
                    break
                if self.digest is not None:
                    hashed.update(piece)
                yield piece
        if max(self._announced, received) > limit:
            raise TooLargeError(
                f"the body is larger than the {limit} bytes an honest one can have here",
                remedy="Send the document or block that this place asks for, or less at a time.",
            )
        if self.digest not in {None, body_digest(hashed.digest())}:
            raise RequestSignatureError(
                "the body is not the one that was signed", remedy="Something changed it on its way; send it again."
            )

    async def read(self, limit: int) -> bytes:
        """All that arrives. Raises like `pieces`."""
        received = bytearray()  # not a list: a sender of pieces of a byte or two would have a hundred times that kept
        async for piece in self.pieces(limit):
            received += piece
        return bytes(received)

    async def copy(self, file: BinaryIO, *, limit: int, disks: Disks) -> None:
        """Write the pieces to a file as they arrive. Raises as `pieces`, and OSError.

        Raises NoRoomError: the disk has no room for the rest and for a second copy of the whole.
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
        """Stop waiting for the rest: the sender gets TruncatedError."""
        self._given_up = True
        if self._waiting is not None:
            self._waiting.reschedule(0.0)

    async def drain(self) -> None:
        """Read and drop the rest of a refused body, up to a limit.

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
                "the body did not come in time", remedy="Send it again over a faster connection, or less at a time."
            ) from None

    async def _next(self) -> bytes | None:
        try:
            async with asyncio.timeout_at(0.0 if self._given_up else self._until) as self._waiting:
                return await anext(self._stream, None)
        finally:
            self._waiting = None


async def read_body(request: Request, most_bytes: int, *, patience_seconds: float = _PATIENCE_SECONDS) -> bytes:
    """The whole body. Raises TooLargeError, TruncatedError."""
    return await Body(request, patience_seconds=patience_seconds).read(most_bytes)
