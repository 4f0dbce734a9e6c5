"""The history of all releases in the database."""

from datetime import datetime

from sqlalchemy import Connection, func, insert, select

from coordinator.store.rows import EventRow
from coordinator.store.tables import events
from shared.protocol.rounds import State


class Events:
    """Events, within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, *, release: str, at: datetime, kind: str, party: str | None, state: State) -> None:
        """Append an event."""
        self._connection.execute(insert(events).values(release=release, at=at, kind=kind, party=party, state=state))

    def after(self, seq: int, *, limit: int, release: str | None = None) -> tuple[EventRow, ...]:
        """What came after event `seq`, the oldest first."""
        query = select(events).where(events.c.seq > seq).order_by(events.c.seq).limit(limit)
        if release is not None:
            query = query.where(events.c.release == release)
        return tuple(
            EventRow(row.seq, row.release, row.at, row.kind, row.party, State(row.state))
            for row in self._connection.execute(query)
        )

    def last(self) -> int:
        """The newest event's number; 0 where there is none."""
        return self._connection.execute(select(func.max(events.c.seq))).scalar() or 0
