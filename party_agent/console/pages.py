"""What the local API answers, as a person reads it on one page. Nothing here decides anything."""

from collections.abc import Sequence
from dataclasses import dataclass

from commingle.party_agent.home.home import Home
from commingle.party_agent.wire.answers import CostView, LedgerView, ProposalView, StatusView
from commingle.shared.documents.schema import Attribute, NumericAttribute

WIDTH = 600.0
"""Of the picture of a budget, in its own units."""
_OPEN = frozenset({"proposed", "approved", "collecting"})


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the budget: where it begins in the picture and how wide it is."""

    kind: str
    label: str
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class Budget:
    """A ledger as a picture. Lengths are shares of rho, which adds up; what is said is epsilon, which does not.

    Attributes:
        fits: whether what is asked is not more than what is left.
    """

    segments: tuple[Segment, ...]
    fits: bool


def budget_of(ledger: LedgerView, cost: CostView | None = None) -> Budget:
    """What is spent or set aside, what one more release would take, and what is left."""
    cap, spent = ledger.cap.rho, ledger.spent.rho
    asked = 0.0 if cost is None else cost.rho
    parts = [("spent", f"spent or set aside: epsilon {ledger.spent.epsilon:.3g}", spent)]
    if cost is not None:
        parts.append(("asked", f"this release: epsilon {cost.epsilon:.3g}", min(asked, max(0.0, cap - spent))))
    parts.append(("left", f"left now: epsilon {ledger.remaining.epsilon:.3g}", max(0.0, cap - spent - asked)))
    segments, start = [], 0.0
    for kind, label, rho in parts:
        width = WIDTH * min(1.0, rho / cap) if cap else 0.0
        segments.append(Segment(kind, label, start, width))
        start += width
    return Budget(tuple(segments), asked <= cap - spent)


def in_words(attribute: Attribute) -> str:
    """A column as somebody says it who does not know the schema."""
    if isinstance(attribute, NumericAttribute):
        unit = f" {attribute.unit}" if attribute.unit else ""
        said = f"a number from {attribute.lower:g} to {attribute.upper:g}{unit}; what lies beyond is cut to that"
    else:
        *first, last = attribute.levels
        said = f"{', '.join(first)} or {last}"
    return f"{said}; what is missing counts as the middle" if attribute.missing == "midpoint" else said


def who_asks(proposal: ProposalView, home: Home, status: StatusView) -> str:
    """The proposer by a name that this party has compared with the key, or that it has none."""
    key = proposal.proposer
    if key == status.fingerprint:
        return f"{status.name}: this party itself"
    for one in status.consortia:
        if key == one.fingerprint:
            return f"the coordinator of the consortium {one.name}"
        pins = home.consortium(one.name).pins()
        if found := [name for name, pinned in pins.items() if pinned == key]:
            return f"{found[0]}, a pinned member"
    return "a key that belongs to no pinned member"


def by_turn(items: Sequence[ProposalView]) -> tuple[list[ProposalView], list[ProposalView]]:
    """Proposals that wait for this party, and all others."""
    waiting = [item for item in items if may_approve(item)]
    return waiting, [item for item in items if not may_approve(item)]


def may_approve(item: ProposalView) -> bool:
    """Whether the page offers to approve; whether it is possible only the agent says."""
    return (item.decision, item.state) == ("waiting", "proposed")


def may_reject(item: ProposalView) -> bool:
    """The same of rejecting, or withdrawing."""
    return item.decision != "rejected" and item.state in _OPEN
