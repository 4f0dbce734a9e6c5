r"""The states of a charge in a party's ledger, the moves between them and the chain that records them: pure functions.

reserved -> debited -> stored -> acked
        \-> released  \--------\-> withdrawn

Before the debit a reservation is given back; after it the charge stays, whatever becomes of the release. Ledger and
auditor go by the same moves (docs/proofs/noise-and-accounting.md; docs/threat-model.md).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType
from typing import Annotated

from pydantic import ConfigDict, Field

from commingle.shared.documents.errors import DocumentError
from commingle.shared.documents.model import Digest, WireModel, decode
from commingle.shared.dp.accounting import Loss, Rho
from commingle.shared.release.rounds import Refused

GENESIS = "0" * 64
"""What the first entry of a chain names as the one before."""
_LONGEST_UNITS = 100


class ChargeState(StrEnum):
    """Where a charge stands. Every state but `released` counts against the cap."""

    RESERVED = "reserved"
    DEBITED = "debited"
    STORED = "stored"
    ACKED = "acked"
    RELEASED = "released"
    WITHDRAWN = "withdrawn"


_STATES = frozenset(state.value for state in ChargeState)
# the state of its charge in which a party signs each document; a rejection at any time
_SIGNED_WHILE: Mapping[str, ChargeState] = MappingProxyType(
    {
        "approval": ChargeState.RESERVED,
        "alignment": ChargeState.RESERVED,
        "mask": ChargeState.DEBITED,
        "countersignature": ChargeState.DEBITED,
        "block": ChargeState.STORED,
        "regression": ChargeState.STORED,
    }
)
SIGNED_BY_PARTIES = frozenset({*_SIGNED_WHILE, "rejection"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What the chain tells of a charge.

    Attributes:
        loss: what it costs; its delta is 0 for releases.
        attempt: drawings of noise so far.
        approvals: digest of the set of approvals relied on, once it is debited.
        body_sha256: of what was made under it, once that is stored.
    """

    population: str
    loss: Loss
    state: ChargeState = ChargeState.RESERVED
    attempt: int = 0
    approvals: str | None = None
    body_sha256: str | None = None

    @property
    def rho(self) -> Rho:
        """Of `loss`."""
        return self.loss.rho

    @property
    def delta(self) -> float:
        """Of `loss`."""
        return self.loss.delta

    @property
    def counts(self) -> bool:
        """Whether it is lost or set aside."""
        return self.state is not ChargeState.RELEASED


@dataclass(frozen=True, slots=True)
class Reserve:
    """Budget is set aside for an approval."""

    population: str
    loss: Loss


@dataclass(frozen=True, slots=True)
class Spend:
    """The reservation is debited, every approval having been verified."""

    approvals: str


@dataclass(frozen=True, slots=True)
class Redraw:
    """Noise is drawn again: nothing of the last attempt can have left."""


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """What an attempt made is on disk."""

    attempt: int
    body_sha256: str


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The coordinator has it."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The release is given up."""


Event = Reserve | Spend | Redraw | RecordBlock | Acknowledge | Withdraw


# from which states each is possible, and what is said otherwise
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
    """The charge after an event, or why the event is refused. `current` is None where nothing was charged yet."""
    if isinstance(event, Reserve):
        return _reserve(current, event)
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
        case RecordBlock(attempt, body_sha256):
            return _record(current, attempt, body_sha256)
        case Acknowledge():
            return replace(current, state=ChargeState.ACKED)
        case Withdraw():
            unspent = current.state is ChargeState.RESERVED
            return replace(current, state=ChargeState.RELEASED if unspent else ChargeState.WITHDRAWN)


def _reserve(current: Charge | None, event: Reserve) -> Charge | Refused:
    if current is not None:
        return Refused(f"this release has been charged already ({current.state})")
    if event.loss.rho.units <= 0:
        return Refused("a charge must be positive")
    return Charge(population=event.population, loss=event.loss)


def _record(current: Charge, attempt: int, body_sha256: str) -> Charge | Refused:
    if attempt != current.attempt:
        return Refused(f"attempt {current.attempt} has taken over")
    return replace(current, state=ChargeState.STORED, body_sha256=body_sha256)


