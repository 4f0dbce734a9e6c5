"""A background thread: it publishes complete releases, ends expired ones and tidies up.

It reads what to do from the database every time, so the next round of work, at whichever replica, recovers from a
restart or a crash at any point.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from threading import Event, Thread
from time import monotonic
from typing import TypeAlias

import numpy as np
import structlog
from numpy.typing import NDArray

from commingle.coordinator.blobs import LEAST_AGE
from commingle.coordinator.coordinator import Coordinator, record, require_blobs, require_release, spec_of
from commingle.coordinator.errors import LostBlobError
from commingle.coordinator.rounds import agreed_transcript, remove_messages
from commingle.coordinator.store.releases import Files, ReleaseRow
from commingle.shared import __version__
from commingle.shared.documents.dsse import Verified
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import encode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import BlockStatement, SignedDocument, open_statement
from commingle.shared.errors import CommingleError, ProtocolError, VerificationError
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.matrix import assemble, check_block, encode_matrix, second_moments
from commingle.shared.release.plan import privacy_statement, published_columns
from commingle.shared.release.rounds import Abort, LoseBlocks, Publish, Refused, Round, Tick, advance, complete
from commingle.shared.release.verification import verify_release
from commingle.shared.runtime import faults, telemetry

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


def publish(coordinator: Coordinator, release: str) -> None:
    """Publish a complete release, or end it with the reason why it cannot be published.

    Safe to repeat and to race: the first to commit has published; the work of the others is dropped.

    Raises:
        LostBlobError: a block is gone or damaged; see `ask_again`.
        StorageError: blobs or database do not work; nothing was recorded.
    """
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    if not complete(found.round):
        return
    try:
        with telemetry.span("assemble", release):
            publication = _make_publication(coordinator, found)
    except ProtocolError as error:
        _abort(coordinator, release, f"the coordinator's check before publishing failed: {error}")
        return
    files = Files(*map(coordinator.blobs.put, publication))
    faults.reach("coordinator.publication.written")
    with coordinator.store.write() as tx:
        after = advance(require_release(tx, release).round, Publish(), now=coordinator.clock())
        if isinstance(after, Refused):
            return
        require_blobs(coordinator, (files.manifest, files.matrix, files.moments))
        record(tx, coordinator, release, after, kind="published", files=files, document=files.manifest)
    faults.reach("coordinator.publication.committed")
    _trace_end(coordinator, found, after)
    _log.info("published", release=release, state=after.state)


def _make_publication(coordinator: Coordinator, release: ReleaseRow) -> tuple[bytes, bytes, bytes]:
    spec = spec_of(release)
    document = spec.document
    transcript = agreed_transcript(release)
    blocks = [_read_block(coordinator, release, spec, party.name, transcript) for party in document.parties]
    integers = assemble(document, blocks)
    del blocks
    matrix = encode_matrix(document, spec.digest, integers)
    moments = encode(second_moments(document, spec.digest, integers))
    published = Manifest(
        release=spec.digest,
        spec=spec.envelope,
        proposer_key=release.proposer_key,
        approvals=release.signed("approval"),
        blocks=release.signed("block"),
        rows=mechanism_of(document).rows(document.terms),
        step=mechanism_of(document).step(document.terms),
        columns=published_columns(document),
        matrix_sha256=sha256(matrix).hexdigest(),
        moments_sha256=sha256(moments).hexdigest(),
        privacy=privacy_statement(document),
        published=coordinator.clock(),
        software=f"commingle {__version__}",
    )
    manifest = encode(SignedDocument.of(published, coordinator.key))
    verify_release(manifest, matrix, moments, trusted_coordinator=coordinator.key.fingerprint)
    return manifest, matrix, moments


def expire(coordinator: Coordinator, release: str) -> None:
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        after = advance(found.round, Tick(), now=coordinator.clock())
        if isinstance(after, Refused) or after.state is found.state:
            return
        record(tx, coordinator, release, after, kind="expired")
    faults.reach("coordinator.expiry.committed")
    _trace_end(coordinator, found, after)
    _log.info("expired", release=release, state=after.state)


def ask_again(coordinator: Coordinator, release: str) -> None:
    """Have members send lost blocks of a complete release once more: they keep theirs until it is over."""
    with coordinator.store.read() as tx:
        bodies = {name: share.body for name, share in require_release(tx, release).shares.items()}
    lost = frozenset(name for name, body in bodies.items() if body is not None and _is_lost(coordinator, body))
    if not lost:
        return
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        after = advance(found.round, LoseBlocks(lost), now=coordinator.clock())
        if isinstance(after, Refused):
            return
        for party in sorted(lost):
            statement = found.shares[party].block
            tx.releases.lose_block(release, party)
            document = None if statement is None else statement.digest
            record(tx, coordinator, release, after, kind="block-lost", party=party, document=document)
    _log.error("blocks lost, asked for again", release=release, parties=sorted(lost))


def _is_lost(coordinator: Coordinator, body: str) -> bool:
    try:
        coordinator.blobs.open(body).close()
    except LostBlobError:
        return True
    return False


def _abort(coordinator: Coordinator, release: str, reason: str) -> None:
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        if not complete(found.round):
            return
        after = advance(found.round, Abort(reason), now=coordinator.clock())
        if isinstance(after, Refused):
            return
        record(tx, coordinator, release, after, kind="aborted")
    _trace_end(coordinator, found, after)
    _log.error("aborted", release=release, state=after.state)


def _trace_end(coordinator: Coordinator, found: ReleaseRow, after: Round) -> None:
    began = found.listed.created
    telemetry.ended(found.listed.id, state=after.state, proposed=began, now=coordinator.clock())


def _read_block(
    coordinator: Coordinator, release: ReleaseRow, spec: Verified[ReleaseSpec], party: str, transcript: str | None
) -> NDArray[np.int64]:
    share = release.shares[party]
    if share.block is None or share.body is None:
        raise AssertionError("a complete release has every block")
    statement = open_statement(share.block, BlockStatement, spec.document.party(party), spec=spec.digest)
    if statement.document.transcript != transcript:
        raise VerificationError(f"the block of {party} is not from this exchange", remedy="Propose a new release.")
    with coordinator.blobs.open(share.body) as file:
        return check_block(file.read(), statement.document)


@dataclass(slots=True)
class _Trouble:
    failures: int = 0  # in a row, of one step on one release
    lost: int = 0  # how many of these failures lacked a block
    not_before: float = 0.0  # when it may be tried again, by the publisher's timer


class Publisher:
    """Work on one coordinator's releases.

    Args:
        coordinator: the coordinator of the releases.
        interval_seconds: the pause between looks at the database if nobody calls `wake`.
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
        self._stopping.clear()
        self._thread = Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the current release and end the thread."""
        self._stopping.set()
        self.wake()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def wake(self) -> None:
        self._woken.set()

    def run_once(self) -> None:
        """Do everything there is to do now. One release's fault delays that release alone."""
        self._coordinator.store.prepare()
        with self._coordinator.store.read() as tx:
            newest = tx.events.last()
            whole = newest < self._newest or self._timer() >= self._look_at
            changed = None if whole else tx.events.newest_of_releases(self._newest)
            overdue, complete = tx.releases.overdue(self._coordinator.clock()), tx.releases.complete(changed)
        failed = [release for step, release in self._troubles if step is publish]
        ended = self._exchanges_over(newest, whole=whole)
        for release in overdue:
            self._attempt(expire, release)
        for release in dict.fromkeys([*complete, *failed]):
            if release not in overdue:
                self._attempt(publish, release)
        for release in ended:
            self._attempt(remove_messages, release)
        if not self._stopping.is_set() and self._timer() >= self._clean_at:
            self._clean_at = self._timer() + _CLEANING_SECONDS
            prune(self._coordinator)
            clean(self._coordinator)

    def _exchanges_over(self, newest: int, *, whole: bool) -> tuple[str, ...]:
        """Releases that are over and may still have messages.

        It looks after events, as buckets charge for every look, and each minute, as a message may have come too late.
        Each minute it also looks for all complete releases; in between, only for those with events.
        """
        if newest == self._newest and not whole:
            return ()
        exchanging = self._coordinator.blobs.running_releases()
        with self._coordinator.store.read() as tx:
            ended = tx.releases.over(exchanging)
        self._newest = newest
        if whole:
            self._look_at = self._timer() + _LOOKING_SECONDS
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

    It drops the spec and alignment statements of releases that came to nothing, invites that expired unused, sealed
    linkage keys and nonces. Events and the digests in them stay, so the chain is whole.
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
    """Remove files that are a day old and belong to no release that is open or published; how many.

    Files are stored before they are recorded, perhaps by another replica at this moment. The transaction that records a
    file looks for it (`require_blobs`). A transaction removes it, too, and there is one writer at a time. So either it
    is gone before it is recorded, and the recording is refused and repeated; or it is recorded before we look, and
    stays. The first look, which makes nobody wait, sorts out what is needed.
    """
    before = coordinator.clock() - LEAST_AGE
    removed = coordinator.blobs.remove_leftovers(before)
    if old := list(coordinator.blobs.old(before)):
        with coordinator.store.read() as tx:
            in_use = tx.releases.blobs_in_use()
        old = [digest for digest in old if digest not in in_use]
    for start in range(0, len(old), _FILES_AT_ONCE):
        digests = old[start : start + _FILES_AT_ONCE]
        with coordinator.store.write() as tx:
            unneeded = set(digests) - tx.releases.blobs_in_use(digests)
            removed += sum(coordinator.blobs.remove(digest, before=before) for digest in unneeded)
    if removed:
        _log.info("files removed", count=removed)
    return removed
