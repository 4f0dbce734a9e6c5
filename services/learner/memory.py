"""Verified releases in memory, the least recently used given up first."""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock

from commingle.services.client.release import Release
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.release.verification import PublishedRelease


@dataclass(frozen=True, slots=True, eq=False)
class LoadedRelease:
    """What fits need of a verified release; its files are not kept.

    Attributes:
        pinned: whether the coordinator's key was known beforehand.
    """

    published: PublishedRelease
    prepared: PreparedMoments
    pinned: bool


class ReleaseMemory:
    """Releases by id. However many threads ask for the same one at the same time, it is fetched once.

    Args:
        download: fetches and verifies.
        capacity: releases kept.
    """

    def __init__(self, download: Callable[[str], Release], *, capacity: int) -> None:
        self._download = download
        self._capacity = capacity
        self._lock = Lock()
        self._held: OrderedDict[str, LoadedRelease] = OrderedDict()
        self._pending: dict[str, Future[LoadedRelease]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def all(self) -> tuple[LoadedRelease, ...]:
        """What is here now."""
        with self._lock:
            return tuple(self._held.values())

    def get(self, release_id: str) -> LoadedRelease | None:
        """The release if it is here; never waits."""
        with self._lock:
            if release_id in self._held:
                self._held.move_to_end(release_id)
            return self._held.get(release_id)

    def fetch(self, release_id: str) -> LoadedRelease:
        """The release, fetched if it is not here. Raises what `download` raises; a failure is not remembered."""
        with self._lock:
            held = self._held.get(release_id)
            if held is not None:
                return held
            others = self._pending.get(release_id)
            mine = self._pending.setdefault(release_id, Future())
        if others is None:
            self._fill(release_id, mine)
        return mine.result()

    def _fill(self, release_id: str, pending: Future[LoadedRelease]) -> None:
        try:
            release = self._download(release_id)
        except BaseException as error:  # noqa: BLE001 - handed on to every thread that waits
            with self._lock:
                del self._pending[release_id]
            pending.set_exception(error)
            return
        held = LoadedRelease(release.published, release.prepared, release.pinned)
        with self._lock:
            del self._pending[release_id]
            self._held[release_id] = held
            if len(self._held) > self._capacity:
                self._held.popitem(last=False)
        pending.set_result(held)
