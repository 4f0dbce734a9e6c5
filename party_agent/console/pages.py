"""What the local API answers, as a person reads it on one page, and what the console's forms make of typed text.

The forms make a schema, which its owner writes column by column, and tokens for systems. Nothing here decides about a
release. Columns begin with public knowledge of columns of these names. No row is looked at: bounds that were read off
the rows would tell of them, without noise and without a charge.

A session makes and revokes tokens. The adversary is somebody at another person's browser, or a person whose groups are
taken away later. A session ends soon and a token does not. So a token that is made here names no person, and if two
people have to approve it approves nothing; it expires; and a person's session makes tokens that read, and sees and
revokes those that this person made. The operator, who has the machine, grants every scope and revokes every token.
Tokens for a person, and tokens that do not expire, are made at the machine alone: `commingle party token create`
(ADR 44).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from math import floor
from typing import Any, Self

import structlog

from commingle.party_agent.edge.api import UnauthorisedError
from commingle.party_agent.errors import NotFoundError
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.ranges import Range, draft_schema, known_ranges
from commingle.party_agent.home.tokens import (
    EVERY_SCOPE,
    AgentScope,
    LocalToken,
    create_token,
    find_token,
    local_tokens,
    revoke_token,
)
from commingle.party_agent.private.sources import FileSource, other_format, source_columns
from commingle.party_agent.wire.answers import CostView, LedgerView, ProposalView, StatusView
from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.documents.spec import MAX_COLUMNS
from commingle.shared.runtime.errors import ScopeError, SettingsError
from commingle.shared.text import counted, printable

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
        more: how often as much could be asked again; None if nothing is asked.
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
        others = sum(segment.percent for segment in segments)
        percent = remaining if kind == "left" else floor(100 * share) if first else 100 - remaining - others
        segments.append(Segment(kind, label, percent, start, WIDTH * share))
        start += WIDTH * share
    return Budget(tuple(segments), asked <= cap - spent, floor(left / asked) if asked else None)


def worth_of(item: ProposalView) -> Worth:
    """The forecast of a fit, without epsilon; without such a figure the first of its sentences."""
    told = item.forecast
    if told is None:
        return Worth(next(iter(item.outlook), "There is no forecast yet."))
    private, plain = (max(0, round(100 * told[name])) for name in ("r_squared", "r_squared_assumed"))
    bars = (("with this noise", private), ("without noise", plain))
    if not told["useful"]:
        return Worth(f"Too little: a linear fit of {told['target']} would tell no more than its mean.", bars)
    single = "can be read" if told["reliable"] else "are too noisy to be read"
    said = f"If {plain} % of what varies in {told['target']} can be explained, a linear fit explains {private} %"
    return Worth(f"{said}, and its single coefficients {single}.", bars)


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
            return "the coordinator operator" + (f" of {one.name}" if len(status.consortia) > 1 else "")
        pins = home.consortium(one.name).pins()
        if found := [name for name, pinned in pins.items() if pinned == key]:
            return f"{found[0]}, a pinned member"
    return "a key that belongs to no pinned member"


def may_approve(item: ProposalView) -> bool:
    """Whether the page offers to approve; whether it is possible only the agent says."""
    return (item.decision, item.state) == ("waiting", "proposed")


def may_reject(item: ProposalView) -> bool:
    return item.decision != "rejected" and item.state in _OPEN


@dataclass(frozen=True, slots=True)
class Line:
    """One column as it stands in the form: text, until it is an attribute.

    Attributes:
        use: "yes" if it is to be registered.
        levels: separated by `|`; empty for numbers.
        missing: what becomes of missing cells, as schemas call it.
        known: what the proposal is public knowledge of; empty if nothing is known.
    """

    name: str
    use: str = ""
    lower: str = ""
    upper: str = ""
    unit: str = ""
    levels: str = ""
    missing: str = "error"
    known: str = ""

    @property
    def attribute(self) -> dict[str, Any]:
        levels = tuple(level.strip() for level in self.levels.split("|")) if self.levels else ()
        said = Range(self.name, self.unit, self.lower, self.upper, levels, given=True).attribute(self.name)
        marked = said.missing == "indicator"  # a level was called missing
        return {**said.model_dump(mode="json"), "missing": "indicator" if marked else self.missing or "error"}

    @classmethod
    def of(cls, name: str, known: Range) -> Self:
        levels = "|".join(known.levels)
        return cls(name, "yes", known.lower, known.upper, known.unit, levels, known=known.name)


_FIELDS = tuple(each.name for each in fields(Line))
MAX_FIELDS = len(_FIELDS) * MAX_COLUMNS
"""The most fields that a form has."""


def lines_of(form: Mapping[str, str]) -> list[Line]:
    lines: list[Line] = []
    while f"name-{len(lines)}" in form:
        lines.append(Line(**{field: form.get(f"{field}-{len(lines)}", "").strip() for field in _FIELDS}))
    return lines


def propose(source: FileSource, subject_id: str, typed: Sequence[Line], *, made: Sequence[str] = ()) -> list[Line]:
    """A line for each column of a file, or made of it, but the one that identifies subjects: as typed, or as known."""
    columns = source_columns(source)
    if subject_id not in columns:
        raise SettingsError(
            "the file has no column of the name that identifies the person",
            remedy=other_format(source) or "Check the name.",
        )
    others = [name for name in dict.fromkeys((*columns, *made)) if name != subject_id]
    if len(others) > MAX_COLUMNS:
        raise SettingsError(f"{len(others)} columns are more than a form holds", remedy="Give the schema as JSON.")
    before = {line.name: line for line in typed}
    units = {line.name: line.unit for line in typed if line.unit}
    known = {attribute.name: found for attribute, found in draft_schema(others, known_ranges(), units)[0]}
    if not known and before.keys().isdisjoint(others):  # no name is repeated: it may be a cell
        raise SettingsError(
            f"nothing is known of {counted(len(others), 'column')}",
            remedy="A CSV needs a header line. Otherwise give the schema as JSON.",
        )

    def line(name: str) -> Line:
        kept = before.get(name, Line(name))
        blank = not (kept.lower or kept.upper or kept.levels)
        return Line.of(name, known[name]) if blank and name in known else kept

    return [line(name) for name in others]


def schema_of(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The columns that are used, as schema files have them. Raises SettingsError."""
    if not any(line.use for line in lines):
        raise SettingsError("no column is chosen", remedy="Choose the columns that studies may ask for.")
    return [line.attribute for line in lines if line.use]


