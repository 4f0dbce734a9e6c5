"""The digest of every row of the ledger's file, the chain's included: no link shows that its last entries are there.

SQLite keeps no checksum of what it stores: a byte that the disk changes within a value is simply another value. So the
agent's connection has triggers, which the file itself has not: whatever anybody else changes or loses does not agree
with the digests that are kept beside. They are against damage; against people are the chain, its signatures and its
witnesses.
"""

import sqlite3
from hashlib import sha256

CHECKS_SCHEMA = "CREATE TABLE checks (digest TEXT PRIMARY KEY);"
_CHECKED = ("entries", "signatures", "datasets", "snapshots", "to_read", "proposals", "regressions", "heads")


def prepare_to_check(db: sqlite3.Connection) -> None:
    """What any of the following needs of a connection."""
    db.create_function("row_digest", -1, _row_digest, deterministic=True)


def check_rows_there_are(db: sqlite3.Connection) -> None:
    """Take the rows of a file that has no checks as they are."""
    for table in _CHECKED:
        db.execute(f"INSERT INTO checks SELECT {_digest_of(db, table)} FROM {table}")  # noqa: S608 - names of ours


def check_rows_to_come(db: sqlite3.Connection) -> None:
    """Keep the digest of whatever is written over this connection."""
    db.execute("PRAGMA recursive_triggers=ON")  # a row that is replaced counts as deleted
    for table in _CHECKED:
        add = f"INSERT INTO checks VALUES ({_digest_of(db, table, 'NEW')});"  # noqa: S608 - names of ours
        drop = f"DELETE FROM checks WHERE digest = {_digest_of(db, table, 'OLD')};"  # noqa: S608 - as above
        for event, then in (("INSERT", add), ("DELETE", drop), ("UPDATE", drop + add)):
            db.execute(f"CREATE TEMP TRIGGER check_{table}_{event} AFTER {event} ON main.{table} BEGIN {then} END")


def rows_agree(db: sqlite3.Connection) -> bool:
    """Whether every row is as it was written, and none is missing. Raises sqlite3.Error."""
    found = [
        str(row[0])
        for table in _CHECKED
        for row in db.execute(f"SELECT {_digest_of(db, table)} FROM {table}")  # noqa: S608 - names of ours
    ]
    return sorted(found) == sorted(str(row[0]) for row in db.execute("SELECT digest FROM checks"))


def _digest_of(db: sqlite3.Connection, table: str, row: str = "") -> str:
    """SQL for the digest of a row, in the order of its columns' names."""
    columns = sorted(found[1] for found in db.execute(f"PRAGMA main.table_info({table})"))
    return f"row_digest('{table}', {', '.join(f'{row}.{name}' if row else name for name in columns)})"


def _row_digest(*values: str | bytes | float | None) -> str:
    whole = sha256()
    for value in values:
        data = value if isinstance(value, bytes) else repr(value).encode()
        whole.update(b"%s %d " % (type(value).__name__.encode(), len(data)) + data)
    return whole.hexdigest()
