r"""The states of a charge in a party's ledger, the moves between them and the links of a chain: pure functions.

reserved -> debited -> stored -> acked
        \-> released  \--------\-> withdrawn

Before the debit a reservation is given back; after it the charge stays, whatever becomes of the release. What a ledger
that was set back learns from its witnesses is `adopted`: charged for good, nothing of it is made again. What a chain
of these moves comes to is told by `ledger_fold` (docs/proofs/noise-and-accounting.md; docs/threat-model.md).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pydantic import AwareDatetime, ConfigDict

from commingle.shared.documents.model import Digest, Version, WireModel, decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import FIRST_APPROVAL
from commingle.shared.dp.accounting import Cost, Loss
from commingle.shared.errors import DocumentError
from commingle.shared.release.rounds import Refused

ChargeKind = Literal["release", "regression", "unexplained"]
GENESIS = "0" * 64  # the predecessor of the first entry of a chain
EVERY_DATASET = "*"  # no data set in particular: such a charge counts against each


class ChargeState(StrEnum):
    """Where a charge stands. Every state but `released` counts against the cap."""

    RESERVED = "reserved"
    DEBITED = "debited"
    STORED = "stored"
    ACKED = "acked"
    RELEASED = "released"
    WITHDRAWN = "withdrawn"
    ADOPTED = "adopted"


# the state of its charge in which a party signs each document; a first approval before there is one, a rejection at any
_SIGNED_WHILE: Mapping[str, ChargeState] = MappingProxyType(
    {
        "approval": ChargeState.RESERVED,
        "alignment": ChargeState.RESERVED,
        "columns": ChargeState.DEBITED,
        "reply": ChargeState.DEBITED,
        "block": ChargeState.STORED,
        "regression": ChargeState.STORED,
    }
)
SIGNED_BY_PARTIES = frozenset({*_SIGNED_WHILE, "rejection"})
SHOWS_A_DEBIT = frozenset(kind for kind, state in _SIGNED_WHILE.items() if state is not ChargeState.RESERVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeTerms:
    """The subject of a charge: everything that a later decision reads."""

    dataset: str  # the data set's name; `EVERY_DATASET` if it is not known
    study: str
    kind: ChargeKind
    expires: AwareDatetime
    coordinator: str  # fingerprint of the release's coordinator, empty for a regression

    @staticmethod
    def of(spec: ReleaseSpec, party: str, *, coordinator: str) -> "ChargeTerms":
        dataset, study, expires = spec.party(party).dataset, spec.study, spec.expires
        return ChargeTerms(dataset=dataset, study=study, kind="release", expires=expires, coordinator=coordinator)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """A charge as the chain tells it."""

    population: str
    cost: Cost  # in the unit of its data set, and of a keyed one as replacement too
    terms: ChargeTerms
    state: ChargeState = ChargeState.RESERVED
    attempt: int = 0  # drawings of noise so far
    approvals: str | None = None  # digest of the set of approvals relied on, once it is debited
    body_sha256: str | None = None  # of its result, once that is stored

    @property
    def loss(self) -> Loss:
        return self.cost.loss

    @property
    def counts(self) -> bool:
        return self.state is not ChargeState.RELEASED

    @property
    def spent(self) -> bool:
        """Whether it is lost for good: it was debited, or adopted."""
        return self.state not in {ChargeState.RESERVED, ChargeState.RELEASED}


@dataclass(frozen=True, slots=True)
class Reserve:
    """Budget is set aside for an approval, by a new charge."""

    charge: Charge


@dataclass(frozen=True, slots=True)
class Adopt:
    """Witnesses show that a lost branch of this ledger charged this."""

    charge: Charge


@dataclass(frozen=True, slots=True)
class Spend:
    """The reservation is debited, after every approval was verified."""

    approvals: str


@dataclass(frozen=True, slots=True)
class Redraw:
    """Noise is drawn again: nothing of the last attempt can have left."""


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """The result of an attempt is on disk."""

    attempt: int
    body_sha256: str


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The coordinator has it."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The release is given up."""


Event = Reserve | Adopt | Spend | Redraw | RecordBlock | Acknowledge | Withdraw


