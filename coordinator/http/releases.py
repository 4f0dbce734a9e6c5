"""Endpoints about releases: propose, list, decide, contribute; and what was published, byte for byte as signed."""

from asyncio import Lock
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Annotated, Any, BinaryIO
from weakref import WeakValueDictionary

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from prometheus_client import Counter
from starlette.concurrency import run_in_threadpool

from commingle.coordinator.coordinator import Coordinator, require_release, require_summary, spec_of
from commingle.coordinator.errors import NotPublishedError, StorageError
from commingle.coordinator.http.access import Authenticator, pieces_of
from commingle.coordinator.http.views import ReleasesQuery, SendersQuery, decode_cursor, encode_cursor, release_details
from commingle.coordinator.publisher import Publisher
from commingle.coordinator.rounds import (
    Expected,
    Kind,
    approve,
    expect_block,
    expect_message,
    open_messages,
    propose,
    reject,
    store_block,
    store_message,
)
from commingle.coordinator.store.releases import Files
from commingle.shared.documents.dsse import Envelope, parse_envelope
from commingle.shared.documents.model import decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import ApprovalRequest, BlockStatement
from commingle.shared.forecast.forecast import forecast_of
from commingle.shared.forecast.result import Forecast
from commingle.shared.release.matrix import ARROW_STREAM
from commingle.shared.runtime.pool import ProcessWorker, Worker, WorkPool, client_of, while_connected
from commingle.shared.runtime.problem import AGAIN, takes
from commingle.shared.wire import ReleaseDetails, ReleasePage, ReleaseSummary

_MEMORY = 1024
_PRELOAD = (forecast_of.__module__, "commingle.shared.mechanisms.rows.forecast")
_IMMUTABLE = "public, max-age=31536000, immutable"
_PARQUET = "application/vnd.apache.parquet"


def start_worker() -> Worker:
    return ProcessWorker(preload=_PRELOAD)


def forecasts_router(coordinator: Coordinator, pool: WorkPool) -> APIRouter:
    """`/v1/releases/{id}/forecast`: anybody may ask, so it is computed in a process that can be stopped, and once."""
    router = APIRouter(prefix="/v1/releases", tags=["releases"])
    known: OrderedDict[str, Forecast | None] = OrderedDict()
    computing: WeakValueDictionary[str, Lock] = WeakValueDictionary()

    def spec(release: str) -> ReleaseSpec:
        with coordinator.store.read() as tx:
            return spec_of(require_release(tx, release)).document

    async def compute(client: str, release: str, asked: ReleaseSpec) -> Forecast | None:
        async with pool.turn(client), computing.setdefault(release, Lock()):
            if release not in known:
                known[release] = await pool.do(forecast_of, asked)
                if len(known) > _MEMORY:
                    known.popitem(last=False)
            return known[release]

    @router.get("/{release}/forecast")
    async def show_forecast(release: str, request: Request) -> Forecast | None:
        """What to expect of a release, from its spec alone; null where no attribute can be a target."""
        asked = await run_in_threadpool(spec, release)  # one whose spec was dropped has none, computed or not
        if release in known:
            return known[release]
        client = client_of(request)
        with pool.place(client):
            return await while_connected(request, compute(client, release, asked))

    return router


def releases_router(coordinator: Coordinator, auth: Authenticator) -> APIRouter:
    router = APIRouter(prefix="/v1/releases", tags=["releases"])

    @router.post("", status_code=201, responses=AGAIN, openapi_extra=takes(Envelope))
    def propose_release(body: Annotated[bytes, Depends(auth.proposer_body)], response: Response) -> ReleaseDetails:
        """Propose a release: a signed document of kind `spec`, by this coordinator or a member."""
        release, new = propose(coordinator, parse_envelope(body))
        response.status_code = 201 if new else 200
        return release_details(release)

    @router.get("")
    def list_releases(query: Annotated[ReleasesQuery, Query()]) -> ReleasePage:
        """Releases, the newest first. A page that has a `next` may hold fewer than `limit`, even none, of a member."""
        before = decode_cursor(query.cursor)
        with coordinator.store.read() as tx:
            page = tx.releases.page(
                state=query.state, over=query.over, party=query.party, before=before, limit=query.limit
            )
        return ReleasePage(items=page.items, next=encode_cursor(page.next))

    @router.get("/{release}")
    def show_release(release: str) -> ReleaseDetails:
        """One release with every signed document about it."""
        with coordinator.store.read() as tx:
            return release_details(require_release(tx, release))

    @router.put("/{release}/approvals/{party}", status_code=201, responses=AGAIN, openapi_extra=takes(ApprovalRequest))
    def approve_release(
        release: str, party: str, body: Annotated[bytes, Depends(auth.party_body)], response: Response
    ) -> ReleaseSummary:
        """A member's signed approval together with its alignment statement."""
        new = approve(coordinator, release, party, decode(ApprovalRequest, body))
        response.status_code = 201 if new else 200
        return summary_answer(coordinator, release)

    @router.put("/{release}/rejections/{party}", status_code=201, responses=AGAIN, openapi_extra=takes(Envelope))
    def reject_release(
        release: str, party: str, body: Annotated[bytes, Depends(auth.party_body)], response: Response
    ) -> ReleaseSummary:
        """A member's signed rejection, or its withdrawal after an approval."""
        new = reject(coordinator, release, party, parse_envelope(body))
        response.status_code = 201 if new else 200
        return summary_answer(coordinator, release)

    return router


def summary_answer(coordinator: Coordinator, release: str) -> ReleaseSummary:
    with coordinator.store.read() as tx:
        return require_summary(tx, release)


def published_router(coordinator: Coordinator) -> APIRouter:
    router = APIRouter(prefix="/v1/releases", tags=["published"])

    def files(release: str) -> Files:
        with coordinator.store.read() as tx:
            found = require_release(tx, release)
        if found.files is None:
            raise NotPublishedError(
                f"the release is {found.state}, not published",
                remedy="Follow its events; every member must approve and upload first.",
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


_OCTETS = "application/octet-stream"


def _binary(media_type: str) -> dict[str, Any]:
    return {media_type: {"schema": {"type": "string", "format": "binary"}}}


def _takes_binary(media_type: str) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": _binary(media_type)}}


def exchanges_router(coordinator: Coordinator, auth: Authenticator) -> APIRouter:
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
    with suppress(StorageError):  # logged; a caller who asks for the rest learns of it
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
