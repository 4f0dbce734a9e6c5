"""What every use case of a coordinator works with."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from heapq import heappop, heappush
from threading import Lock
from typing import TypeVar

from commingle.coordinator.blobs import LEAST_AGE, Blobs
from commingle.coordinator.errors import OtherBytesError, QuotaError, StateError, UnknownError
from commingle.coordinator.store.releases import Files, ReleaseRow
from commingle.coordinator.store.store import Store, Transaction
from commingle.shared.documents.dsse import Envelope, SigningKey, Verified, VerifyingKey
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.errors import SpecError
from commingle.shared.release.audit import CoordinatorAudit, member_log
from commingle.shared.release.checks import open_spec
from commingle.shared.release.matrix import ReleaseSizes
from commingle.shared.release.rounds import Event, Refused, Round, advance
from commingle.shared.runtime.files import Disks
from commingle.shared.runtime.request_signing import SignedRequest
from commingle.shared.runtime.settings import Clock
from commingle.shared.wire import ReleaseSummary

STAYS = LEAST_AGE + timedelta(hours=2)
"""The longest time that blocks of a release that came to nothing are kept."""
_GIBIBYTE = 1 << 30
_RELEASE = re.compile("[0-9a-f]{64}")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Quotas:
    """How much members may have a coordinator keep: the operator's limits, in bytes.

    What a release can take follows from its spec. All of it counts from its proposal on, against the member that
    proposed it. So the sum comes from the database alone, is the same at every replica, and what was accepted can be
    sent. What is published counts for ever; what came to nothing counts for as long as its blocks are there.

    Attributes:
        message: the largest body that a party sends.
        release: all that one release takes.
        member: all that the releases of one proposer take. The coordinator's own have no such limit.
    """

    message: int = 16 * _GIBIBYTE
    release: int = 64 * _GIBIBYTE
    member: int = 256 * _GIBIBYTE

    def require_accepted(self, sizes: ReleaseSizes) -> None:
        """Refuse a release if one of its messages or blocks could not be accepted later. Raises SpecError."""
        remedy = "Ask fewer columns, rows or buckets; or the operator raises {} in the coordinator's settings."
        if sizes.largest > self.message:
            raise SpecError(
                f"a member would send {_shown(sizes.largest)} at once, and {_shown(self.message)} are taken",
                remedy=remedy.format("largest_message_bytes"),
            )
        if (whole := sizes.exchanged + sizes.kept) > self.release:
            raise SpecError(
                f"it would take {_shown(whole)}, and a release may take {_shown(self.release)}",
                remedy=remedy.format("release_bytes"),
            )

    def require_share(self, party: str, taken: int, sizes: ReleaseSizes) -> None:
        """Refuse a release if the releases of its proposer would take too much. Raises QuotaError."""
        if taken + sizes.exchanged + sizes.kept > self.member:
            raise QuotaError(
                f"with it the releases of {party} would take {_shown(taken + sizes.exchanged + sizes.kept)}, and a "
                f"member may have {_shown(self.member)}",
                remedy="Wait until open ones are over; or the operator raises member_bytes in the settings.",
            )


def _shown(count: int) -> str:
    return f"{count / _GIBIBYTE:.1f} GiB" if count >= _GIBIBYTE else f"{count:,} bytes"


class Reads:
    """Nonces of members' signed requests that read, while their signatures hold; strangers cannot fill it.

    Kept in memory: to remember one durably would make every read a write. Another replica, or this process after a
    restart, would answer a replay within the few minutes for which a signature holds. Only somebody who saw the request
    under its encryption could replay it, and it changes nothing.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: set[tuple[str, str]] = set()
        self._due: list[tuple[datetime, tuple[str, str]]] = []

    def remember(self, request: SignedRequest, *, now: datetime) -> bool:
        """Remember a nonce for as long as its signature holds; False if it is remembered already."""
        place = request.signer, request.nonce
        with self._lock:
            while self._due and self._due[0][0] < now:
                self._known.discard(heappop(self._due)[1])
            if place in self._known:
                return False
            self._known.add(place)
            heappush(self._due, (request.forget, place))
            return True


