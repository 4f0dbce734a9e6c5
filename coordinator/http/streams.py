"""Endpoints that wait: the history of one release as server-sent events, of all and of a party's by long polling."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from commingle.coordinator.coordinator import Coordinator, require_release
from commingle.coordinator.feed import Feed
from commingle.coordinator.http.views import EventsQuery, release_details, release_event
from commingle.coordinator.members import require_party
from commingle.coordinator.store.rows import EventRow
from commingle.coordinator.store.store import Store
from commingle.shared.wire import EventPage, ReleaseEvent, ReleaseSteps

_PAGE = 500
_RELEASES_AT_ONCE = 4  # in full, each up to megabytes where it has many parties
_KEEP_ALIVE_SECONDS = 15.0


def streams_router(coordinator: Coordinator, feed: Feed) -> APIRouter:
    """`/v1/events`, `/v1/parties/{party}/releases` and `/v1/releases/{id}/events`."""
    router = APIRouter(prefix="/v1", tags=["events"])

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

    def steps(party: str, after: int) -> ReleaseSteps:
        with coordinator.store.read() as tx:
            require_party(tx, party)
            last = min(after + _PAGE, tx.events.last())
            found = tx.events.steps_of(party, after=after, last=last, limit=_RELEASES_AT_ONCE)
            if len(found) == _RELEASES_AT_ONCE:
                last = found[-1][1]
            return ReleaseSteps(items=tuple(release_details(require_release(tx, one)) for one, _ in found), last=last)

    @router.get("/parties/{party}/releases")
    async def wait_for_steps(party: str, query: Annotated[EventsQuery, Query()]) -> ReleaseSteps:
        """Releases of a member in full that took a step after an event, waiting up to 30 seconds for the first.

        A proposal is one, the last approval, the last message of an exchange, and the end: after each of them something
        can be due of every party. What one party did while others are waited for is none.
        """
        await feed.wait(query.after, timeout_seconds=query.wait_seconds, party=party)
        return await run_in_threadpool(steps, party, query.after)

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
