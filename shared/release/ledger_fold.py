"""The meaning of a party's chain of entries: ledger, verification and audit all use this one fold of it.

An entry is a charge's move, a document that was signed or received, or a branch rejoined. Each is read once, after the
one before; an entry that no ledger writes is refused where it stands.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, ValidationError

from commingle.shared.documents.model import LEFT_OUT, Digest, WireModel
from commingle.shared.documents.statements import ChargedLoss
from commingle.shared.dp.accounting import Cost, Loss, Rho
from commingle.shared.release.charge import (
    GENESIS,
    Acknowledge,
    Adopt,
    Charge,
    ChargeState,
    ChargeTerms,
    Event,
    Link,
    RecordBlock,
    Redraw,
    Reserve,
    Spend,
    Withdraw,
    advance,
    link_digest,
    link_text,
    refuse_signature,
)
from commingle.shared.release.rounds import Refused

REJOINED = "rejoined"
_STATES = frozenset(state.value for state in ChargeState)


@dataclass(frozen=True, slots=True)
class Ruling:
    """A person's decision, as the ledger keeps it."""

    by: str  # the person who decided, for display, with the token that was used
    why: str = ""
    token: str = ""  # the name of the token; empty for the operator
    person: str = ""  # the owner of the token, or the operator's word; empty if the token is a system's


class NewCharge(WireModel):
    """A charge when the chain first tells of it.

    Attributes:
        loss: in the unit of its data set.
        replacement: for keyed subjects, the loss under replace_one.
        gaussian: of both.
    """

    population: str
    loss: ChargedLoss
    replacement: Annotated[ChargedLoss | None, LEFT_OUT] = None
    gaussian: bool
    terms: ChargeTerms

    @staticmethod
    def of(charge: Charge) -> "NewCharge":
        other = charge.cost.replacement
        return NewCharge(
            population=charge.population,
            loss=ChargedLoss.of(charge.loss),
            replacement=None if other is None else ChargedLoss.of(other),
            gaussian=charge.loss.gaussian,
            terms=charge.terms,
        )

    @property
    def charge(self) -> Charge:
        cost = Cost(self.loss.loss, None if self.replacement is None else self.replacement.loss)
        return Charge(population=self.population, cost=cost if self.gaussian else cost.approximate(), terms=self.terms)


class LedgerEntry(Link):
    """One entry of a party's chain: a charge's move, a document that was signed or received, or a branch rejoined.

    Attributes:
        charge: if it is new.
        ruling: the decision to sign the document, if a person made it.
        salt: of an entry with a ruling, whose head is published.
        heads: the heads of lost branches, whose charges are in this chain now; `release` is the last of them.
        height: of a branch rejoined; see `LedgerFold.height`.
    """

    kind: str
    release: Digest
    charge: NewCharge | None = None
    attempt: int | None = None
    approvals: str | None = None
    body_sha256: str | None = None
    document: str | None = None
    digest: Digest | None = None
    ruling: Ruling | None = None
    salt: str | None = None
    heads: Annotated[tuple[Digest, ...], Field(strict=False)] | None = None
    height: int | None = None

    @property
    def text(self) -> str:
        """The only way in which it is written."""
        facts = self.model_dump(mode="json", exclude={"previous"}, exclude_unset=True)
        return link_text(self.previous, {name: value for name, value in facts.items() if value is not None})


_LATER = ("attempt", "approvals", "body_sha256")
_FACTS = {"charge", *_LATER}


def entry_facts(before: Charge | None, after: Charge) -> dict[str, Any]:
    """The facts in the entry of a move besides the new state."""
    if before is None:
        return {"charge": NewCharge.of(after).model_dump(mode="json")}
    values = ((name, getattr(after, name), getattr(before, name)) for name in _LATER)
    return {name: new for name, new, old in values if new != old}


def sum_of(charges: Iterable[Charge]) -> Cost:
    """The sum of charges: those without a delta, which are nearly all, by their integers."""
    units, replaced, keyed, gaussian, others = 0, 0, False, True, []
    for cost in (charge.cost for charge in charges):
        other = cost.replacement
        if cost.loss.delta or (other is not None and other.delta):
            others.append(cost)
        else:
            units, gaussian = units + cost.loss.rho.units, gaussian and cost.loss.gaussian
            replaced += (cost.loss if other is None else other).rho.units
            keyed = keyed or other is not None
    whole = Cost(Loss(Rho(units), gaussian=gaussian), Loss(Rho(replaced), gaussian=gaussian) if keyed else None)
    return sum(others, start=whole)


@dataclass(frozen=True, slots=True)
class SignedEntry:
    """The chain's facts about a signed document."""

    digest: str
    place: int  # which entry it is, the first being 1
    ruling: Ruling | None = None  # the decision to sign it; None if no person decided