@dataclass(frozen=True, slots=True)
class Coordinator:
    """One coordinator: who it is and what it remembers with.

    Attributes:
        retention: how long we keep the documents of a release that came to nothing.
        most_proposals: the most open proposals of one member, and the most ended ones that we keep whole.
        disks: the disks of data and bodies, with the space to keep free on them.
        reads: signed reading requests that this process has answered.
    """

    name: str
    key: SigningKey
    store: Store
    blobs: Blobs
    clock: Clock
    public_reads: bool = True
    retention: timedelta = timedelta(days=30)
    most_proposals: int = 50
    quotas: Quotas = field(default_factory=Quotas)
    disks: Disks = field(default_factory=lambda: Disks((), 0))
    reads: Reads = field(default_factory=Reads)


def require_release(tx: Transaction, release: str) -> ReleaseRow:
    return _require(tx.releases.get, release)


def require_summary(tx: Transaction, release: str) -> ReleaseSummary:
    return _require(tx.releases.summary, release)


def _require(find: Callable[[str], Found | None], release: str) -> Found:
    # an id that cannot be one never reaches the database
    found = find(release) if _RELEASE.fullmatch(release) else None
    if found is None:
        raise UnknownError("there is no such release", remedy="Check the id; GET /v1/releases lists them.")
    return found


def spec_of(release: ReleaseRow) -> Verified[ReleaseSpec]:
    """The release's verified spec. Raises StateError if the release ended long ago and its spec was dropped."""
    if release.spec is None:
        raise StateError(
            f"the release has long been {release.state}, and its spec is no longer kept", remedy="Propose a new one."
        )
    return _open_spec(release.spec, release.proposer_key)


@lru_cache(maxsize=8)  # every step of a release asks for it, and it never changes
def _open_spec(spec: Envelope, proposer_key: str) -> Verified[ReleaseSpec]:
    return open_spec(spec, [VerifyingKey.from_hex(proposer_key)])


def share_of(spec: Verified[ReleaseSpec], party: str) -> PartySpec:
    share = next((share for share in spec.document.parties if share.name == party), None)
    if share is None:
        raise UnknownError(f"{party} is not a member of this release", remedy="Check the release id and the name.")
    return share


def advance_round(current: Round, event: Event, coordinator: Coordinator) -> Round:
    """The round after an event. Raises StateError if the event is refused."""
    after = advance(current, event, now=coordinator.clock())
    if isinstance(after, Refused):
        raise StateError(after.reason, remedy="GET the release to see where it stands; propose a new one if it ended.")
    return after


def is_repetition(recorded: Envelope | None, offered: Envelope, *, what: str) -> bool:
    """Whether this very document is recorded already. Raises OtherBytesError if another one is in its place."""
    if recorded is not None and recorded.digest != offered.digest:
        raise OtherBytesError(
            f"another {what} is recorded already", remedy="Send the very bytes that were sent before."
        )
    return recorded is not None


def record(
    tx: Transaction,
    coordinator: Coordinator,
    release: str,
    after: Round,
    *,
    kind: str,
    party: str | None = None,
    files: Files | None = None,
    document: str | None = None,
) -> None:
    """Write a round back together with its event; `document` is the digest of what the event is about."""
    tx.releases.save(release, after, files)
    now = coordinator.clock()
    tx.events.add(release=release, at=now, kind=kind, party=party, state=after.state, document=document)


def require_blobs(coordinator: Coordinator, digests: Iterable[str]) -> None:
    """Refuse to record files that were removed meanwhile (`publisher.clean`). Raises StorageError."""
    for digest in digests:
        coordinator.blobs.require(digest)


def export_audit(coordinator: Coordinator) -> SignedDocument:
    """All events up to now, for auditors, under the coordinator's signature."""
    with coordinator.store.read() as tx:
        entries, head = tx.events.chain()
    audit = CoordinatorAudit(coordinator=coordinator.name, exported=coordinator.clock(), head=head, entries=entries)
    return SignedDocument.of(audit, coordinator.key)


def export_member_log(coordinator: Coordinator) -> SignedDocument:
    """Every key of every member, as a chain under the coordinator's signature. Raises StorageError."""
    with coordinator.store.read() as tx:
        changes = tx.events.memberships()
    return SignedDocument.of(member_log(changes, exported=coordinator.clock()), coordinator.key)
