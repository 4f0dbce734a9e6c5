"""The agent's SQLite file: all that it has been asked and has answered, durable at every commit, verified when opened.

WAL, synchronous=FULL, BEGIN IMMEDIATE. One process per file for its whole lifetime: two agents that share a ledger
could both pass a cap that holds one debit.

SQLite keeps no checksum of what it stores: if the disk changes a byte within a value, that is simply another value. So
the agent's connection has triggers, which the file itself has not, that keep the digest of every row. They cover the
chain too, as no link shows that the last entries are there. They guard against damage; against people there are the
chain, its signatures and its witnesses. We check whether all of it agrees before we decide anything on it, and in the
doctor. We refuse a damaged or altered file whole, as no part of it can be trusted then.
"""

import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from sqlite3 import Connection
from threading import RLock
from time import monotonic, sleep
from typing import TextIO

from commingle.party_agent.errors import AgentRunningError, LedgerError, NotFoundError, WritingError
from commingle.shared.documents.dsse import parse_envelope
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.regression import RegressionMethod, RegressionRequest
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.errors import DocumentError
from commingle.shared.release.charge import Charge, link_digest
from commingle.shared.release.ledger_fold import LedgerFold
from commingle.shared.runtime import faults
from commingle.shared.runtime.errors import ANOTHER_VERSION
from commingle.shared.text import counted

VERSION = 1
_CHECKED = ("entries", "signatures", "datasets", "snapshots", "to_read", "proposals", "regressions", "heads")
SCHEMA = """
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
CREATE TABLE checks (digest TEXT PRIMARY KEY);
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
"""Forecasts, which follow from specs and take long. No part of a version either, and in no chain."""

_LOOK_SECONDS = 0.1
_NOT_WRITTEN = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}

RESTORE = "Restore the newest backup, then: commingle party adopt"


def _locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class AgentStore:
    """One connection, one writer at a time, one process."""

    def __init__(self, path: Path, *, patience_seconds: float = 0.0) -> None:
        """Open or create the file and hold its lock until `close`.

        Raises:
            AgentRunningError: another process has it, for as long as patience lasts.
            LedgerError: it is not a ledger of this version, or it is damaged or empty: an empty file is never taken
                for a new ledger.
            WritingError: the disk is full, or lets nobody write.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".lock").touch(mode=0o600)
        self._lock_file = path.with_suffix(".lock").open("w")
        until = monotonic() + patience_seconds
        while not _locked(self._lock_file):
            if monotonic() >= until:
                self._lock_file.close()
                raise AgentRunningError(
                    f"another agent works on {path.parent}", remedy="Stop it first: one agent process per ledger."
                )
            sleep(_LOOK_SECONDS)
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
            if getattr(error, "sqlite_errorcode", None) in _NOT_WRITTEN:
                raise WritingError(
                    f"cannot write {path} ({error})",
                    remedy="Free space or mend the disk or its permissions, then repeat it.",
                    errno=getattr(error, "sqlite_errorname", None),
                ) from None
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
        with self._guard:
            yield self._connection

    def close(self) -> None:
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
            "busy_timeout=5000",
        ):
            self._connection.execute(f"PRAGMA {pragma}")
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
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version != VERSION:
        raise LedgerError(
            f"the ledger is of format {version}, and this agent reads format {VERSION}",
            remedy=ANOTHER_VERSION,
        )