# the states in which each is possible, and the refusal in others
_MOVES: Mapping[type[Event], tuple[frozenset[ChargeState], str]] = MappingProxyType(
    {
        Spend: (frozenset({ChargeState.RESERVED}), "nothing is reserved for this release"),
        Redraw: (frozenset({ChargeState.DEBITED}), "the release is not waiting for its block"),
        RecordBlock: (frozenset({ChargeState.DEBITED}), "the release is not waiting for its block"),
        Acknowledge: (frozenset({ChargeState.STORED}), "no block is stored for this release"),
        Withdraw: (
            frozenset({ChargeState.RESERVED, ChargeState.DEBITED, ChargeState.STORED}),
            "nothing is left to give up",
        ),
    }
)


def advance(current: Charge | None, event: Event) -> Charge | Refused:
    """The charge after an event, or why the event is refused. `current` is None if nothing was charged yet."""
    if isinstance(event, Reserve):
        return _reserve(current, event.charge)
    if isinstance(event, Adopt):
        return _adopt(current, event.charge)
    sources, otherwise = _MOVES[type(event)]
    if current is None or current.state not in sources:
        return Refused(f"{otherwise} ({current.state if current else 'no charge'})")
    return _move(current, event)


def _move(current: Charge, event: Spend | Redraw | RecordBlock | Acknowledge | Withdraw) -> Charge | Refused:
    match event:
        case Spend(approvals):
            return replace(current, state=ChargeState.DEBITED, attempt=1, approvals=approvals)
        case Redraw():
            return replace(current, attempt=current.attempt + 1)
        case RecordBlock(attempt, _) if attempt != current.attempt:
            return Refused(f"attempt {current.attempt} has taken over")
        case RecordBlock(_, body_sha256):
            return replace(current, state=ChargeState.STORED, body_sha256=body_sha256)
        case Acknowledge():
            return replace(current, state=ChargeState.ACKED)
        case Withdraw():
            unspent = current.state is ChargeState.RESERVED
            return replace(current, state=ChargeState.RELEASED if unspent else ChargeState.WITHDRAWN)


def _reserve(current: Charge | None, new: Charge) -> Charge | Refused:
    if current is not None:
        return Refused(f"this release has been charged already ({current.state})")
    return new if new.loss.rho.units > 0 else Refused("a charge must be positive")


def _adopt(current: Charge | None, new: Charge) -> Charge | Refused:
    if current is not None and current.state is ChargeState.ADOPTED:
        return Refused("it is adopted already")
    if current is not None:
        return replace(current, state=ChargeState.ADOPTED, cost=current.cost.approximate())
    if not any(loss.rho.units or loss.delta for loss in (new.loss, new.cost.replaced)):
        return Refused("a charge must be positive")
    return replace(new, state=ChargeState.ADOPTED)


def refuse_signature(current: Charge | None, document: str) -> Refused | None:
    """Why a party must not sign a document of this kind now, or None."""
    expected, state = _SIGNED_WHILE.get(document), current.state if current else None
    if (state is None) if document == FIRST_APPROVAL else (expected in {None, state}):
        return None
    return Refused(f"the {document} does not belong where its charge is {state or 'not made'}")


def adopted_kind(kind: str) -> str:
    """A ledger keeps documents that a lost branch has signed under this kind."""
    return f"adopted {kind}"


class Link(WireModel):
    """An entry of any chain; more facts stand in it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    previous: Digest


class ExportedChain(WireModel):
    """A whole chain, as it is exported.

    Attributes:
        head: digest of the last entry.
        entries: the oldest first, as the texts that were hashed.
    """

    largest_bytes: ClassVar[int] = 256 << 20  # a history has no end: half a million entries
    version: Version = 1
    exported: AwareDatetime
    head: Digest
    entries: tuple[str, ...]


def link_text(previous: str, facts: Mapping[str, Any]) -> str:
    """The text of an entry that follows the one whose digest is `previous`."""
    return json.dumps({**facts, "previous": previous}, sort_keys=True)


def link_digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def first_altered(texts: Sequence[str]) -> int | None:
    """The place of the first entry of a chain that does not name the one before; None if all do."""
    before = (GENESIS, *map(link_digest, texts))
    return next((place for place, text in enumerate(texts) if _previous(text) != before[place]), None)


def _previous(text: str) -> str | None:
    try:
        return decode(Link, text.encode()).previous
    except DocumentError:
        return None
