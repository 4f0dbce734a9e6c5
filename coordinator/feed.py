"""Waiting for events without a thread each: woken by what this process or, on PostgreSQL, any replica commits."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from time import monotonic

from commingle.coordinator.errors import StorageError
from commingle.coordinator.store.store import Store

_POLL_SECONDS = 1.0  # what another process does to an SQLite file, or while notices cannot be heard


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """Somebody who waits for an event after `seq`, of a party's releases where one is named."""

    seq: int
    party: str | None
    loop: asyncio.AbstractEventLoop
    woken: asyncio.Event


class Feed:
    """The newest event's number, and that of each party's releases.

    Both are looked up after every event for which somebody waits, and else every `_POLL_SECONDS`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = asyncio.Lock()
        self._looking = Lock()
        self._last: int | None = None
        self._looked = -_POLL_SECONDS
        self._waiters: set[_Waiter] = set()
        # the newest event with which a release of a party took a step; of who is not in it that may be `_unknown`
        self._steps: dict[str, int] = {}
        self._unknown = 0
        self._life = 0
        self.stopping = False
        store.on_event = self._committed

    def stop(self) -> None:
        """Let everybody go who waits: the process is about to end."""
        self.stopping = True

    async def last(self, party: str | None = None) -> int:
        """The newest event's number, or that of the newest step of a party's releases, which may be said too high."""
        async with self._turn:
            if monotonic() - self._looked >= _POLL_SECONDS:
                await asyncio.to_thread(self._look)
        return self._known(party)

    def state(self, party: str) -> tuple[int, int, int]:
        """What is known: how often the database was set back, and the two numbers of `last`."""
        return self._life, self._known(None), self._known(party)

    async def wait(self, seq: int, *, timeout_seconds: float, party: str | None = None) -> None:
        """Return as soon as there is an event after `seq`, or after the time-out, or when the process ends.

        Where a party is named, as soon as one of its releases took a step after `seq`.
        """
        until = monotonic() + timeout_seconds
        with self._waiting(seq, party) as woken:  # before the look, so that no event falls between the two
            while await self.last(party) <= seq and not self.stopping and (left := until - monotonic()) > 0:
                with suppress(TimeoutError):  # another process may have recorded one
                    async with asyncio.timeout(min(_POLL_SECONDS, left)):
                        await woken.wait()
                woken.clear()

    @contextmanager
    def _waiting(self, seq: int, party: str | None) -> Iterator[asyncio.Event]:
        waiter = _Waiter(seq, party, asyncio.get_running_loop(), asyncio.Event())
        self._waiters.add(waiter)
        try:
            yield waiter.woken
        finally:
            self._waiters.discard(waiter)

    def _known(self, party: str | None) -> int:
        return (self._last or 0) if party is None else self._steps.get(party, self._unknown)

    def _committed(self) -> None:
        """Something was, on any thread: look who waits for it, there and then, and wake nobody else."""
        self._looked = -_POLL_SECONDS
        if self._waiters:
            with suppress(StorageError):  # those who wait look again within `_POLL_SECONDS`
                self._look()

    def _look(self) -> None:
        with self._looking:
            self._looked = monotonic()  # before the look: what is committed during it asks for another
            with self._store.read() as tx:
                last = tx.events.last()
                if self._last is None or last < self._last:  # or the database was set back
                    self._steps, self._unknown, self._life = {}, last, self._life + 1
                elif last > self._last:
                    self._steps |= tx.events.newest_steps(self._last)
            self._last = last
        for waiter in self._waiters.copy():  # others come and go meanwhile
            if self._known(waiter.party) > waiter.seq:
                with suppress(RuntimeError):  # that loop has ended
                    waiter.loop.call_soon_threadsafe(waiter.woken.set)
