r"""The states of a release and the moves between them, as pure functions (docs/design/states.md#release).

proposed -> approved -> collecting -> published
        \-> rejected      \-> aborted / expired
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from commingle.shared.text import counted


class State(StrEnum):
    """Where a release stands. The last four are final."""

    PROPOSED = "proposed"
    APPROVED = "approved"
    COLLECTING = "collecting"
    PUBLISHED = "published"
    REJECTED = "rejected"
    ABORTED = "aborted"
    EXPIRED = "expired"

    @property
    def final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset({State.PUBLISHED, State.REJECTED, State.ABORTED, State.EXPIRED})


@dataclass(frozen=True, slots=True)
class Alignment:
    """A party's statement about its subjects."""

    subjects: int
    digest: str


UNSTATED = Alignment(0, "")  # for parties whose subjects are keyed: they state nothing, so nobody disagrees


@dataclass(frozen=True, slots=True)
class Round:
    """Everything that decides what may happen next; `alignments` are of those who approved."""

    parties: frozenset[str]
    expires: datetime
    state: State = State.PROPOSED
    alignments: Mapping[str, Alignment] = field(default_factory=lambda: MappingProxyType({}))
    stored: frozenset[str] = frozenset()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Approve:
    """A party's approval and alignment statement were verified."""

    party: str
    alignment: Alignment


@dataclass(frozen=True, slots=True)
class Reject:
    """A party's rejection or withdrawal was verified."""

    party: str
    reason: str


@dataclass(frozen=True, slots=True)
class StoreBlock:
    """A party's block was verified and is stored."""

    party: str


@dataclass(frozen=True, slots=True)
class LoseBlocks:
    """Stored blocks are gone, and their parties are asked for them again."""

    parties: frozenset[str]


@dataclass(frozen=True, slots=True)
class Publish:
    """The matrix is assembled and the manifest signed."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The coordinator cannot go on, for a reason in words."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


Event = Approve | Reject | StoreBlock | LoseBlocks | Publish | Abort | Tick


@dataclass(frozen=True, slots=True)
class Refused:
    """The event does not fit the state. `reason` is one sentence for people."""

    reason: str


def advance(current: Round, event: Event, *, now: datetime) -> Round | Refused:
    """The round after an event, or why the event is refused. Time ends a round before anything but publishing."""
    if current.state.final:
        return current if isinstance(event, Tick) else Refused(f"the release is {current.state} already")
    if now >= current.expires and not complete(current):  # everybody has paid for it, so it is published all the same
        expired = replace(current, state=State.EXPIRED, reason="the spec expired before every block was in")
        return expired if isinstance(event, Tick) else Refused("the release has expired")
    if isinstance(event, Approve | Reject | StoreBlock) and event.party not in current.parties:
        return Refused(f"{event.party} is not a member of this release")
    return current if isinstance(event, Tick) else _apply(current, event)


def _apply(current: Round, event: Approve | Reject | StoreBlock | LoseBlocks | Publish | Abort) -> Round | Refused:
    moved: Round | Refused
    match event:
        case Approve(party, alignment):
            moved = _approve(current, party, alignment)
        case Reject(party, reason):
            early = current.state is State.PROPOSED
            said = f"{party} {'rejected it' if early else 'withdrew'}: {reason}"
            moved = replace(current, state=State.REJECTED if early else State.ABORTED, reason=said)
        case StoreBlock() if current.state is State.PROPOSED:
            moved = Refused("not every member has approved yet")
        case StoreBlock(party) if party in current.stored:
            moved = Refused(f"{party} has uploaded its block already")
        case StoreBlock(party):
            moved = replace(current, state=State.COLLECTING, stored=current.stored | {party})
        case LoseBlocks(parties):
            left = replace(current, stored=current.stored - parties)
            moved = left if parties <= current.stored else Refused("some of these blocks are not there")
        case Publish() if missing := sorted(current.parties - current.stored):
            moved = Refused(f"blocks are missing from {', '.join(missing)}")
        case Publish():
            moved = replace(current, state=State.PUBLISHED)
        case Abort(reason):
            moved = replace(current, state=State.ABORTED, reason=reason)
    return moved


def complete(current: Round) -> bool:
    """Whether every block is in and only publishing is left."""
    return current.state is State.COLLECTING and current.stored == current.parties


def _approve(current: Round, party: str, alignment: Alignment) -> Round | Refused:
    if current.state is not State.PROPOSED or party in current.alignments:
        return Refused(f"{party} has approved already" if party in current.alignments else "approvals are closed")
    alignments = MappingProxyType({**current.alignments, party: alignment})
    approved = replace(current, alignments=alignments)
    if alignments.keys() != current.parties:
        return approved
    if len(set(alignments.values())) > 1:
        return replace(approved, state=State.ABORTED, reason=_who_agrees(alignments))
    return replace(approved, state=State.APPROVED)


def _who_agrees(alignments: Mapping[str, Alignment]) -> str:
    groups = defaultdict(list)
    for party in sorted(alignments):
        groups[alignments[party]].append(party)
    said = "; ".join(
        f"{' and '.join(names)}: {counted(key.subjects, 'person', 'people')}" for key, names in groups.items()
    )
    return f"the members do not hold the same people ({said}; members named together agree)"
