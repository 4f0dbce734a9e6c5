"""The agent's SQLite file: ledger, signatures, data sets and proposals, durable at every commit.

WAL, synchronous=FULL, BEGIN IMMEDIATE. One process per file for its whole lifetime: two agents that share a ledger
could both pass a cap that holds one debit.
"""

import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import RLock

from commingle.party_agent.errors import AgentRunningError, LedgerError
from commingle.party_agent.row_checks import (
    CHECKS_SCHEMA,
    check_rows_there_are,
    check_rows_to_come,
    prepare_to_check,
)
from commingle.shared.runtime import faults

VERSION = 6
_TABLES = """
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, body TEXT NOT NULL, digest TEXT NOT NULL UNIQUE);
CREATE TABLE charges (
    coordinator TEXT NOT NULL, release TEXT NOT NULL, population TEXT NOT NULL, rho_units TEXT NOT NULL,
    state TEXT NOT NULL, attempt INTEGER NOT NULL, dataset TEXT NOT NULL, data_sha256 TEXT NOT NULL,
    study TEXT NOT NULL, expires TEXT NOT NULL, approvals TEXT, body_sha256 TEXT, delta REAL NOT NULL DEFAULT 0.0,
    kind TEXT NOT NULL DEFAULT 'release', gaussian INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (coordinator, release));
CREATE TABLE signatures (
    release TEXT NOT NULL, kind TEXT NOT NULL, envelope BLOB NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (release, kind));
CREATE TABLE datasets (name TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE proposals (
    release TEXT PRIMARY KEY, seen TEXT NOT NULL, spec BLOB NOT NULL, state TEXT NOT NULL, findings TEXT NOT NULL,
    coordinator TEXT NOT NULL DEFAULT '');
CREATE TABLE regressions (id TEXT PRIMARY KEY, created TEXT NOT NULL, request BLOB NOT NULL, method TEXT);
CREATE TABLE heads (
    coordinator TEXT NOT NULL, party TEXT NOT NULL, document BLOB NOT NULL, PRIMARY KEY (coordinator, party));
"""
_INDEXES = """
CREATE INDEX IF NOT EXISTS charges_release ON charges (release);
CREATE INDEX IF NOT EXISTS charges_state ON charges (state);
CREATE INDEX IF NOT EXISTS entries_signed ON entries (json_extract(body, '$.document'), seq)
    WHERE json_extract(body, '$.kind') = 'signed';
CREATE INDEX IF NOT EXISTS entries_rejoined ON entries (seq) WHERE json_extract(body, '$.kind') = 'rejoined';
CREATE INDEX IF NOT EXISTS proposals_state ON proposals (state);
CREATE INDEX IF NOT EXISTS proposals_seen ON proposals (seen) WHERE spec <> x'';
CREATE INDEX IF NOT EXISTS proposals_seed ON proposals (json_extract(CAST(spec AS TEXT), '$.seed'))
    WHERE spec <> x'';
CREATE INDEX IF NOT EXISTS proposals_proposer ON proposals (json_extract(CAST(spec AS TEXT), '$.proposer'))
    WHERE spec <> x'';
"""
"""So that no step takes longer the more was charged before. No part of a version: they hold nothing of their own."""
SCHEMA = _TABLES + CHECKS_SCHEMA
_UPGRADES = {
    3: """
ALTER TABLE proposals DROP COLUMN decision;
ALTER TABLE proposals ADD COLUMN coordinator TEXT NOT NULL DEFAULT '';
UPDATE proposals SET coordinator = COALESCE(
    (SELECT c.coordinator FROM charges c WHERE c.release = proposals.release), (SELECT coordinator FROM charges), '');
CREATE TABLE heads (
    coordinator TEXT NOT NULL, party TEXT NOT NULL, document BLOB NOT NULL, PRIMARY KEY (coordinator, party));
""",
    4: "ALTER TABLE charges ADD COLUMN gaussian INTEGER NOT NULL DEFAULT 0;",
    5: CHECKS_SCHEMA,
}
"""What brings a ledger from one version to the next when it is opened, in one transaction."""


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
            raise LedgerError(f"{path} is not a ledger ({error})", remedy=RESTORE) from None
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
            "recursive_triggers=ON",  # a row that is replaced is deleted before
            "busy_timeout=5000",
        ):
            self._connection.execute(f"PRAGMA {pragma}")
        steps = [SCHEMA] if new else steps_to_take(self._connection)
        prepare_to_check(self._connection)
        if steps:
            with self.transaction() as db:
                _take(db, steps)
        self._connection.executescript(_INDEXES)
        check_rows_to_come(self._connection)


def steps_to_take(db: sqlite3.Connection) -> list[str]:
    """What brings a ledger to this version; nothing where it has it. Raises LedgerError where no way leads to it."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version not in {*_UPGRADES, VERSION}:
        raise LedgerError(
            f"the ledger has version {version}, this agent knows {VERSION}",
            remedy="Upgrade the agent." if version > VERSION else "Upgrade by way of the version in between.",
        )
    return [_UPGRADES[number] for number in range(version, VERSION)]


@contextmanager
def upgraded(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A ledger as this version has it: itself, or an upgraded copy in memory, so that it can be held against its chain.

    Raises:
        LedgerError: of a version that cannot be upgraded.
        sqlite3.Error: the file is not as its version has it.
    """
    steps = steps_to_take(db)
    if not steps:
        yield db
        return
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        db.backup(copy)
        copy.row_factory = sqlite3.Row
        prepare_to_check(copy)
        _take(copy, steps)
        yield copy


def _take(db: sqlite3.Connection, steps: list[str]) -> None:
    for statement in "".join(steps).split(";"):
        db.execute(statement)
    check_rows_there_are(db)
    db.execute(f"PRAGMA user_version={VERSION}")


def open_to_read(path: Path) -> sqlite3.Connection:
    """The file as it is, beside an agent that may have it. Raises sqlite3.Error."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
    connection.row_factory = sqlite3.Row
    prepare_to_check(connection)
    return connection
