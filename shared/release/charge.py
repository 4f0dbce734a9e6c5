r"""The states of a charge in a party's ledger, the moves between them and the chain that records them: pure functions.

reserved -> debited -> stored -> acked
        \-> released  \--------\-> withdrawn

Before the debit a reservation is given back; after it the charge stays, whatever becomes of the release. What a ledger
that was set back learns from its witnesses is `adopted`: charged for good, nothing of it is made again. Ledger and
auditor go by the same moves (docs/proofs/noise-and-accounting.md; docs/threat-model.md).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, ConfigDict, Field

from commingle.shared.documents.errors import DocumentError
from commingle.shared.documents.model import Digest, WireModel, decode
from commingle.shared.documents.statements import FIRST_APPROVAL
from commingle.shared.dp.accounting import Cost, Loss, Rho
from commingle.shared.release.rounds import Refused

ChargeKind = Literal["release", "regression", "unexplained"]
GENESIS = "0" * 64
"""What the first entry of a chain names as the one before."""
REJOINED = "rejoined"
EVERY_DATASET = "*"
"""Names no data set: such a charge counts against each."""
_LONGEST_UNITS = 100


class ChargeState(StrEnum):
    """Where a charge stands. Every state but `released` counts against the cap."""

    RESERVED = "reserved"
    DEBITED = "debited"
    STORED = "stored"
    ACKED = "acked"
    RELEASED = "released"
    WITHDRAWN = "withdrawn"
    ADOPTED = "adopted"


_STATES = frozenset(state.value for state in ChargeState)
# the state of its charge in which a party signs each document; a first approval before there is one, a rejection at any
_SIGNED_WHILE: Mapping[str, ChargeState] = MappingProxyType(
    {
        "approval": ChargeState.RESERVED,
        "alignment": ChargeState.RESERVED,
        "mask": ChargeState.DEBITED,  # it and the next in exchanges of an earlier version
        "countersignature": ChargeState.DEBITED,
        "columns": ChargeState.DEBITED,
        "reply": ChargeState.DEBITED,
        "block": ChargeState.STORED,
        "regression": ChargeState.STORED,
    }
)
SIGNED_BY_PARTIES = frozenset({*_SIGNED_WHILE, "rejection"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeTerms:
    """What a charge is about: whatever a later decision reads.

    Attributes:
        dataset: the data set's name; `EVERY_DATASET` where it is not known which.
        coordinator: fingerprint of the coordinator whose release it is, empty for a regression.
    """

    dataset: str
    study: str
    kind: ChargeKind
    expires: datetime
    coordinator: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What the chain tells of a charge.

    Attributes:
        cost: in the unit of its data set, and of a keyed one as replacement too.
        terms: what it is about; None in entries of a version that did not write it.
        attempt: drawings of noise so far.
        approvals: digest of the set of approvals relied on, once it is debited.
        body_sha256: of what was made under it, once that is stored.
    """

    population: str
    cost: Cost
    terms: ChargeTerms | None = None
    state: ChargeState = ChargeState.RESERVED
    attempt: int = 0
    approvals: str | None = None
    body_sha256: str | None = None

    @property
    def loss(self) -> Loss:
        """In the unit of its data set."""
        return self.cost.loss

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

    @property
    def spent(self) -> bool:
        """Whether it is lost for good: it was debited, or adopted."""
        return self.state not in {ChargeState.RESERVED, ChargeState.RELEASED}


@dataclass(frozen=True, slots=True)
class Reserve:
    """Budget is set aside for an approval."""

    population: str
    cost: Cost
    terms: ChargeTerms | None = None


@dataclass(frozen=True, slots=True)
class Adopt:
    """Witnesses show that it was charged by a branch of this ledger that is lost."""

    population: str
    cost: Cost
    terms: ChargeTerms


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


Event = Reserve | Adopt | Spend | Redraw | RecordBlock | Acknowledge | Withdraw


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
    if isinstance(event, Adopt):
        return _adopt(current, event)
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
    if event.cost.loss.rho.units <= 0:
        return Refused("a charge must be positive")
    return Charge(population=event.population, cost=event.cost, terms=event.terms)


