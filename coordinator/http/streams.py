"""Endpoints that wait: for all events by long polling, for one release's and a party's steps as server-sent events."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from commingle.coordinator.coordinator import Coordinator, require_summary
from commingle.coordinator.feed import Feed
from commingle.coordinator.http.access import Authenticator
from commingle.coordinator.http.steps import Steps
from commingle.coordinator.http.views import EventsQuery, release_event
from commingle.coordinator.members import require_party
from commingle.coordinator.store.rows import EventRow
from commingle.coordinator.store.store import Store
from commingle.shared.wire import EventPage, ReleaseEvent, ReleaseSteps

_PAGE = 500
_KEEP_ALIVE_SECONDS = 15.0
_EVENTS = "text/event-stream"
_UNKEPT = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # by no proxy on the way


def streams_router(coordinator: Coordinator, auth: Authenticator, feed: Feed) -> APIRouter:
    """`/v1/events`, `/v1/parties/{party}/releases` and `/v1/releases/{id}/events`."""
    router = APIRouter(prefix="/v1", tags=["events"], dependencies=[Depends(auth.reader)])

    steps = Steps(coordinator.store, feed)

    def member(party: str) -> None:
        with coordinator.store.read() as tx:
            require_party(tx, party)

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

    @router.get("/parties/{party}/releases", response_model=ReleaseSteps, responses={200: {"content": {_EVENTS: {}}}})
    async def wait_for_steps(
        party: str,
        query: Annotated[EventsQuery, Query()],
        signer: Annotated[str | None, Depends(auth.reader)],
        accept: Annotated[str, Header(include_in_schema=False)] = "",
    ) -> Response:
        """Releases of a member in full that took a step after an event, waiting up to 30 seconds for the first.

        A proposal is one, the last approval, the last message of an exchange, and the end: after each of them something
        can be due of every party. What one party did while others are waited for is none. With an end come the members'
        newest ledger heads, where the request is signed by that member. Who accepts `text/event-stream` is given such
        answers one after the other for some minutes, an empty one after every `wait_seconds` (at least 1) without any.
        """
        await run_in_threadpool(member, party)  # refuses an unknown one before a stream begins
        by_itself = signer == party
        if accept == _EVENTS:
            told = steps.stream(party, query.after, query.wait_seconds, by_itself=by_itself)
            return StreamingResponse(told, media_type=_EVENTS, headers=_UNKEPT)
        _, answer = await steps.next(party, query.after, query.wait_seconds, by_itself=by_itself)
        return Response(answer, media_type="application/json")

    @router.get("/releases/{release}/events", response_class=StreamingResponse)
    async def follow_release(
        release: str, last_event_id: Annotated[int, Header(ge=0, lt=1 << 62)] = 0
    ) -> StreamingResponse:
        """The release's history as server-sent events; ends after a final state."""
        await run_in_threadpool(_look, coordinator.store, release, 0)  # refuses an unknown one before the stream begins
        return StreamingResponse(
            _follow(coordinator.store, feed, release, last_event_id),
            media_type=_EVENTS,
            headers=_UNKEPT,
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
        state = require_summary(tx, release).state
        found = tx.events.after(seq, limit=_PAGE, release=release)
    return found, state.final and len(found) < _PAGE


def _server_sent(event: ReleaseEvent) -> str:
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n"
