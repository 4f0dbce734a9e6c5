"""The history of all releases and memberships in the database, each event chained to the one before."""

from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, bindparam, exists, func, insert, not_, or_, select

from commingle.coordinator.errors import StorageError
from commingle.coordinator.store.database import Part, as_recorded
from commingle.coordinator.store.tables import events, shares
from commingle.shared.release.audit import event_body
from commingle.shared.release.charge import GENESIS, link_digest
from commingle.shared.release.rounds import State
from commingle.shared.wire import ReleaseEvent

_ONE_AFTER_THE_OTHER = ("approval", "columns", "reply", "block")
_HASHED = ("release", "at", "kind", "party", "state", "document")
_others = shares.alias()


def _body(event: RowMapping | dict[str, Any], previous: str) -> str:
    return event_body(previous=previous, **{name: event[name] for name in _HASHED})


def _sent_by_all(kind: str) -> ColumnElement[bool]:
    missing = exists().where(_others.c.release == events.c.release, _others.c[kind].is_(None))
    return and_(events.c.kind == kind, not_(missing))


_IS_STEP = or_(
    events.c.kind.not_in(_ONE_AFTER_THE_OTHER),
    and_(events.c.kind == "approval", events.c.state != State.PROPOSED),
    _sent_by_all("columns"),
    _sent_by_all("reply"),
)
"""After it something can be due of every party, not of those only that have not done yet what others did."""

_NEWEST = select(events.c.digest).order_by(events.c.seq.desc()).limit(1)
_LAST = select(events.c.seq).where(events.c.release.is_not(None)).order_by(events.c.seq.desc()).limit(1)
_STEP = (
    select(events.c.release, func.max(events.c.seq).label("seq"))
    .where(events.c.seq > bindparam("after"), events.c.seq <= bindparam("last"), _IS_STEP)
    .group_by(events.c.release)
    .subquery()
)
_STEPS = select(_STEP, shares.c.party).join(shares, shares.c.release == _STEP.c.release).order_by(_STEP.c.seq)
_NEWEST_STEPS = (
    select(shares.c.party, func.max(events.c.seq))
    .join(events, shares.c.release == events.c.release)
    .where(events.c.seq > bindparam("after"), _IS_STEP)
    .group_by(shares.c.party)
)


_SINCE = select(events.c.release, events.c.seq).where(events.c.seq > bindparam("after")).order_by(events.c.seq)
"""Not grouped by release: SQLite would go through all events in the order of releases."""


@dataclass(frozen=True, slots=True)
class Step:
    """A release's event after which something can be due of every party, and who they are."""

    release: str
    seq: int
    parties: frozenset[str]


class Events(Part):
    """The history, each event chained to the one before.

    Attributes:
        added: whether this transaction recorded one.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.added = False

    def add(
        self,
        *,
        release: str | None,
        at: datetime,
        kind: str,
        party: str | None = None,
        state: State | None = None,
        document: str | None = None,
    ) -> None:
        """Append an event; `document` is the digest of what was recorded with it. There is one writer at a time."""
        self.added = True
        values = {"release": release, "at": at, "kind": kind, "party": party, "state": state, "document": document}
        body = _body(values, self._connection.execute(_NEWEST).scalar() or GENESIS)
        self._connection.execute(insert(events), values | {"digest": link_digest(body)})

    def add_membership(self, *, at: datetime, kind: str, party: str, key: str) -> None:
        """Append that a membership began, changed its key or ended, with the key's fingerprint."""
        self.add(release=None, at=at, kind=kind, party=party, document=key)

    def chain(self) -> tuple[tuple[str, ...], str]:
        """The text of every event, the oldest first, and the newest digest.

        Raises:
            StorageError: an event was altered, removed or put in.
        """
        bodies, previous = [], GENESIS
        for row in self._connection.execute(select(events).order_by(events.c.seq)).mappings():
            body = _body(row, previous)
            previous = link_digest(body)
            if row["digest"] != previous:
                raise StorageError(
                    f"event {row['seq']} does not fit the chain of events",
                    remedy="Somebody has changed the database. Restore its backup and compare it with earlier exports.",
                )
            bodies.append(body)
        return tuple(bodies), previous

    def memberships(self) -> tuple[tuple[datetime, str, str, str], ...]:
        """Every change of a membership, the oldest first: its time, kind, party and key."""
        query = select(events.c.at, events.c.kind, events.c.party, events.c.document).where(events.c.release.is_(None))
        rows = self._connection.execute(query.order_by(events.c.seq))
        return tuple((row.at, row.kind, row.party, row.document) for row in rows)

    @as_recorded()
    def after(self, seq: int, *, limit: int, release: str | None = None) -> tuple[ReleaseEvent, ...]:
        """What came after event `seq` about releases, the oldest first."""
        query = select(events).where(events.c.seq > seq, events.c.release.is_not(None))
        if release is not None:
            query = query.where(events.c.release == release)
        rows = self._connection.execute(query.order_by(events.c.seq).limit(limit)).mappings()
        return tuple(ReleaseEvent.model_validate({**row, "state": State(row["state"])}) for row in rows)

    def steps(self, *, after: int, last: int) -> tuple[Step, ...]:
        """Of releases that took one after an event, up to another, the newest of each; the oldest first."""
        rows = self._connection.execute(_STEPS, {"after": after, "last": last})
        steps = groupby(rows, key=lambda row: (row.release, row.seq))
        return tuple(Step(release, seq, frozenset(row.party for row in group)) for (release, seq), group in steps)

    def newest_steps(self, after: int) -> dict[str, int]:
        """The newest event after one with which a release of a party took a step, by party."""
        return {row[0]: row[1] for row in self._connection.execute(_NEWEST_STEPS, {"after": after})}

    def newest_of_releases(self, after: int) -> dict[str, int]:
        """The newest event after one of each release that has any, by id."""
        found = self._connection.execute(_SINCE, {"after": after})
        return {release: seq for release, seq in found if release is not None}

    def last(self) -> int:
        """Number of the newest event about a release; 0 where there is none."""
        return self._connection.execute(_LAST).scalar() or 0
