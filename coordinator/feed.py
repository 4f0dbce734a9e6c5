"""Waiting for events without a thread each: however many wait, the database is asked a few times a second."""

import asyncio
from time import monotonic

from commingle.coordinator.store.store import Store

_POLL_SECONDS = 0.2


class Feed:
    """The newest event's number, looked up at most every `_POLL_SECONDS`. It sees what other replicas record, too."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = asyncio.Lock()
        self._last = 0
        self._looked = -_POLL_SECONDS
        self.stopping = False

    def stop(self) -> None:
        """Let everybody go who waits: the process is about to end."""
        self.stopping = True

    async def last(self) -> int:
        """The newest event's number, a fraction of a second old at most."""
        async with self._lock:
            if monotonic() - self._looked >= _POLL_SECONDS:
                self._last = await asyncio.to_thread(self._look)
                self._looked = monotonic()
            return self._last

    async def wait(self, seq: int, *, timeout_seconds: float) -> None:
        """Return as soon as there is an event after `seq`, or after the time-out, or when the process ends."""
        until = monotonic() + timeout_seconds
        while await self.last() <= seq and monotonic() < until and not self.stopping:  # noqa: ASYNC110 - another process may record it
            await asyncio.sleep(min(_POLL_SECONDS, max(0.0, until - monotonic())))

    def _look(self) -> int:
        with self._store.read() as tx:
            return tx.events.last()