def refuse_signature(current: Charge | None, document: str) -> Refused | None:
    """Why a party must not sign a document of this kind now, or None."""
    expected, state = _SIGNED_WHILE.get(document), current.state if current else None
    if expected in {None, state}:
        return None
    return Refused(f"the {document} does not belong where its charge is {state or 'not made'}")


class Link(WireModel):
    """An entry of any chain; more facts stand in it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    previous: Digest


class LedgerEntry(Link):
    """One entry of a party's chain: a charge's move, or a document that was signed or received."""

    kind: str
    release: Digest
    rho_units: str | None = None
    population: str | None = None
    delta: Annotated[float, Field(ge=0, lt=1)] = 0.0
    attempt: int | None = None
    approvals: str | None = None
    body_sha256: str | None = None
    document: str | None = None
    digest: Digest | None = None


_FACTS = frozenset({"rho_units", "population", "delta", "attempt", "approvals", "body_sha256"})


def entry_facts(before: Charge | None, after: Charge) -> dict[str, str | int | float]:
    """What the entry of a move says beside the new state."""
    if before is None:
        facts: dict[str, str | int | float] = {"rho_units": str(after.rho.units), "population": after.population}
        return {**facts, "delta": after.delta} if after.delta else facts
    values = ((name, getattr(after, name), getattr(before, name)) for name in ("attempt", "approvals", "body_sha256"))
    return {name: new for name, new, old in values if new != old}


def replay(entries: Iterable[LedgerEntry]) -> Mapping[str, Charge] | Refused:
    """The charges that a party's entries tell of, by release, or the first entry that cannot be."""
    charges: dict[str, Charge] = {}
    for number, entry in enumerate(entries, start=1):
        told = _follow(charges.get(entry.release), entry)
        if isinstance(told, Refused):
            return Refused(f"entry {number}: {told.reason}")
        if told is not None:
            charges[entry.release] = told
    return charges


def _follow(current: Charge | None, entry: LedgerEntry) -> Charge | Refused | None:
    if entry.kind == "received":  # what others signed; the coordinator's deal is one
        return current
    if entry.kind == "signed" and entry.document is not None and entry.digest is not None:
        return refuse_signature(current, entry.document) or current
    if entry.kind not in _STATES:
        return Refused("it is of an unknown kind")
    after = advance(current, _event_of(entry, current))
    if isinstance(after, Refused):
        return after
    written = entry.model_dump(include=set(_FACTS), exclude_defaults=True)
    if (after.state.value, entry_facts(current, after)) != (entry.kind, written):
        return Refused(f"a charge went from {current.state if current else None} to {entry.kind} otherwise than it can")
    return after


def _event_of(entry: LedgerEntry, current: Charge | None) -> Event:
    match entry.kind:
        case "reserved":
            units = entry.rho_units or ""
            known = units.isascii() and units.isdigit() and len(units) < _LONGEST_UNITS
            return Reserve(entry.population or "", Loss(Rho(int(units) if known else 0), entry.delta))
        case "debited":
            return Redraw() if entry.approvals is None else Spend(entry.approvals)
        case "stored":
            return RecordBlock(current.attempt if current else 0, entry.body_sha256 or "")
        case "acked":
            return Acknowledge()
    return Withdraw()


def link_text(previous: str, facts: Mapping[str, str | float | None]) -> str:
    """The text of an entry that follows the one whose digest is `previous`."""
    return json.dumps({**facts, "previous": previous}, sort_keys=True)


def link_digest(text: str) -> str:
    """The digest by which the next entry names this one."""
    return sha256(text.encode()).hexdigest()


def first_altered(texts: Sequence[str]) -> int | None:
    """The place of the first entry of a chain that does not name the one before; None where all do."""
    before = (GENESIS, *map(link_digest, texts))
    return next((place for place, text in enumerate(texts) if _previous(text) != before[place]), None)


def _previous(text: str) -> str | None:
    try:
        return decode(Link, text.encode()).previous
    except DocumentError:
        return None
