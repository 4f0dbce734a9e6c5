"""Sealed linkage keys in the database: the newest of each sender for each recipient."""

from datetime import datetime

from sqlalchemy import Connection, delete, insert, select

from commingle.coordinator.store.rows import SealedKeyRow
from commingle.coordinator.store.tables import linkage_keys

_COLUMNS = (linkage_keys.c.sender, linkage_keys.c.created, linkage_keys.c.envelope)


class LinkageKeys:
    """Sealed linkage keys, within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, recipient: str, sender: str) -> SealedKeyRow | None:
        """What one member sent another."""
        return next((row for row in self.of(recipient) if row.sender == sender), None)

    def of(self, recipient: str) -> tuple[SealedKeyRow, ...]:
        """What was sent to a member, in order of senders."""
        query = select(*_COLUMNS).where(linkage_keys.c.recipient == recipient).order_by(linkage_keys.c.sender)
        return tuple(SealedKeyRow(*row) for row in self._connection.execute(query))

    def put(self, recipient: str, sender: str, created: datetime, envelope: str) -> None:
        """Keep this one and drop the one before."""
        same = (linkage_keys.c.recipient == recipient, linkage_keys.c.sender == sender)
        self._connection.execute(delete(linkage_keys).where(*same))
        values = {"recipient": recipient, "sender": sender, "created": created, "envelope": envelope}
        self._connection.execute(insert(linkage_keys).values(values))
