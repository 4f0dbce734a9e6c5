"""What is read from the database: neither wire models nor SQLAlchemy rows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from commingle.coordinator.errors import StorageError
from commingle.shared.documents.dsse import Envelope
from commingle.shared.documents.errors import DocumentError
from commingle.shared.release.rounds import Alignment, Round, State

Item = TypeVar("Item")


@contextmanager
def as_recorded() -> Iterator[None]:
    """A row that makes no sense is nobody's request: something else than a coordinator has written it.

    Raises:
        StorageError: instead of whatever parsing raised.
    """
    try:
        yield
    except (DocumentError, ValueError, TypeError, ArithmeticError):
        raise StorageError(
            "what the database holds was altered", remedy="Its operator runs: commingle coordinator doctor"
        ) from None


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items, and the number to continue after where there are more."""

    items: tuple[Item, ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class Invite:
    """An invite as stored: the secret itself is not."""

    digest: str
    party: str
    created: datetime
    expires: datetime


@dataclass(frozen=True, slots=True)
class PartyRow:
    """A member. Keys are hex; `invite` is the digest of the invite it came with.

    Attributes:
        revoked: when its membership ended.
        departure: signed by the member, where that was itself.
    """

    name: str
    signing_key: str
    sealing_key: str
    fingerprint: str
    invite: str
    enrolled: datetime
    revoked: datetime | None = None
    identity: str | None = None
    departure: str | None = None


@dataclass(frozen=True, slots=True)
class SealedKeyRow:
    """A linkage key one member sent another: the signed message, JSON."""

    sender: str
    created: datetime
    envelope: str


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A signing key a member has or had.

    Attributes:
        rotation: the signed request that brought it, JSON; None for the key of the enrolment.
    """

    fingerprint: str
    party: str
    signing_key: str
    since: datetime
    rotation: str | None


@dataclass(frozen=True, slots=True)
class HeadRow:
    """How far a member's ledger had come: its statement with its key, JSON."""

    party: str
    height: int
    head: str
    document: str


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A bearer token as stored: the secret itself is not."""

    name: str
    digest: str
    scope: str
    created: datetime
    expires: datetime | None
    revoked: datetime | None


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One party's documents in one release, where they are in.

    Attributes:
        statement: the signed block statement.
        body: digest of the block's bytes in the blob store.
        columns, reply: what it signed in an exchange; the bytes under each are kept by its digest while that runs.
    """

    party: str
    approval: Envelope | None = None
    alignment: Envelope | None = None
    aligned: Alignment | None = None
    rejection: Envelope | None = None
    statement: Envelope | None = None
    body: str | None = None
    columns: Envelope | None = None
    reply: Envelope | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """Digests of what was published."""

    manifest: str
    matrix: str
    moments: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What of a release never changes, as listed."""

    id: str
    study: str
    mechanism: str
    created: datetime
    expires: datetime
    n: int
    k: int | None
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one party is."""

    name: str
    approved: bool
    uploaded: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """A release as listed."""

    facts: Facts
    state: State
    reason: str | None
    parties: tuple[Progress, ...]


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """A release with everything recorded about it; `shares` are in the spec's order of parties.

    Attributes:
        spec: None once it was dropped (`Releases.drop_documents`).
    """

    facts: Facts
    spec: Envelope | None
    proposer_key: str
    shares: Mapping[str, ShareRow]
    state: State
    reason: str | None
    files: Files | None

    @property
    def summary(self) -> Summary:
        """The release as listed."""
        parties = (Progress(s.party, s.approval is not None, s.body is not None) for s in self.shares.values())
        return Summary(self.facts, self.state, self.reason, tuple(parties))

    @property
    def round(self) -> Round:
        """The round, as the pure state machine knows it."""
        return Round(
            parties=frozenset(self.shares),
            expires=self.facts.expires,
            state=self.state,
            alignments={name: share.aligned for name, share in self.shares.items() if share.aligned is not None},
            stored=frozenset(name for name, share in self.shares.items() if share.body is not None),
            reason=self.reason,
        )


@dataclass(frozen=True, slots=True)
class EventRow:
    """One line of a release's history. `seq` grows in the order of commits, over all releases."""

    seq: int
    release: str
    at: datetime
    kind: str
    party: str | None
    state: State
