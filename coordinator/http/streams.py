"""Endpoints that wait: long polling for all events; server-sent events for the steps of one release or one party.

No waiting request takes a thread. What this process, or on PostgreSQL any replica, commits wakes it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock
from time import monotonic
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from commingle.coordinator.coordinator import Coordinator, require_release, require_summary
from commingle.coordinator.errors import CoordinatorError, StorageError
from commingle.coordinator.http.access import Authenticator
from commingle.coordinator.http.views import EventsQuery, release_details
from commingle.coordinator.members import require_party
from commingle.coordinator.store.store import Step, Store
from commingle.shared.text import ascii_json
from commingle.shared.wire import EventPage, ReleaseEvent, ReleaseSteps

POLL_SECONDS = 1.0  # what another process does to an SQLite file, or while notices cannot be heard
_EVENTS_AT_ONCE = 500
_RELEASES_AT_ONCE = 4  # in full, each up to megabytes where it has many parties
_KEPT = 2 * _RELEASES_AT_ONCE
_MOST_KNOWN = 10_000
STREAM_SECONDS = 300.0  # then who listens has to show anew that it may
_LEAST_SECONDS = 1.0
_Found = TypeVar("_Found")
_KEEP_ALIVE_SECONDS = 15.0
_EVENTS = "text/event-stream"
_UNKEPT = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # by no proxy on the way


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    seq: int
    about: str | None
    loop: asyncio.AbstractEventLoop
    woken: asyncio.Event


class Feed:
    """Numbers of the newest event, of each release's newest event, and of the newest step of each member's releases.

    It looks them up after every event that somebody waits for, and otherwise every `POLL_SECONDS`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = asyncio.Lock()
        self._looking = Lock()
        self._last: int | None = None
        self._looked = -POLL_SECONDS
        self._waiters: set[_Waiter] = set()
        self._newest: dict[str, int] = {}
        self._unknown = 0  # what is not in it has none after this
        self._watching: asyncio.Task[None] | None = None
        self._life = 0
        self.stopping = False
        store.on_event = self._committed

    def stop(self) -> None:
        """Let every waiting request go: the process is about to end."""
        self.stopping = True
        self._wake(self._waiters.copy())

    async def last(self, about: str | None = None) -> int:
        """The newest event's number, or the newest about a member or a release; the latter may be too high."""
        async with self._turn:
            if monotonic() - self._looked >= POLL_SECONDS:
                await asyncio.to_thread(self._look)
        return self._known(about)

    def state(self, about: str | None) -> tuple[int, int, int]:
        """How often the database was set back, and the two numbers of `last`."""
        return self._life, self._known(None), self._known(about)

    async def wait(self, seq: int, *, timeout_seconds: float, about: str | None = None) -> None:
        """Return as soon as there is an event after `seq`, or after the time-out, or when the process ends.

        If `about` names a member, return when one of its releases takes a step after `seq`; if a release, when it has
        an event.
        """
        with self._waiting(seq, about) as woken:  # before the look, so that no event falls between the two
            if await self.last(about) > seq:
                return
            try:
                async with asyncio.timeout(timeout_seconds):
                    while self._known(about) <= seq and not self.stopping:
                        await woken.wait()
                        woken.clear()
            except TimeoutError:
                await self.last(about)  # nobody leaves while a look is under way: who stops a feed may close its store

    async def _watch(self) -> None:
        while True:  # one task looks for all who wait: another process may have recorded something
            await asyncio.sleep(POLL_SECONDS)
            if not self._waiters:
                return
            with suppress(StorageError):  # a caller who asks again learns of it
                await self.last()

    @contextmanager
    def _waiting(self, seq: int, about: str | None) -> Iterator[asyncio.Event]:
        waiter = _Waiter(seq, about, asyncio.get_running_loop(), asyncio.Event())
        self._waiters.add(waiter)
        if self._watching is None or self._watching.done():
            self._watching = waiter.loop.create_task(self._watch())
        try:
            yield waiter.woken
        finally:
            self._waiters.discard(waiter)

    def _known(self, about: str | None) -> int:
        return (self._last or 0) if about is None else self._newest.get(about, self._unknown)

    def _committed(self) -> None:
        self._looked = -POLL_SECONDS
        if self._waiters:
            with suppress(StorageError):  # they are looked for again within `POLL_SECONDS`
                self._look()

    def _look(self) -> None:
        with self._looking:
            self._looked = monotonic()  # before the look: what is committed during it asks for another
            with self._store.read() as tx:
                last = tx.events.last()
                if self._last is None or last < self._last:  # or the database was set back
                    self._newest, self._unknown, self._life = {}, last, self._life + 1
                elif last > self._last:
                    self._newest |= tx.events.newest_of_releases(self._last) | tx.events.newest_steps(self._last)
                if len(self._newest) > _MOST_KNOWN:
                    self._newest, self._unknown = {}, last
            self._last = last
        self._wake(waiter for waiter in self._waiters.copy() if self._known(waiter.about) > waiter.seq)

    @staticmethod
    def _wake(waiters: Iterable[_Waiter]) -> None:
        for waiter in waiters:
            with suppress(RuntimeError):  # that loop has ended
                waiter.loop.call_soon_threadsafe(waiter.woken.set)