def open_to_read(path: Path) -> sqlite3.Connection:
    """The file as it is, beside an agent that may have it. Raises sqlite3.Error."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
    connection.row_factory = sqlite3.Row
    _prepare_to_check(connection)
    return connection


_BEFORE_ALL = -(1 << 63)


def check_rows_to_come(db: sqlite3.Connection) -> None:
    """Keep the digest of every row that is written over this connection."""
    _prepare_to_check(db)
    db.execute("PRAGMA recursive_triggers=ON")  # a row that is replaced counts as deleted
    for table in _CHECKED:
        add = f"INSERT INTO checks VALUES ({_digest_of(db, table, 'NEW')});"  # noqa: S608 - names of ours
        drop = f"DELETE FROM checks WHERE digest = {_digest_of(db, table, 'OLD')};"  # noqa: S608 - as above
        for event, then in (("INSERT", add), ("DELETE", drop), ("UPDATE", drop + add)):
            db.execute(f"CREATE TEMP TRIGGER check_{table}_{event} AFTER {event} ON main.{table} BEGIN {then} END")


def _prepare_to_check(db: sqlite3.Connection) -> None:
    db.create_function("row_digest", -1, _row_digest, deterministic=True)


def _rows_agree(db: sqlite3.Connection) -> bool:
    found = [
        str(row[0])
        for table in _CHECKED
        for row in db.execute(f"SELECT {_digest_of(db, table)} FROM {table}")  # noqa: S608 - names of ours
    ]
    return sorted(found) == sorted(str(row[0]) for row in db.execute("SELECT digest FROM checks"))


def _digest_of(db: sqlite3.Connection, table: str, row: str = "") -> str:
    columns = sorted(found[1] for found in db.execute(f"PRAGMA main.table_info({table})"))
    return f"row_digest('{table}', {', '.join(f'{row}.{name}' if row else name for name in columns)})"


def _row_digest(*values: str | bytes | float | None) -> str:
    whole = sha256()
    for value in values:
        data = value if isinstance(value, bytes) else repr(value).encode()
        whole.update(b"%s %d " % (type(value).__name__.encode(), len(data)) + data)
    return whole.hexdigest()


def verify_ledger(db: sqlite3.Connection, *, population: str) -> LedgerFold:
    """Hold all that is in the file against the chain and the checks. Returns what the chain tells.

    Raises LedgerError: something other than this agent altered it, it is incomplete or unreadable, or the settings name
    another population than the first charge did.
    """
    with _damage_refused():
        told = catch_up(db, LedgerFold())
        _require_recorded(told, db)
        _require_whole(db)
    if told.population not in {None, population}:
        raise LedgerError(
            f"this ledger belongs to population {told.population}, and the settings name {population}",
            remedy=f"Set population back to {told.population} in settings.json: a new name gives no new budget.",
        )
    return told


def in_words(told: LedgerFold) -> str:
    return f"{counted(told.length, 'entry', 'entries')} and {counted(len(told.charges), 'charge')}"


def catch_up(db: sqlite3.Connection, told: LedgerFold) -> LedgerFold:
    """The fold of all entries there are: the same one gone on, or a new one if its last entry was rolled back.

    Raises LedgerError: an entry was altered or is missing. A missing one shows in its successor, the last in `checks`.
    """
    with _damage_refused(passing=True):
        at = db.execute("SELECT digest FROM entries WHERE seq = ?", (told.length,)).fetchone()
        if told.length and (at is None or at["digest"] != told.head):
            told = LedgerFold()
        after = told.length or _BEFORE_ALL
        for row in db.execute("SELECT seq, body, digest FROM entries WHERE seq > ? ORDER BY seq", (after,)):
            if row["seq"] != told.length + 1 or link_digest(row["body"]) != row["digest"]:
                raise LedgerError(f"entry {row['seq']} of the ledger's chain was altered", remedy=RESTORE)
            if (refused := told.follow(row["body"])) is not None:
                raise LedgerError(f"the ledger's chain does not hold: {refused.reason}", remedy=RESTORE)
    return told


@contextmanager
def _damage_refused(*, passing: bool = False) -> Iterator[None]:
    # Whatever parsing raises says only that no agent can have written this. A fault of the disk or of time may pass:
    # `passing` raises it as it is. It has SQLite's code; an error about what stands in the file has none.
    try:
        yield
    except (sqlite3.Error, DocumentError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        if passing and isinstance(error, sqlite3.OperationalError) and hasattr(error, "sqlite_errorcode"):
            raise
        raise LedgerError("the ledger is damaged, or not one of this agent's", remedy=RESTORE) from None


def _require_recorded(told: LedgerFold, db: sqlite3.Connection) -> None:
    recorded = {place: entry.digest for place, entry in told.signed.items()} | told.received
    rows = db.execute("SELECT release, kind, envelope, digest FROM signatures").fetchall()
    altered = any(parse_envelope(row["envelope"]).digest != row["digest"] for row in rows)
    if altered or recorded != {(row["release"], row["kind"]): row["digest"] for row in rows}:
        raise LedgerError("the signatures are not those of the ledger's chain", remedy=RESTORE)


def _require_whole(db: sqlite3.Connection) -> None:
    (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise LedgerError(f"the ledger's file is damaged: {found}", remedy=RESTORE)
    with closing(sqlite3.connect(":memory:")) as expected:
        expected.executescript(KEPT)
        kept = _columns(expected)  # of no version, so it may be missing
        expected.executescript(SCHEMA)
        if _columns(db) | kept != _columns(expected):
            raise LedgerError("the ledger's tables are not those of this version", remedy=RESTORE)
    if not _rows_agree(db):
        raise LedgerError("a row of the ledger's file was altered or is missing", remedy=RESTORE)


def _columns(db: sqlite3.Connection) -> set[tuple[str, str, str, int]]:
    found = db.execute(
        "SELECT m.name, t.name, t.type, t.pk FROM sqlite_master m, pragma_table_info(m.name) t WHERE m.type = 'table'"
    )
    return {(row[0], row[1], row[2], row[3]) for row in found}


@dataclass(frozen=True, slots=True)
class Regression:
    """A regression that was paid for; without a signed result if it was interrupted, given up or not witnessed yet."""

    request: RegressionRequest
    charge: Charge
    document: SignedDocument | None


@dataclass(frozen=True, slots=True)
class Requests:
    store: AgentStore

    def add(self, db: Connection, request: RegressionRequest, *, method: RegressionMethod, created: datetime) -> None:
        """Note a request and the method it is debited for, in the transaction that debits its charge."""
        at = created.astimezone(UTC).isoformat()
        row = (request.id, at, encode(request), method)
        db.execute("INSERT INTO regressions (id, created, request, method) VALUES (?, ?, ?, ?)", row)

    def get(self, identifier: str) -> RegressionRequest:
        with self.store.reading() as db:
            row = db.execute("SELECT request FROM regressions WHERE id = ?", (identifier,)).fetchone()
        if row is None:
            raise NotFoundError("no such regression", remedy="List them: commingle party regressions")
        return decode(RegressionRequest, row["request"])

    def debited_for(self, identifier: str) -> RegressionMethod:
        with self.store.reading() as db:
            row = db.execute("SELECT method FROM regressions WHERE id = ?", (identifier,)).fetchone()
        method: RegressionMethod = row["method"]
        return method

    def all(self) -> list[str]:
        with self.store.reading() as db:
            rows = db.execute("SELECT id FROM regressions ORDER BY rowid DESC").fetchall()
        return [row["id"] for row in rows]

    def between(self, begin: datetime, end: datetime) -> int:
        """How many were paid for between two aware moments."""
        with self.store.reading() as db:
            rows = db.execute("SELECT created FROM regressions").fetchall()
        return sum(begin < datetime.fromisoformat(row["created"]) < end for row in rows)
