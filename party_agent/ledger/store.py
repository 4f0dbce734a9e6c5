"""The agent's SQLite file: ledger, signatures, data sets and proposals, durable at every commit.

WAL, synchronous=FULL, BEGIN IMMEDIATE. One process per file for its whole lifetime: two agents that share a ledger
could both pass a cap that holds one debit.
"""

import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

from commingle.party_agent.errors import AgentRunningError, LedgerError
from commingle.party_agent.ledger.row_checks import (
    CHECKS_SCHEMA,
    check_rows_to_come,
    prepare_to_check,
)
from commingle.shared.runtime import faults

VERSION = 1
_TABLES = """
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, body TEXT NOT NULL, digest TEXT NOT NULL UNIQUE);
CREATE TABLE signatures (
    release TEXT NOT NULL, kind TEXT NOT NULL, envelope BLOB NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (release, kind));
CREATE TABLE datasets (name TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE snapshots (digest TEXT PRIMARY KEY, key BLOB NOT NULL, n INTEGER NOT NULL, attributes TEXT NOT NULL)
    WITHOUT ROWID;
CREATE TABLE to_read (release TEXT PRIMARY KEY, snapshot TEXT NOT NULL);
CREATE TABLE proposals (
    release TEXT PRIMARY KEY, seen TEXT NOT NULL, spec BLOB NOT NULL, state TEXT NOT NULL, findings TEXT NOT NULL,
    coordinator TEXT NOT NULL, reason TEXT, agreed TEXT NOT NULL);
CREATE TABLE regressions (id TEXT PRIMARY KEY, created TEXT NOT NULL, request BLOB NOT NULL, method TEXT NOT NULL);
CREATE TABLE heads (
    coordinator TEXT NOT NULL, party TEXT NOT NULL, document BLOB NOT NULL, PRIMARY KEY (coordinator, party));
"""
_INDEXES = """
CREATE INDEX IF NOT EXISTS proposals_state ON proposals (state);
CREATE INDEX IF NOT EXISTS proposals_seen ON proposals (seen) WHERE spec <> x'';
CREATE INDEX IF NOT EXISTS proposals_seed ON proposals (json_extract(CAST(spec AS TEXT), '$.seed'))
    WHERE spec <> x'';
CREATE INDEX IF NOT EXISTS proposals_proposer ON proposals (json_extract(CAST(spec AS TEXT), '$.proposer'))
    WHERE spec <> x'';
"""
"""So that no step takes longer the more was charged before. No part of a version: they hold nothing of their own."""
KEPT = "CREATE TABLE IF NOT EXISTS forecasts (release TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;"
"""What follows from specs and takes long. No part of a version either, and the chain says nothing of it."""
SCHEMA = _TABLES + CHECKS_SCHEMA

RESTORE = "Restore the newest backup, then: commingle party adopt"


class AgentStore:
    """One connection, one writer at a time, one process."""

    def __init__(self, path: Path) -> None:
        """Open or create the file and hold its lock until `close`.

        Raises:
            AgentRunningError: another process has it.
            LedgerError: it is not a ledger of this version, or it is damaged. A file that is there and empty is: it
                is never taken for a new ledger.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".lock").touch(mode=0o600)
        self._lock_file = path.with_suffix(".lock").open("w")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock_file.close()
            raise AgentRunningError(
                f"another agent works on {path.parent}", remedy="Stop it first: one agent process per ledger."
            ) from None
        self._guard = RLock()
        self._path = path
        new = not path.exists()
        path.touch(mode=0o600)  # it holds database passwords and digests of the data
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        try:
            self._prepare(new=new)
        except (sqlite3.Error, ValueError) as error:  # ValueError: text that is none, even in SQLite's own words
            self.close()
            raise LedgerError(f"{path} is not a ledger ({type(error).__name__})", remedy=RESTORE) from None
        except LedgerError:
            self.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: everything or nothing, on disk when it ends."""
        with self._guard:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                faults.reach("party.committing")
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite has rolled back by itself where the disk was full
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection for reading."""
        with self._guard:
            yield self._connection

    def close(self) -> None:
        """Close the file and let others have it."""
        with self._guard:
            self._connection.close()
            self._lock_file.close()

    def _prepare(self, *, new: bool) -> None:
        if not new and not self._connection.execute("PRAGMA user_version").fetchone()[0]:
            raise LedgerError(f"{self._path} is not a ledger (it is empty)", remedy=RESTORE)
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            "secure_delete=ON",  # keys of snapshots that are forgotten
            "recursive_triggers=ON",  # a row that is replaced is deleted before
            "busy_timeout=5000",
        ):
            self._connection.execute(f"PRAGMA {pragma}")
        prepare_to_check(self._connection)
        if not new:
            require_version(self._connection)
        else:
            with self.transaction() as db:
                for statement in SCHEMA.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version={VERSION}")
        self._connection.executescript(_INDEXES + KEPT)
        check_rows_to_come(self._connection)


def require_version(db: sqlite3.Connection) -> None:
    """Raise LedgerError: another version wrote the file."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version != VERSION:
        raise LedgerError(
            f"the ledger is of format {version}, and this agent reads format {VERSION}",
            remedy="Run the version of Commingle that wrote it, or a newer one (commingle --version tells which runs).",
        )


def open_to_read(path: Path) -> sqlite3.Connection:
    """The file as it is, beside an agent that may have it. Raises sqlite3.Error."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
    connection.row_factory = sqlite3.Row
    prepare_to_check(connection)
    return connection
