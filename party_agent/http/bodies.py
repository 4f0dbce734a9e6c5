"""Bodies of requests: how they are described, and reading them within limits.

Strict models are validated over the received bytes, so a body is described here and parsed where it is used.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi import FastAPI, Request

from commingle.shared.documents.model import WireModel, decode
from commingle.shared.runtime.errors import RequestBodyError, TooLargeError

Model = TypeVar("Model", bound=WireModel)
LARGEST_DOCUMENT_BYTES = 8 << 20  # more than the longest schema takes
_PATIENCE_SECONDS = 60.0
_SLOWEST = 64 << 10  # bytes per second that a sender has to keep up, beyond the patience
_PLACE = "#/components/schemas/{model}"


def takes(model: type[WireModel], examples: Mapping[str, Any], *, required: bool = True) -> dict[str, Any]:
    """OpenAPI's description of a JSON body; `examples` by what each shows."""
    shown = {said: {"summary": said, "value": value} for said, value in examples.items()}
    content = {"application/json": {"schema": {"$ref": _PLACE.format(model=model.__name__)}, "examples": shown}}
    return {"requestBody": {"required": required, "content": content}}


def describe(app: FastAPI, *models: type[WireModel]) -> None:
    """Put the schemas of bodies where `takes` says they are."""
    own = app.openapi

    def openapi() -> dict[str, Any]:
        whole = own()
        schemas = whole.setdefault("components", {}).setdefault("schemas", {})
        for model in models:
            found = model.model_json_schema(ref_template=_PLACE)
            for name, schema in (found.pop("$defs", {}) | {model.__name__: found}).items():
                schemas.setdefault(name, schema)
        return whole

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's documented way to extend its document


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
