"""Waiting for events without a thread each: woken by what this process or, on PostgreSQL, any replica commits."""

import asyncio
from contextlib import suppress
from time import monotonic

from commingle.coordinator.store.store import Store

_POLL_SECONDS = 1.0  # what another process does to an SQLite file, or while notices cannot be heard


class Feed:
    """The newest event's number, and that of each party's releases.

    Both are looked up after every event, and else every `_POLL_SECONDS`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = asyncio.Lock()
        self._last: int | None = None
        self._looked = -_POLL_SECONDS
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        # the newest event with which a release of a party took a step; of who is not in it that may be `_unknown`
        self._steps: dict[str, int] = {}
        self._unknown = 0
        self.stopping = False
        store.on_event = self._wake

    def stop(self) -> None:
        """Let everybody go who waits: the process is about to end."""
        self.stopping = True

    async def last(self, party: str | None = None) -> int:
        """The newest event's number, or that of the newest step of a party's releases, which may be said too high."""
        async with self._lock:
            if monotonic() - self._looked >= _POLL_SECONDS:
                self._looked = monotonic()  # before the look: what is committed during it asks for another
                self._last = await asyncio.to_thread(self._look)
            newest = self._last or 0
        return newest if party is None else self._steps.get(party, self._unknown)

    async def wait(self, seq: int, *, timeout_seconds: float, party: str | None = None) -> None:
        """Return as soon as there is an event after `seq`, or after the time-out, or when the process ends.

        Where a party is named, as soon as one of its releases took a step after `seq`.
        """
        until = monotonic() + timeout_seconds
        while True:
            committed = self._next_commit()  # before the look, so that none falls between the two
            if await self.last(party) > seq or self.stopping or (left := until - monotonic()) <= 0:
                return
            with suppress(TimeoutError):  # another process may have recorded one
                async with asyncio.timeout(min(_POLL_SECONDS, left)):
                    await committed.wait()

    def _next_commit(self) -> asyncio.Event:
        loop = asyncio.get_running_loop()
        if self._waiting is None or self._waiting[0] is not loop:
            self._waiting = loop, asyncio.Event()
        return self._waiting[1]

    def _wake(self) -> None:
        """Something was committed, on any thread."""
        waiting, self._waiting = self._waiting, None
        self._looked = -_POLL_SECONDS
        if waiting is not None:
            with suppress(RuntimeError):  # that loop has ended
                waiting[0].call_soon_threadsafe(waiting[1].set)

    def _look(self) -> int:
        with self._store.read() as tx:
            last = tx.events.last()
            if self._last is None or last < self._last:  # or the database was set back
                self._steps, self._unknown = {}, last
            elif last > self._last:
                self._steps |= tx.events.newest_steps(self._last)
        return last
