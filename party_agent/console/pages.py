"""What the local API answers, as a person reads it on one page. Nothing here decides anything."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from commingle.party_agent.home.home import Home
from commingle.party_agent.wire.answers import CostView, LedgerView, ProposalView, StatusView
from commingle.shared.documents.schema import Attribute, NumericAttribute

WIDTH = 600.0
"""The width of the picture of a budget, in its own units."""
_OPEN = frozenset({"proposed", "approved", "collecting"})


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the budget: its share in whole percent, where it begins in the picture and how wide it is."""

    kind: str
    label: str
    percent: int
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class Budget:
    """A ledger as shares of rho, which adds up.

    Attributes:
        fits: whether what is asked is not more than what is left.
        more: how often as much could be asked again; None where nothing is asked.
    """

    segments: tuple[Segment, ...]
    fits: bool
    more: int | None = None


@dataclass(frozen=True, slots=True)
class Worth:
    """What a release will be worth in one sentence, and shares of explained variance in percent, to be drawn."""

    sentence: str
    bars: tuple[tuple[str, int], ...] = ()


def budget_of(ledger: LedgerView, cost: CostView | None = None) -> Budget:
    """What is spent or set aside, what one more release would take, and what is left, which is rounded down."""
    cap, spent = ledger.cap.rho, ledger.spent.rho
    asked = 0.0 if cost is None else cost.rho
    left = max(0.0, cap - spent - asked)
    parts = [("spent", "Spent or set aside", spent)]
    if cost is not None:
        parts.append(("asked", "This release", min(asked, max(0.0, cap - spent))))
    parts.append(("left", "Left now" if cost is None else "Left afterwards", left))
    remaining = floor(100 * left / cap) if cap else 0
    segments, start = list[Segment](), 0.0
    for kind, label, rho in parts:
        share = min(1.0, rho / cap) if cap else 0.0
        first = kind == "spent" and cost is not None
        percent = remaining if kind == "left" else floor(100 * share) if first else 100 - remaining - _percent(segments)
        segments.append(Segment(kind, label, percent, start, WIDTH * share))
        start += WIDTH * share
    return Budget(tuple(segments), asked <= cap - spent, floor(left / asked) if asked else None)


def _percent(segments: Sequence[Segment]) -> int:
    return sum(segment.percent for segment in segments)


def worth_of(item: ProposalView) -> Worth:
    """The forecast of a fit, said without epsilon; the first of its sentences where there is no such figure."""
    told = item.forecast
    if told is None:
        return Worth(next(iter(item.outlook), "There is no forecast yet."))
    private, plain = (max(0, round(100 * told[name])) for name in ("r_squared", "r_squared_assumed"))
    bars = (("with this noise", private), ("without noise", plain))
    if not told["useful"]:
        return Worth(f"Too little: a linear fit of {told['target']} would tell no more than its mean.", bars)
    single = "it tells single effects" if told["reliable"] else "it predicts, and tells no single effect"
    said = f"If {plain} % of what varies in {told['target']} can be explained, a fit explains {private} %"
    return Worth(f"{said}; {single}.", bars)


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
        return f"{status.name}: this member itself"
    for one in status.consortia:
        if key == one.fingerprint:
            return f"the coordinator of the consortium {one.name}"
        pins = home.consortium(one.name).pins()
        if found := [name for name, pinned in pins.items() if pinned == key]:
            return f"{found[0]}, a pinned member"
    return "a key that belongs to no pinned member"


def may_approve(item: ProposalView) -> bool:
    """Whether the page offers to approve; whether it is possible only the agent says."""
    return (item.decision, item.state) == ("waiting", "proposed")


def may_reject(item: ProposalView) -> bool:
    return item.decision != "rejected" and item.state in _OPEN