def _adopt(current: Charge | None, event: Adopt) -> Charge | Refused:
    if current is not None and current.state is ChargeState.ADOPTED:
        return Refused("it is adopted already")
    if current is not None:
        return replace(current, state=ChargeState.ADOPTED, cost=current.cost.approximate())
    if not any(loss.rho.units or loss.delta for loss in (event.cost.loss, event.cost.replaced)):
        return Refused("a charge must be positive")
    return Charge(population=event.population, cost=event.cost, terms=event.terms, state=ChargeState.ADOPTED)


def _record(current: Charge, attempt: int, body_sha256: str) -> Charge | Refused:
    if attempt != current.attempt:
        return Refused(f"attempt {current.attempt} has taken over")
    return replace(current, state=ChargeState.STORED, body_sha256=body_sha256)


def refuse_signature(current: Charge | None, document: str) -> Refused | None:
    """Why a party must not sign a document of this kind now, or None."""
    expected, state = _SIGNED_WHILE.get(document), current.state if current else None
    if (state is None) if document == FIRST_APPROVAL else (expected in {None, state}):
        return None
    return Refused(f"the {document} does not belong where its charge is {state or 'not made'}")


def adopted_kind(kind: str) -> str:
    """Under which kind a ledger keeps what a lost branch of it has signed."""
    return f"adopted {kind}"


class Link(WireModel):
    """An entry of any chain; more facts stand in it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    previous: Digest


class LedgerEntry(Link):
    """One entry of a party's chain: a charge's move, a document that was signed or received, or a branch rejoined.

    Attributes:
        rho_units, delta: of a new charge, in the unit of its data set.
        replacement_units, replacement_delta: of one of keyed subjects, under replace_one.
        gaussian: of both.
        dataset, study, purpose, expires, coordinator: the terms of a charge, where it is new.
        by: who decided to sign the document, where a person did.
        heads: the heads of lost branches, whose charges are in this chain now; `release` is the last of them.
        height: of a branch rejoined; see `height_after`.
    """

    kind: str
    release: Digest
    rho_units: str | None = None
    population: str | None = None
    delta: Annotated[float, Field(ge=0, lt=1)] = 0.0
    replacement_units: str | None = None
    replacement_delta: Annotated[float, Field(ge=0, lt=1)] = 0.0
    gaussian: bool = False
    dataset: str | None = None
    study: str | None = None
    purpose: ChargeKind | None = None
    expires: Annotated[AwareDatetime, Field(strict=False)] | None = None
    coordinator: str | None = None
    attempt: int | None = None
    approvals: str | None = None
    body_sha256: str | None = None
    document: str | None = None
    digest: Digest | None = None
    by: str = ""
    heads: Annotated[tuple[Digest, ...], Field(strict=False)] | None = None
    height: int | None = None

    @property
    def terms(self) -> ChargeTerms | None:
        """What a new charge is about."""
        if self.dataset is None or self.study is None or self.purpose is None or self.expires is None:
            return None
        return ChargeTerms(
            dataset=self.dataset,
            study=self.study,
            kind=self.purpose,
            expires=self.expires,
            coordinator=self.coordinator or "",
        )


_TERMS = frozenset({"dataset", "study", "purpose", "expires", "coordinator"})
_COST = frozenset({"rho_units", "delta", "replacement_units", "replacement_delta", "gaussian"})
_FACTS = frozenset({"population", "attempt", "approvals", "body_sha256"}) | _COST | _TERMS


def entry_facts(before: Charge | None, after: Charge) -> dict[str, Any]:
    """What the entry of a move says beside the new state."""
    if before is None:
        facts: dict[str, Any] = {"population": after.population} | _cost_facts(after.cost)
        return facts if after.terms is None else facts | _term_facts(after.terms)
    values = ((name, getattr(after, name), getattr(before, name)) for name in ("attempt", "approvals", "body_sha256"))
    return {name: new for name, new, old in values if new != old}


def _cost_facts(cost: Cost) -> dict[str, Any]:
    facts: dict[str, Any] = {"rho_units": str(cost.loss.rho.units)}
    if cost.loss.delta:
        facts["delta"] = cost.loss.delta
    if cost.replacement is not None:
        facts["replacement_units"] = str(cost.replacement.rho.units)
        if cost.replacement.delta:
            facts["replacement_delta"] = cost.replacement.delta
    return {**facts, "gaussian": True} if cost.loss.gaussian else facts


def _term_facts(terms: ChargeTerms) -> dict[str, str]:
    return {
        "dataset": terms.dataset,
        "study": terms.study,
        "purpose": terms.kind,
        "expires": terms.expires.isoformat(),
        "coordinator": terms.coordinator,
    }


def height_after(height: int, entry: LedgerEntry) -> int:
    """How far a chain has come with one more entry: one further, and beyond every branch it has rejoined."""
    return entry.height if entry.kind == REJOINED and entry.height is not None else height + 1


_NO_TERMS = ChargeTerms(dataset="", study="", kind="unexplained", expires=datetime.max.replace(tzinfo=UTC))


def replay(entries: Iterable[LedgerEntry]) -> Mapping[str, Charge] | Refused:
    """The charges that a party's entries tell of, by release, or the first entry that cannot be."""
    charges: dict[str, Charge] = {}
    height = 0
    for number, entry in enumerate(entries, start=1):
        told = _rejoin(height, entry) if entry.kind == REJOINED else _follow(charges.get(entry.release), entry)
        if told is not None and not isinstance(told, Refused) and entry.release not in charges:
            told = refuse_population(charges, told) or told
        if isinstance(told, Refused):
            return Refused(f"entry {number}: {told.reason}")
        if told is not None:
            charges[entry.release] = told
        height = height_after(height, entry)
    return charges


