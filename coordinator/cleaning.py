"""Removing files that nothing refers to: blocks of rounds that came to nothing, and what crashes left behind.

Files are stored before they are recorded, perhaps by another replica at this moment. Whoever records one looks for it
in the same transaction (`require_blobs`); it is removed in a transaction, too, and there is one writer at a time. So
either it is gone before it is recorded, which is then refused and repeated, or it is recorded before it is looked at,
and stays.
"""

from collections.abc import Iterable
from datetime import timedelta

import structlog

from commingle.coordinator.coordinator import Coordinator

LEAST_AGE = timedelta(days=1)  # also the time to notice that a database was restored which does not know newer files
_AT_ONCE = 100
_log = structlog.get_logger()


def clean(coordinator: Coordinator) -> int:
    """Remove what is a day old and belongs to no release that is open or published; how many files.

    Raises:
        StorageError: database or blobs do not work; what was removed until then is gone all the same.
    """
    before = coordinator.clock() - LEAST_AGE
    removed = coordinator.blobs.remove_leftovers(before)
    old = list(coordinator.blobs.old(before))
    for start in range(0, len(old), _AT_ONCE):
        digests = old[start : start + _AT_ONCE]
        with coordinator.store.write() as tx:
            unneeded = set(digests) - tx.releases.referred(digests)
            removed += sum(coordinator.blobs.remove(digest, before=before) for digest in unneeded)
    if removed:
        _log.info("files removed", count=removed)
    return removed


def require_blobs(coordinator: Coordinator, digests: Iterable[str]) -> None:
    """Refuse to record files that were removed meanwhile. Raises StorageError."""
    for digest in digests:
        coordinator.blobs.open(digest).close()
