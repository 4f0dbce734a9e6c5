"""A background thread: it publishes complete releases, ends expired ones and tidies up.

What is to be done is read from the database every time, so a restart or a crash at any point is recovered by the next
round of work, whichever replica does it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic
from typing import TypeAlias

import structlog

from commingle.coordinator.blobs import LEAST_AGE
from commingle.coordinator.coordinator import Coordinator
from commingle.coordinator.errors import LostBlobError
from commingle.coordinator.exchanges import remove_messages
from commingle.coordinator.publishing import ask_again, expire, publish
from commingle.shared.errors import CommingleError

INTERVAL_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 300.0
_LONGEST_WAIT_SECONDS = 5.0  # for a database that is away
_DOUBLINGS = 10
_LOST_AFTER = 6  # looks at a block that is not there: a minute, in which a directory may settle
_CLEANING_SECONDS = 3600.0
_LOOKING_SECONDS = 60.0
_FILES_AT_ONCE = 100
_log = structlog.get_logger()

Step: TypeAlias = Callable[[Coordinator, str], None]


@dataclass(slots=True)
class _Trouble:
    """What went wrong with one step on one release since it last went well.

    Attributes:
        failures: of any kind.
        lost: those of them for want of a block.
        not_before: when it may be tried again, by the publisher's timer.
    """

    failures: int = 0
    lost: int = 0
    not_before: float = 0.0


class Publisher:
    """Work on one coordinator's releases.

    Args:
        coordinator: whose releases.
        interval_seconds: the pause between looks at the database where nobody calls `wake`.
        timer: seconds that only grow, for the pauses after a failure.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        timer: Callable[[], float] = monotonic,
    ) -> None:
        self._coordinator = coordinator
        self._interval_seconds = interval_seconds
        self._timer = timer
        self._troubles: dict[tuple[Step, str], _Trouble] = {}
        self._clean_at = self._look_at = timer()
        self._newest = 0
        self._stopping = Event()
        self._woken = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin working in the background."""
        self._stopping.clear()
        self._thread = Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the release at hand and end the thread."""
        self._stopping.set()
        self.wake()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def wake(self) -> None:
        """There may be something to do."""
        self._woken.set()

    def run_once(self) -> None:
        """Do everything there is to do now. One release's fault delays that release alone."""
        self._coordinator.store.prepare()
        with self._coordinator.store.read() as tx:
            overdue, complete = tx.releases.overdue(self._coordinator.clock()), tx.releases.complete()
            newest = tx.events.last()
        ended = self._exchanges_over(newest)
        for release in overdue:
            self._attempt(expire, release)
        for release in complete:
            if release not in overdue:
                self._attempt(publish, release)
        for release in ended:
            self._attempt(remove_messages, release)
        if not self._stopping.is_set() and self._timer() >= self._clean_at:
            self._clean_at = self._timer() + _CLEANING_SECONDS
            prune(self._coordinator)
            clean(self._coordinator)

    def _exchanges_over(self, newest: int) -> tuple[str, ...]:
        """Releases that are over and of which messages may be there.

        Looked for after events, as buckets charge for every look; and each minute, as a message may have come too late.
        """
        if newest == self._newest and self._timer() < self._look_at:
            return ()
        exchanging = self._coordinator.blobs.running_releases()
        with self._coordinator.store.read() as tx:
            ended = tx.releases.over(exchanging)
        self._newest, self._look_at = newest, self._timer() + _LOOKING_SECONDS
        return ended

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._woken.clear()
            failures += 1
            try:
                self.run_once()
                if failures > 1:
                    _log.info("publisher works again")
                failures = 0
            except CommingleError as error:  # the database is away; it was logged where it happened
                _log.warning("publisher waits", error=error.code)
            except Exception as error:  # noqa: BLE001 - this thread must outlive any fault
                _log.error("publisher fault", error=type(error).__name__)
            longest = max(self._interval_seconds, _LONGEST_WAIT_SECONDS)
            self._woken.wait(min(self._interval_seconds * 2 ** min(failures, _DOUBLINGS), longest))

    def _attempt(self, step: Step, release: str) -> None:
        trouble = self._troubles.get((step, release)) or _Trouble()
        if self._stopping.is_set() or self._timer() < trouble.not_before:
            return
        try:
            self._do(step, release, trouble)
        except Exception as error:  # noqa: BLE001 - a poison release must not stop the others
            trouble.failures += 1
            pause = min(self._interval_seconds * 2 ** min(trouble.failures, _DOUBLINGS), _LONGEST_PAUSE_SECONDS)
            trouble.not_before = self._timer() + pause
            self._troubles[step, release] = trouble
            _log.error("work on a release failed", release=release, error=type(error).__name__, again_in_seconds=pause)
        else:
            self._troubles.pop((step, release), None)

    def _do(self, step: Step, release: str, trouble: _Trouble) -> None:
        try:
            step(self._coordinator, release)
        except LostBlobError:
            trouble.lost += 1
            if trouble.lost < _LOST_AFTER:
                raise
            ask_again(self._coordinator, release)


def prune(coordinator: Coordinator) -> int:
    """Drop what nobody needs any more of what ended before the retention; how many releases.

    Of releases that came to nothing the spec and alignment statements; also invites that expired unused,
    sealed linkage keys and nonces. Events and the digests in them stay: the chain is whole.

    Raises:
        StorageError: the database does not work; nothing was dropped.
    """
    now = coordinator.clock()
    before = now - coordinator.retention
    with coordinator.store.write() as tx:
        ended = tx.releases.ended_before(before)
        for release in ended:
            tx.releases.drop_documents(release)
        tx.members.forget_invites(before)
        tx.linkage.forget(before)
        tx.access.forget(now)
    if ended:
        _log.info("documents dropped", releases=len(ended))
    return len(ended)


def clean(coordinator: Coordinator) -> int:
    """Remove what is a day old and belongs to no release that is open or published; how many files.

    Files are stored before they are recorded, perhaps by another replica at this moment. Whoever records one looks for
    it in the same transaction (`require_blobs`); it is removed in a transaction, too, and there is one writer at a
    time. So either it is gone before it is recorded, which is then refused and repeated, or it is recorded before it
    is looked at, and stays.

    Raises:
        StorageError: database or blobs do not work; what was removed until then is gone all the same.
    """
    before = coordinator.clock() - LEAST_AGE
    removed = coordinator.blobs.remove_leftovers(before)
    old = list(coordinator.blobs.old(before))
    for start in range(0, len(old), _FILES_AT_ONCE):
        digests = old[start : start + _FILES_AT_ONCE]
        with coordinator.store.write() as tx:
            unneeded = set(digests) - tx.releases.blobs_in_use(digests)
            removed += sum(coordinator.blobs.remove(digest, before=before) for digest in unneeded)
    if removed:
        _log.info("files removed", count=removed)
    return removed