DAYS = (1, 7, 30, 90)
"""How long a token may last."""
_LONGEST_NAME = 50
_OF_PEOPLE: frozenset[AgentScope] = frozenset({"read"})
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Maker:
    """The owner of a session that holds now: a person, or the operator if `person` is empty."""

    home: Home
    person: str
    scopes: frozenset[AgentScope]
    now: datetime

    def tokens(self) -> Mapping[str, LocalToken]:
        """The tokens that this session may revoke, by name."""
        known = local_tokens(self.home, self.now)
        return {name: one for name, one in known.items() if not self.person or one.is_of(self.person)}

    def make(self, name: str, scopes: frozenset[str], days: int) -> str:
        granted = frozenset(scope for scope in self.scopes if scope in scopes)
        if granted != scopes:
            raise ScopeError("this session makes no such token", remedy="The operator can.")
        if not granted or days not in DAYS:
            raise SettingsError("a token has a scope and an end", remedy="Choose what it may do, and for how long.")
        if not 0 < len(name) <= _LONGEST_NAME or printable(name) != name:
            raise SettingsError("this cannot be a name", remedy=f"Give 1 to {_LONGEST_NAME} visible characters.")
        lifetime = timedelta(days=days)
        made = create_token(self.home, name=name, scopes=granted, lifetime=lifetime, now=self.now, made_by=self.person)
        _log.info("token made", token=name, scopes=",".join(sorted(granted)), by=self.person or "the operator")
        return made

    def revoke(self, name: str) -> None:
        if (token := self.tokens().get(name)) is None:
            raise NotFoundError("there is no such token of yours", remedy="Look at the list.")
        revoke_token(self.home, name, self.now, digest=token.digest)
        _log.info("token revoked", token=name, by=self.person or "the operator")


def maker_of(home: Home, session_token: str | None, now: datetime) -> Maker:
    """The owner of a session's token, as the local API finds it. Raises UnauthorisedError."""
    if session_token is None:
        return Maker(home, "", EVERY_SCOPE, now)
    found = find_token(home, session_token, now)
    if found is None or not found[1].person:
        raise UnauthorisedError("no valid bearer token", remedy="Sign in again.")
    return Maker(home, found[1].person, found[1].scopes & _OF_PEOPLE, now)
