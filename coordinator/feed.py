"""Waiting for events without a thread each: woken by own events, and a few looks a second for others'."""

import asyncio
from contextlib import suppress
from time import monotonic

from commingle.coordinator.store.store import Store

_POLL_SECONDS = 0.2


class Feed:
    """The newest event's number, looked up after every event of this process and otherwise every `_POLL_SECONDS`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = asyncio.Lock()
        self._last = 0
        self._looked = -_POLL_SECONDS
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self.stopping = False
        store.on_event = self._wake

    def stop(self) -> None:
        """Let everybody go who waits: the process is about to end."""
        self.stopping = True

    async def last(self) -> int:
        """The newest event's number, a fraction of a second old at most."""
        async with self._lock:
            if monotonic() - self._looked >= _POLL_SECONDS:
                self._looked = monotonic()  # before the look: what is committed during it asks for another
                self._last = await asyncio.to_thread(self._look)
            return self._last

    async def wait(self, seq: int, *, timeout_seconds: float) -> None:
        """Return as soon as there is an event after `seq`, or after the time-out, or when the process ends."""
        until = monotonic() + timeout_seconds
        while True:
            committed = self._next_commit()  # before the look, so that none falls between the two
            if await self.last() > seq or self.stopping or (left := until - monotonic()) <= 0:
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
            return tx.events.last()
