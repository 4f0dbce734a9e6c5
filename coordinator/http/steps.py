"""What agents wait on: steps that the releases of a member took, one answer or a stream of them."""

from asyncio import Lock
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool

from commingle.coordinator.coordinator import require_release
from commingle.coordinator.errors import CoordinatorError
from commingle.coordinator.feed import Feed
from commingle.coordinator.http.views import release_details
from commingle.coordinator.store.events import Step
from commingle.coordinator.store.store import Store
from commingle.shared.text import ascii_json

_EVENTS_AT_ONCE = 500
_RELEASES_AT_ONCE = 4  # in full, each up to megabytes where it has many parties
_KEPT = 2 * _RELEASES_AT_ONCE
_STREAM_SECONDS = 300.0  # then who listens has to show anew that it may
_LEAST_SECONDS = 1.0
_Found = TypeVar("_Found")


class Steps:
    """Answers `{"items": …, "last": …, "heads": …}`, as bytes.

    The parties of a release are told of the same step at the same time: the first looks it up for all, and no party is
    shown less than there was after that step.
    """

    def __init__(self, store: Store, feed: Feed) -> None:
        self._store = store
        self._feed = feed
        self._turn = Lock()
        self._found: dict[tuple[object, ...], Any] = {}

    async def next(self, party: str, after: int, seconds: float, *, by_itself: bool) -> tuple[int, bytes]:
        """The first after an event, or none after that time; and the number of the event to go on after.

        `by_itself`: that member asks, and is given the ledger heads with the end of a release.
        """
        await self._feed.wait(after, timeout_seconds=seconds, party=party)
        life, newest, last = self._feed.state(party)
        if last <= after:
            return min(after, newest), _answer((), min(after, newest), None)
        last = min(after + _EVENTS_AT_ONCE, last)
        steps = await self._once((life, after, last), partial(self._steps, after, last))
        own = [step for step in steps if party in step.parties][:_RELEASES_AT_ONCE]
        if len(own) == _RELEASES_AT_ONCE:
            last = own[-1].seq
        shown = [await self._once((life, step), partial(self._show, step.release)) for step in own]
        over = by_itself and any(final for _, final in shown)
        heads = await run_in_threadpool(self._heads) if over else None
        return last, _answer((text for text, _ in shown), last, heads)

    async def stream(self, party: str, after: int, seconds: float, *, by_itself: bool) -> AsyncIterator[bytes]:
        """All after an event as server-sent events, until the process ends or for some minutes."""
        until = monotonic() + _STREAM_SECONDS
        with suppress(CoordinatorError):  # who asks anew is told
            while monotonic() < until and not self._feed.stopping:
                after, answer = await self.next(party, after, max(seconds, _LEAST_SECONDS), by_itself=by_itself)
                yield b"event: steps\ndata: %b\n\n" % answer

    async def _once(self, key: tuple[object, ...], look: Callable[[], _Found]) -> _Found:
        async with self._turn:
            if key not in self._found:
                self._found[key] = await run_in_threadpool(look)
                while len(self._found) > _KEPT:
                    del self._found[next(iter(self._found))]
            found: _Found = self._found[key]
            return found

    def _steps(self, after: int, last: int) -> tuple[Step, ...]:
        with self._store.read() as tx:
            return tx.events.steps(after=after, last=last)

    def _show(self, release: str) -> tuple[bytes, bool]:
        """A release in full, and whether it is over."""
        with self._store.read() as tx:
            found = release_details(require_release(tx, release))
        return ascii_json(found.model_dump(mode="json")), found.state.final

    def _heads(self) -> tuple[bytes, ...]:
        with self._store.read() as tx:
            return tuple(row.document.encode() for row in tx.heads.newest_of_each())


def _answer(items: Iterable[bytes], last: int, heads: Iterable[bytes] | None) -> bytes:
    shown = b"null" if heads is None else b"[%b]" % b",".join(heads)
    return b'{"items":[%b],"last":%d,"heads":%b}' % (b",".join(items), last, shown)
