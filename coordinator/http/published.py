"""Endpoints that hand out what was published, byte for byte as signed."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, BinaryIO

from fastapi import APIRouter, Header, Response
from fastapi.responses import StreamingResponse

from commingle.coordinator.coordinator import Coordinator, require_release
from commingle.coordinator.errors import NotPublishedError
from commingle.coordinator.store.rows import Files

_PIECE = 1 << 20
_IMMUTABLE = "public, max-age=31536000, immutable"
_PARQUET = "application/vnd.apache.parquet"


def published_router(coordinator: Coordinator) -> APIRouter:
    """`/v1/releases/{id}/manifest`, `/matrix` and `/moments`."""
    router = APIRouter(prefix="/v1/releases", tags=["published"])

    def files(release: str) -> Files:
        with coordinator.store.read() as tx:
            found = require_release(tx, release)
        if found.files is None:
            raise NotPublishedError(
                f"the release is {found.state}, not published",
                remedy="Follow its events; every party must approve and upload first.",
            )
        return found.files

    def answer(digest: str, media_type: str, known: str | None) -> Response:
        headers = {"ETag": f'"{digest}"', "Cache-Control": _IMMUTABLE}
        if known is not None and (known.strip() == "*" or headers["ETag"] in map(str.strip, known.split(","))):
            return Response(status_code=304, headers=headers)
        return StreamingResponse(pieces_of(coordinator.blobs.open(digest)), media_type=media_type, headers=headers)

    @router.get("/{release}/manifest", response_class=Response)
    def manifest(release: str, if_none_match: Annotated[str | None, Header()] = None) -> Response:
        """The signed manifest, JSON."""
        return answer(files(release).manifest, "application/json", if_none_match)

    @router.get("/{release}/matrix", response_class=Response)
    def matrix(release: str, if_none_match: Annotated[str | None, Header()] = None) -> Response:
        """The published matrix, Parquet."""
        return answer(files(release).matrix, _PARQUET, if_none_match)

    @router.get("/{release}/moments", response_class=Response)
    def moments(release: str, if_none_match: Annotated[str | None, Header()] = None) -> Response:
        """The second moments, JSON."""
        return answer(files(release).moments, "application/json", if_none_match)

    return router


def pieces_of(file: BinaryIO) -> Iterator[bytes]:
    """A file from where it stands, a piece at a time; closed at the end."""
    with file:
        yield from iter(partial(file.read, _PIECE), b"")
