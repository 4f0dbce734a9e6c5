"""Verified releases in memory, the least recently used given up first."""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Self

from commingle.services.client import Release
from commingle.services.fit import PreparedMoments
from commingle.shared.documents.keys import Fingerprint
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.moments import SecondMoments
from commingle.shared.documents.spec import ReleaseSpec


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What fits need of a verified release; its matrix is not kept.

    Attributes:
        id: digest of the spec.
        coordinator: fingerprint of the key that signed the manifest.
        pinned: whether that key was known beforehand.
    """

    id: str
    coordinator: Fingerprint
    pinned: bool
    spec: ReleaseSpec
    manifest: Manifest
    moments: SecondMoments
    prepared: PreparedMoments

    @classmethod
    def of(cls, release: Release) -> Self:
        """Everything but the files."""
        found = release.published
        return cls(
            id=found.release,
            coordinator=found.coordinator,
            pinned=release.pinned,
            spec=found.spec,
            manifest=found.manifest,
            moments=found.moments,
            prepared=release.prepared,
        )


class Shelf:
    """Releases by id. However many threads ask for the same one at the same time, it is fetched once.

    Args:
        fetch: downloads and verifies.
        capacity: releases kept.
    """

    def __init__(self, fetch: Callable[[str], Release], *, capacity: int) -> None:
        self._fetch = fetch
        self._capacity = capacity
        self._lock = Lock()
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._pending: dict[str, Future[Held]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def all(self) -> tuple[Held, ...]:
        """What is here now."""
        with self._lock:
            return tuple(self._held.values())

    def get(self, release_id: str) -> Held | None:
        """The release if it is here; never waits."""
        with self._lock:
            if release_id in self._held:
                self._held.move_to_end(release_id)
            return self._held.get(release_id)

    def take(self, release_id: str) -> Held:
        """The release, fetched if it is not here. Raises what `fetch` raises; a failure is not remembered."""
        with self._lock:
            held = self._held.get(release_id)
            if held is not None:
                return held
            others = self._pending.get(release_id)
            mine = self._pending.setdefault(release_id, Future())
        if others is None:
            self._fill(release_id, mine)
        return mine.result()

    def _fill(self, release_id: str, pending: Future[Held]) -> None:
        try:
            held = Held.of(self._fetch(release_id))
        except BaseException as error:  # noqa: BLE001 - handed on to every thread that waits
            with self._lock:
                del self._pending[release_id]
            pending.set_exception(error)
            return
        with self._lock:
            del self._pending[release_id]
            self._held[release_id] = held
            if len(self._held) > self._capacity:
                self._held.popitem(last=False)
        pending.set_result(held)
