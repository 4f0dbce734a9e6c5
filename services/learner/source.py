"""Verified releases in memory, and the coordinator that they come from."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from http import HTTPStatus
from threading import BoundedSemaphore, Lock

from commingle.services.client.release import Release
from commingle.services.client.remote import ReleaseClient
from commingle.services.errors import UnknownCursorError
from commingle.services.learner.views import LoadedRelease, ReleaseItem, ReleaseList
from commingle.shared.documents.dsse import VerifyingKey
from commingle.shared.errors import CommingleError, ProtocolError
from commingle.shared.release.checks import open_spec
from commingle.shared.release.verification import open_manifest
from commingle.shared.runtime.errors import BusyError, RemoteProblemError, UnreachableError

_CAPACITY = 64
_WAITING = 16  # of the 40 threads that serve requests; all others never wait for the coordinator
_PROBE_SECONDS = 2.0


class ReleaseMemory:
    """Releases by id; a full memory drops the least recently used. Threads that ask for the same one fetch it once.

    Args:
        download: fetches and verifies a release.
        capacity: how many releases it keeps.
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
        with self._lock:
            return tuple(self._held.values())

    def get(self, release_id: str) -> LoadedRelease | None:
        """The release, if it is here. Never waits."""
        with self._lock:
            if release_id in self._held:
                self._held.move_to_end(release_id)
            return self._held.get(release_id)

    def fetch(self, release_id: str) -> LoadedRelease:
        """The release, fetched if it is not here. Raises what `download` raises; the next call then fetches anew."""
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


class ReleaseSource:
    """Releases of one coordinator. Several threads may share it.

    Args:
        client: fetches and verifies releases.
        capacity: how many releases it keeps in memory.
        waiting: how many requests may wait for the coordinator at a time.
    """

    def __init__(self, client: ReleaseClient, *, capacity: int = _CAPACITY, waiting: int = _WAITING) -> None:
        self._client = client
        self._slots = BoundedSemaphore(waiting)
        self.memory = ReleaseMemory(client.fetch, capacity=capacity)

    @property
    def coordinator(self) -> str:
        return self._client.base_url

    def fetch(self, release_id: str) -> LoadedRelease:
        held = self.memory.get(release_id)
        if held is not None:
            return held
        with self._slot():
            return self.memory.fetch(release_id)

    def page(self, *, cursor: str | None, limit: int) -> ReleaseList:
        """The coordinator's published releases; while it is away, all that are kept here, in one page."""
        try:
            with self._slot():
                page = self._client.page(cursor=cursor, limit=limit)
        except UnreachableError:
            kept = self._offline_items()
            return ReleaseList(items=[kept[name] for name in sorted(kept)], next=None, source="cache")
        except RemoteProblemError as error:
            if cursor is None or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            raise UnknownCursorError(str(error), remedy=error.remedy) from None
        items = [ReleaseItem.of_summary(summary) for summary in page.items]
        return ReleaseList(items=items, next=page.next, source="coordinator")

    def readiness(self) -> tuple[CommingleError | None, int]:
        """What is wrong with the coordinator, or None, and how many releases are kept here."""
        problem: CommingleError | None = None
        try:
            with self._slot():
                self._client.coordinator(timeout_seconds=_PROBE_SECONDS)
        except CommingleError as error:
            problem = error
        return problem, len(self._offline_items())

    def _offline_items(self) -> dict[str, ReleaseItem]:
        kept = {
            held.published.release: ReleaseItem.of_spec(held.published.release, held.published.spec)
            for held in self.memory.all()
        }
        cache = self._client.cache
        for release in cache.releases() if cache is not None else ():
            manifest = None if release in kept or cache is None else cache.manifest(release)
            item = None if manifest is None else self._item_of(release, manifest)
            if item is not None:
                kept[release] = item
        return kept

    def _item_of(self, release: str, data: bytes) -> ReleaseItem | None:
        try:
            manifest = open_manifest(data, trusted_coordinator=self._client.trusted_coordinator).document
            spec = open_spec(manifest.spec, [VerifyingKey.from_hex(manifest.proposer_key)])
        except ProtocolError:
            return None
        return ReleaseItem.of_spec(release, spec.document) if spec.digest == release else None

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if not self._slots.acquire(blocking=False):
            raise BusyError("too many requests wait for the coordinator", remedy="Try again in a few seconds.")
        try:
            yield
        finally:
            self._slots.release()