@dataclass(slots=True)
class LedgerFold:
    """The facts that the entries so far tell; those about documents by release and kind."""

    charges: dict[str, Charge] = field(default_factory=dict)
    signed: dict[tuple[str, str], SignedEntry] = field(default_factory=dict)
    # digests of documents that a lost branch of this ledger has signed
    received: dict[tuple[str, str], str] = field(default_factory=dict)
    # how many entries led to each head of this chain
    places: dict[str, int] = field(default_factory=lambda: {GENESIS: 0})
    rejoined: set[str] = field(default_factory=set)  # heads of lost branches, whose charges are in this chain
    newest: dict[str, int] = field(default_factory=dict)  # the place of the newest signature of each kind
    population: str | None = None  # the population of the data: the first charge fixes it for the whole ledger
    height: int = 0  # how far the chain has come: one further with each entry, and beyond every branch it has rejoined
    head: str = GENESIS

    @property
    def length(self) -> int:
        return len(self.places) - 1

    @property
    def lost(self) -> Cost:
        """All charges except those that were given back before their debit."""
        return sum_of(charge for charge in self.charges.values() if charge.counts)

    @property
    def spent(self) -> Cost:
        """All that was debited or adopted; it never comes back."""
        return sum_of(charge for charge in self.charges.values() if charge.spent)

    def follow(self, text: str) -> Refused | None:
        """Go on by one entry, or say why it cannot be the next; then nothing has changed."""
        number = self.length + 1
        altered = Refused(f"entry {number} of the chain was altered")
        try:
            entry = LedgerEntry.model_validate_json(text)
        except ValidationError:
            return altered
        if entry.previous != self.head:
            return altered
        if entry.text != text:
            return Refused(f"entry {number} is not written as a ledger writes it")
        if (refused := self._take(entry, number)) is not None:
            return Refused(f"entry {number}: {refused.reason}")
        self.height = entry.height if entry.kind == REJOINED and entry.height is not None else self.height + 1
        self.head = link_digest(text)
        self.places[self.head] = number
        return None

    def knows(self, head: str) -> bool:
        """Whether the chain had this head, or has rejoined a branch with it."""
        return head in self.places or head in self.rejoined

    def refuse_population(self, name: str) -> Refused | None:
        """Why a new charge must not name this population, or None."""
        if self.population in {None, name}:
            return None
        return Refused(f"the ledger belongs to population {self.population}, not to {name}")

    def _take(self, entry: LedgerEntry, number: int) -> Refused | None:
        if entry.kind == REJOINED:
            return self._rejoin(entry)
        if entry.kind in {"signed", "received"}:
            return self._document(entry, number)
        moved = _moved(self.charges.get(entry.release), entry)
        if not isinstance(moved, Refused):
            moved = self.refuse_population(moved.population) or moved
        if isinstance(moved, Refused):
            return moved
        self.charges[entry.release], self.population = moved, moved.population
        return None

    def _rejoin(self, entry: LedgerEntry) -> Refused | None:
        beyond = entry.height is not None and entry.height > self.height
        if not (beyond and entry.heads and entry.heads[-1] == entry.release):
            return Refused("it rejoins no branch")
        self.rejoined.update(entry.heads)
        return None

    def _document(self, entry: LedgerEntry, number: int) -> Refused | None:
        if entry.document is None or entry.digest is None:
            return Refused("it names no document")
        place = (entry.release, entry.document)
        if place in self.signed or place in self.received:
            return Refused(f"the {entry.document} is in the chain already")
        if entry.kind == "received":
            self.received[place] = entry.digest
            return None
        if (refused := refuse_signature(self.charges.get(entry.release), entry.document)) is not None:
            return refused
        self.signed[place] = SignedEntry(entry.digest, number, entry.ruling)
        self.newest[entry.document] = number
        return None


def fold(texts: Iterable[str]) -> LedgerFold | Refused:
    """The facts of a whole chain, or the first entry that is impossible."""
    told = LedgerFold()
    for text in texts:
        if (refused := told.follow(text)) is not None:
            return refused
    return told


def _moved(current: Charge | None, entry: LedgerEntry) -> Charge | Refused:
    if entry.kind not in _STATES:
        return Refused("it is of an unknown kind")
    event = _event_of(entry, current)
    after = event if isinstance(event, Refused) else advance(current, event)
    if isinstance(after, Refused):
        return after
    written = entry.model_dump(mode="json", include=_FACTS, exclude_unset=True)
    if (after.state.value, entry_facts(current, after)) != (entry.kind, written):
        return Refused(f"a charge went from {current.state if current else None} to {entry.kind} otherwise than it can")
    return after


def _event_of(entry: LedgerEntry, current: Charge | None) -> Event | Refused:
    match entry.kind:
        case "reserved" | "adopted":
            new = current if entry.charge is None else entry.charge.charge
            if new is None:
                return Refused("it says nothing of its charge")
            return Reserve(new) if entry.kind == "reserved" else Adopt(new)
        case "debited":
            return Redraw() if entry.approvals is None else Spend(entry.approvals)
        case "stored":
            return RecordBlock(current.attempt if current else 0, entry.body_sha256 or "")
        case "acked":
            return Acknowledge()
    return Withdraw()
