"""Endpoints of a party's contribution to a release: the exchange, where there is one, and its block."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from prometheus_client import Counter

from commingle.coordinator.contributions import (
    Expected,
    Kind,
    expect_block,
    expect_message,
    open_messages,
    store_block,
    store_message,
)
from commingle.coordinator.coordinator import Coordinator
from commingle.coordinator.errors import StorageError
from commingle.coordinator.http.access import Authenticator, pieces_of
from commingle.coordinator.http.releases import summary_answer
from commingle.coordinator.http.views import SendersQuery
from commingle.coordinator.publisher import Publisher
from commingle.shared.documents.dsse import Envelope, parse_envelope
from commingle.shared.documents.statements import BlockStatement
from commingle.shared.release.matrix import ARROW_STREAM
from commingle.shared.runtime.problem import AGAIN
from commingle.shared.wire import ReleaseSummary

_OCTETS = "application/octet-stream"


def _binary(media_type: str) -> dict[str, Any]:
    return {media_type: {"schema": {"type": "string", "format": "binary"}}}


def _takes_binary(media_type: str) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": _binary(media_type)}}


def exchanges_router(coordinator: Coordinator, auth: Authenticator) -> APIRouter:
    """`/v1/releases/{id}/columns` and `/replies`, of several members and of one."""
    router = APIRouter(prefix="/v1/releases", tags=["exchanges"])
    get = partial(
        router.get,
        response_class=Response,
        responses={200: {"content": _binary(_OCTETS)}},
        dependencies=[Depends(auth.member)],
    )

    @get("/{release}/columns")
    def fetch_all_columns(release: str, query: Annotated[SendersQuery, Query()]) -> Response:
        """Encrypted columns of several members, one after the other as asked, for the members of the release only."""
        return _as_octets(open_messages(coordinator, release, query.of, kind="columns"))

    @get("/{release}/columns/{party}")
    def fetch_columns(release: str, party: str) -> Response:
        """A member's encrypted columns, for the members of the release only."""
        return _as_octets(open_messages(coordinator, release, [party], kind="columns"))

    @get("/{release}/replies")
    def fetch_replies(release: str, query: Annotated[SendersQuery, Query()]) -> Response:
        """Replies of several members, one after the other as asked, for the members of the release only."""
        return _as_octets(open_messages(coordinator, release, query.of, kind="reply"))

    @get("/{release}/replies/{party}")
    def fetch_reply(release: str, party: str) -> Response:
        """What a member replied to the columns of those before it, for the members of the release only."""
        return _as_octets(open_messages(coordinator, release, [party], kind="reply"))

    _add_uploads(router, coordinator, auth)
    return router


def _as_octets(files: Iterator[BinaryIO]) -> Response:
    pieces = _one_after_the_other(chain([next(files)], files))
    return StreamingResponse(pieces, media_type=_OCTETS, headers={"Cache-Control": "no-store"})


def _one_after_the_other(files: Iterator[BinaryIO]) -> Iterator[bytes]:
    with suppress(StorageError):  # logged; who asks for the rest is told
        for file in files:
            yield from pieces_of(file)


def _add_uploads(router: APIRouter, coordinator: Coordinator, auth: Authenticator) -> None:
    async def take(
        kind: Kind, release: str, party: str, request: Request, *, response: Response, statement: str
    ) -> Envelope:
        new = await auth.upload(
            request,
            party,
            expect=lambda: expect_message(coordinator, release, party, parse_envelope(statement.encode()), kind=kind),
            store=partial(store_message, coordinator),
        )
        response.status_code = 201 if new else 200
        return parse_envelope(statement.encode())

    @router.put("/{release}/columns/{party}", status_code=201, responses=AGAIN, openapi_extra=_takes_binary(_OCTETS))
    async def upload_columns(
        release: str,
        party: str,
        request: Request,
        response: Response,
        commingle_statement: Annotated[str, Header(description="Envelope of the ColumnsStatement, JSON on one line")],
    ) -> Envelope:
        """A member's public key and encrypted columns; the signed statement is in the header."""
        return await take("columns", release, party, request, response=response, statement=commingle_statement)

    @router.put("/{release}/replies/{party}", status_code=201, responses=AGAIN, openapi_extra=_takes_binary(_OCTETS))
    async def upload_reply(
        release: str,
        party: str,
        request: Request,
        response: Response,
        commingle_statement: Annotated[str, Header(description="Envelope of the ReplyStatement, JSON on one line")],
    ) -> Envelope:
        """A member's replies to the columns of all before it; the signed statement is in the header."""
        return await take("reply", release, party, request, response=response, statement=commingle_statement)


def blocks_router(coordinator: Coordinator, auth: Authenticator, publisher: Publisher, uploaded: Counter) -> APIRouter:
    """`PUT /v1/releases/{id}/blocks/{party}`."""
    router = APIRouter(prefix="/v1/releases", tags=["releases"])

    def store(expected: Expected[BlockStatement], file: BinaryIO) -> tuple[bool, ReleaseSummary]:
        if new := store_block(coordinator, expected, file):
            uploaded.inc(file.tell())
        answer = summary_answer(coordinator, expected.release)
        if all(sender.uploaded for sender in answer.parties):
            publisher.wake()
        return new, answer

    @router.put(
        "/{release}/blocks/{party}", status_code=201, responses=AGAIN, openapi_extra=_takes_binary(ARROW_STREAM)
    )
    async def upload_block(
        release: str,
        party: str,
        request: Request,
        response: Response,
        commingle_block: Annotated[str, Header(description="Envelope of the BlockStatement, JSON on one line")],
    ) -> ReleaseSummary:
        """A member's privatised block: an Arrow IPC stream, its signed statement in the header."""
        new, answer = await auth.upload(
            request,
            party,
            expect=lambda: expect_block(coordinator, release, party, parse_envelope(commingle_block.encode())),
            store=store,
        )
        response.status_code = 201 if new else 200
        return answer

    return router