def populations_of(charges: Iterable[Charge]) -> tuple[str, ...]:
    """Whose data they are about, in the order in which they came: one, but for ledgers of an earlier version."""
    return tuple(dict.fromkeys(charge.population for charge in charges))


def refuse_population(charges: Mapping[str, Charge], new: Charge) -> Refused | None:
    """Why a new charge must not name this population: the first one has fixed it for the whole ledger."""
    known = populations_of(charges.values())
    if new.terms is None or not known or new.population in known:  # without terms: an earlier version wrote it
        return None
    return Refused(f"the ledger is that of population {known[0]}, not of {new.population}")


def _rejoin(height: int, entry: LedgerEntry) -> Refused | None:
    whole = entry.heads and entry.heads[-1] == entry.release and entry.height is not None and entry.height > height
    return None if whole else Refused("it rejoins no branch")


def _follow(current: Charge | None, entry: LedgerEntry) -> Charge | Refused | None:
    if entry.kind == "received":  # what others signed, or a lost branch of this ledger
        return current
    if entry.kind == "signed" and entry.document is not None and entry.digest is not None:
        return refuse_signature(current, entry.document) or current
    if entry.kind not in _STATES:
        return Refused("it is of an unknown kind")
    after = advance(current, _event_of(entry, current))
    if isinstance(after, Refused):
        return after
    written = entry.model_dump(include=set(_FACTS), exclude_defaults=True)
    if entry.expires is not None:
        written["expires"] = entry.expires.isoformat()
    if (after.state.value, entry_facts(current, after)) != (entry.kind, written):
        return Refused(f"a charge went from {current.state if current else None} to {entry.kind} otherwise than it can")
    return after


def _event_of(entry: LedgerEntry, current: Charge | None) -> Event:
    match entry.kind:
        case "reserved":
            return Reserve(entry.population or "", _cost_of(entry), entry.terms)
        case "adopted":
            return Adopt(entry.population or "", _cost_of(entry), entry.terms or _NO_TERMS)
        case "debited":
            return Redraw() if entry.approvals is None else Spend(entry.approvals)
        case "stored":
            return RecordBlock(current.attempt if current else 0, entry.body_sha256 or "")
        case "acked":
            return Acknowledge()
    return Withdraw()


def _cost_of(entry: LedgerEntry) -> Cost:
    other = entry.replacement_units
    return Cost(
        Loss(_rho_of(entry.rho_units or ""), entry.delta, entry.gaussian),
        None if other is None else Loss(_rho_of(other), entry.replacement_delta, entry.gaussian),
    )


def _rho_of(units: str) -> Rho:
    known = units.isascii() and units.isdigit() and len(units) < _LONGEST_UNITS
    return Rho(int(units) if known else 0)


def link_text(previous: str, facts: Mapping[str, Any]) -> str:
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