class Shared:
    """Answers that many ask for at the same time: the first looks one up for all. We keep the newest few."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._found: dict[tuple[object, ...], Any] = {}

    async def once(self, key: tuple[object, ...], look: Callable[[], _Found]) -> _Found:
        async with self._turn:
            if key not in self._found:
                self._found[key] = await run_in_threadpool(look)
                while len(self._found) > _KEPT:
                    del self._found[next(iter(self._found))]
            found: _Found = self._found[key]
            return found


class Steps:
    """Answers `{"items": …, "last": …, "heads": …}`, as bytes.

    The members of a release hear of one step at the same time: the first looks it up for all, and no member is shown
    less than there was after that step.
    """

    def __init__(self, store: Store, feed: Feed) -> None:
        self._store = store
        self._feed = feed
        self._shared = Shared()

    async def next(self, party: str, after: int, seconds: float, *, by_itself: bool) -> tuple[int, bytes]:
        """The first step after an event, or none after that time; and the number of the event to go on after.

        `by_itself`: the member itself asks, and receives the ledger heads with the end of a release.
        """
        await self._feed.wait(after, timeout_seconds=seconds, about=party)
        life, newest, last = self._feed.state(party)
        if last <= after:
            return min(after, newest), _answer((), min(after, newest), None)
        last = min(after + _EVENTS_AT_ONCE, last)
        steps = await self._shared.once((life, after, last), partial(self._steps, after, last))
        own = [step for step in steps if party in step.parties][:_RELEASES_AT_ONCE]
        if len(own) == _RELEASES_AT_ONCE:
            last = own[-1].seq
        shown = [await self._shared.once((life, step), partial(self._show, step.release)) for step in own]
        over = by_itself and any(final for _, final in shown)
        heads = await run_in_threadpool(self._heads) if over else None
        return last, _answer((text for text, _ in shown), last, heads)

    async def stream(self, party: str, after: int, seconds: float, *, by_itself: bool) -> AsyncIterator[bytes]:
        """All steps after an event as server-sent events, until the process ends or for some minutes."""
        until = monotonic() + STREAM_SECONDS
        with suppress(CoordinatorError):  # a caller who asks again learns of it
            while monotonic() < until and not self._feed.stopping:
                after, answer = await self.next(party, after, max(seconds, _LEAST_SECONDS), by_itself=by_itself)
                yield b"event: steps\ndata: %b\n\n" % answer

    def _steps(self, after: int, last: int) -> tuple[Step, ...]:
        with self._store.read() as tx:
            return tx.events.steps(after=after, last=last)

    def _show(self, release: str) -> tuple[bytes, bool]:
        with self._store.read() as tx:
            found = release_details(require_release(tx, release))
        return ascii_json(found.model_dump(mode="json")), found.state.final

    def _heads(self) -> tuple[bytes, ...]:
        with self._store.read() as tx:
            return tuple(text.encode() for text in tx.heads.newest_of_each())


def _answer(items: Iterable[bytes], last: int, heads: Iterable[bytes] | None) -> bytes:
    shown = b"null" if heads is None else b"[%b]" % b",".join(heads)
    return b'{"items":[%b],"last":%d,"heads":%b}' % (b",".join(items), last, shown)


def streams_router(coordinator: Coordinator, auth: Authenticator, feed: Feed) -> APIRouter:
    """`/v1/events`, `/v1/parties/{party}/releases` and `/v1/releases/{id}/events`."""
    router = APIRouter(prefix="/v1", tags=["events"], dependencies=[Depends(auth.reader)])

    steps, pages, histories = Steps(coordinator.store, feed), Shared(), Shared()

    def member(party: str) -> None:
        with coordinator.store.read() as tx:
            require_party(tx, party)

    def page(query: EventsQuery) -> EventPage:
        with coordinator.store.read() as tx:
            found, newest = tx.events.after(query.after, limit=_EVENTS_AT_ONCE), tx.events.last()
        # an `after` beyond the newest event is from before a restored backup: start again from there
        last = found[-1].seq if found else min(query.after, newest)
        return EventPage(items=found, last=last)

    @router.get("/events")
    async def wait_for_events(query: Annotated[EventsQuery, Query()]) -> EventPage:
        """Events of all releases after one, waiting up to 30 seconds for the first."""
        if not query.wait_seconds:  # other processes' newest too
            return await run_in_threadpool(page, query)
        await feed.wait(query.after, timeout_seconds=query.wait_seconds)
        life, newest, _ = feed.state(None)
        return await pages.once((life, newest, query.after), partial(page, query))

    @router.get("/parties/{party}/releases", response_model=ReleaseSteps, responses={200: {"content": {_EVENTS: {}}}})
    async def wait_for_steps(
        party: str,
        query: Annotated[EventsQuery, Query()],
        signer: Annotated[str | None, Depends(auth.reader)],
        accept: Annotated[str, Header(include_in_schema=False)] = "",
    ) -> Response:
        """Releases of a member in full that took a step after an event, waiting up to 30 seconds for the first.

        A proposal is one, the last approval, the last message of an exchange, and the end: after each of them something
        can be due of every member. What one did while others are waited for is none. With an end come the members'
        newest ledger heads, if that member signed the request. Who accepts `text/event-stream` is given such
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
            _follow(coordinator.store, feed, histories, release, last_event_id),
            media_type=_EVENTS,
            headers=_UNKEPT,
        )

    return router


async def _follow(store: Store, feed: Feed, histories: Shared, release: str, seq: int) -> AsyncIterator[str]:
    while True:
        await feed.last()
        life, _, newest = feed.state(release)
        found, ended = await histories.once((life, newest, release, seq), partial(_look, store, release, seq))
        for event in found:
            yield f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n"
        seq = found[-1].seq if found else seq
        if ended or feed.stopping:
            return
        if not found:
            yield ": waiting\n\n"
        await feed.wait(max(seq, newest), timeout_seconds=_KEEP_ALIVE_SECONDS, about=release)


def _look(store: Store, release: str, seq: int) -> tuple[tuple[ReleaseEvent, ...], bool]:
    with store.read() as tx:
        state = require_summary(tx, release).state
        found = tx.events.after(seq, limit=_EVENTS_AT_ONCE, release=release)
    return found, state.final and len(found) < _EVENTS_AT_ONCE
