"""Bodies of requests, read within limits. Strict models are validated over the received bytes."""

import asyncio
from typing import TypeVar

from fastapi import Request

from commingle.shared.documents.model import WireModel, decode
from commingle.shared.runtime.errors import RequestBodyError, TooLargeError

Model = TypeVar("Model", bound=WireModel)
LARGEST_DOCUMENT_BYTES = 8 << 20  # more than the longest schema takes
_PATIENCE_SECONDS = 60.0
_SLOWEST = 64 << 10  # bytes per second that a sender has to keep up, beyond the patience


async def document(request: Request, model: type[Model]) -> Model:
    """The body as a model. Raises DocumentError, TooLargeError, RequestBodyError."""
    return decode(model, await read_body(request))


async def read_body(request: Request, largest_bytes: int = LARGEST_DOCUMENT_BYTES) -> bytes:
    """The whole body.

    Raises:
        TooLargeError: without reading further than the limit.
        RequestBodyError: it does not come in time.
    """
    received = bytearray()
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS + largest_bytes / _SLOWEST):
            async for piece in request.stream():
                received += piece
                if len(received) > largest_bytes:
                    raise TooLargeError(
                        f"the body is larger than {largest_bytes} bytes", remedy="Send rows in smaller pieces."
                    )
    except TimeoutError:
        raise RequestBodyError("the body did not come in time", remedy="Send smaller pieces.") from None
    return bytes(received)
