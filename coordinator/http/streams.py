"""Endpoints that wait: the history of one release as server-sent events, of all and of a party's by long polling."""

from collections.abc import AsyncIterator, Iterable
from functools import lru_cache
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from commingle.coordinator.coordinator import Coordinator, require_release
from commingle.coordinator.feed import Feed
from commingle.coordinator.http.access import Authenticator
from commingle.coordinator.http.views import EventsQuery, release_details, release_event
from commingle.coordinator.members import require_party
from commingle.coordinator.store.rows import EventRow
from commingle.coordinator.store.store import Store
from commingle.shared.text import ascii_json
from commingle.shared.wire import EventPage, ReleaseEvent, ReleaseSteps

_PAGE = 500
_RELEASES_AT_ONCE = 4  # in full, each up to megabytes where it has many parties
_KEEP_ALIVE_SECONDS = 15.0


def streams_router(coordinator: Coordinator, auth: Authenticator, feed: Feed) -> APIRouter:
    """`/v1/events`, `/v1/parties/{party}/releases` and `/v1/releases/{id}/events`."""
    router = APIRouter(prefix="/v1", tags=["events"], dependencies=[Depends(auth.reader)])

    def page(query: EventsQuery) -> EventPage:
        with coordinator.store.read() as tx:
            found, newest = tx.events.after(query.after, limit=_PAGE), tx.events.last()
        # an `after` beyond the newest event is from before a restored backup: start again from there
        last = found[-1].seq if found else min(query.after, newest)
        return EventPage(items=tuple(map(release_event, found)), last=last)

    @router.get("/events")
    async def wait_for_events(query: Annotated[EventsQuery, Query()]) -> EventPage:
        """Events of all releases after one, waiting up to 30 seconds for the first."""
        await feed.wait(query.after, timeout_seconds=query.wait_seconds)
        return await run_in_threadpool(page, query)

    @lru_cache(maxsize=_RELEASES_AT_ONCE)  # its parties ask for the same at the same time
    def shown(release: str, _: str) -> tuple[bytes, bool]:
        """A release in full, as it is after the event of that digest or later, and whether it is over."""
        with coordinator.store.read() as tx:
            found = release_details(require_release(tx, release))
        return ascii_json(found.model_dump(mode="json")), found.state.final

    def steps(party: str, after: int, *, by_itself: bool) -> bytes:
        with coordinator.store.read() as tx:
            require_party(tx, party)
            newest, digest = tx.events.newest()
            last = min(after + _PAGE, newest)
            found = tx.events.steps_of(party, after=after, last=last, limit=_RELEASES_AT_ONCE)
            if len(found) == _RELEASES_AT_ONCE:
                last = found[-1][1]
        items = [shown(release, digest) for release, _ in found]
        heads = None
        if by_itself and any(over for _, over in items):
            with coordinator.store.read() as tx:
                heads = [row.document.encode() for row in tx.heads.newest_of_each()]
        return b'{"items":%b,"last":%d,"heads":%b}' % (_list(text for text, _ in items), last, _list(heads))

    @router.get("/parties/{party}/releases", response_model=ReleaseSteps)
    async def wait_for_steps(
        party: str, query: Annotated[EventsQuery, Query()], signer: Annotated[str | None, Depends(auth.reader)]
    ) -> Response:
        """Releases of a member in full that took a step after an event, waiting up to 30 seconds for the first.

        A proposal is one, the last approval, the last message of an exchange, and the end: after each of them something
        can be due of every party. What one party did while others are waited for is none. With an end come the members'
        newest ledger heads, where the request is signed by that member.
        """
        await feed.wait(query.after, timeout_seconds=query.wait_seconds, party=party)
        body = await run_in_threadpool(steps, party, query.after, by_itself=signer == party)
        return Response(body, media_type="application/json")

    @router.get("/releases/{release}/events", response_class=StreamingResponse)
    async def follow_release(
        release: str, last_event_id: Annotated[int, Header(ge=0, lt=1 << 62)] = 0
    ) -> StreamingResponse:
        """The release's history as server-sent events; ends after a final state."""
        await run_in_threadpool(_look, coordinator.store, release, 0)  # refuses an unknown one before the stream begins
        return StreamingResponse(
            _follow(coordinator.store, feed, release, last_event_id),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    return router


def _list(items: Iterable[bytes] | None) -> bytes:
    return b"null" if items is None else b"[%b]" % b",".join(items)


async def _follow(store: Store, feed: Feed, release: str, seq: int) -> AsyncIterator[str]:
    while True:
        newest = await feed.last()
        found, ended = await run_in_threadpool(_look, store, release, seq)
        for event in found:
            yield _server_sent(release_event(event))
        seq = found[-1].seq if found else seq
        if ended or feed.stopping:
            return
        if not found:
            yield ": waiting\n\n"
        await feed.wait(max(seq, newest), timeout_seconds=_KEEP_ALIVE_SECONDS)


def _look(store: Store, release: str, seq: int) -> tuple[tuple[EventRow, ...], bool]:
    """The release's events after `seq`, and whether no more will come."""
    with store.read() as tx:
        state = require_release(tx, release).state
        found = tx.events.after(seq, limit=_PAGE, release=release)
    return found, state.final and len(found) < _PAGE


def _server_sent(event: ReleaseEvent) -> str:
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n"
