"""Whether a ledger's file is as its agent has left it: asked before anything is decided on it, and by the doctor.

Entries are a chain. What the chain tells is held against the charges and signatures, and every row of the other tables
against its digest (`row_checks`). A damaged or altered file is refused whole: nobody knows what else changed.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from commingle.party_agent.charges import ChargeRecord, record_of
from commingle.party_agent.errors import LedgerError
from commingle.party_agent.row_checks import rows_agree
from commingle.party_agent.store import KEPT, RESTORE, SCHEMA
from commingle.shared.documents.dsse import parse_envelope
from commingle.shared.documents.errors import DocumentError
from commingle.shared.documents.model import decode
from commingle.shared.release.charge import (
    Charge,
    LedgerEntry,
    first_altered,
    link_digest,
    populations_of,
    replay,
)
from commingle.shared.release.rounds import Refused


def verify_ledger(db: sqlite3.Connection, *, population: str) -> str:
    """Hold all that is in the file against the chain and the checks. How far it has come, in words.

    Args:
        db: the file, open, of this agent's version.
        population: as the settings name it.

    Raises:
        LedgerError: something was altered by something else than this agent, is missing, or cannot be read; or the
            settings name another population than the first charge did.
    """
    with _damage_refused():
        entries = [decode(LedgerEntry, row["body"].encode()) for row in _linked_rows(db)]
        records = [record_of(row) for row in db.execute("SELECT * FROM charges ORDER BY rowid")]
        _require_told(entries, records)
        _require_recorded(entries, db)
        _require_whole(db)
    known = populations_of(records)
    if known and population not in known:
        raise LedgerError(
            f"this ledger is that of population {known[0]}, and the settings name {population}",
            remedy=f"Set population back to {known[0]} in settings.json: another name is no other budget.",
        )
    return f"{len(entries)} entries and {len(records)} charges"


def verified_entries(db: sqlite3.Connection) -> list[Mapping[str, Any]]:
    """The chain. Raises LedgerError where an entry was altered or is missing."""
    with _damage_refused():
        rows = _linked_rows(db)
        return [{**json.loads(row["body"]), "seq": row["seq"], "digest": row["digest"]} for row in rows]


@contextmanager
def _damage_refused() -> Iterator[None]:
    """Whatever parsing raises says nothing but that this cannot have been written by an agent."""
    try:
        yield
    except (sqlite3.Error, DocumentError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError):
        raise LedgerError("the ledger is damaged, or not one of this agent's", remedy=RESTORE) from None


def _linked_rows(db: sqlite3.Connection) -> list[sqlite3.Row]:
    """The entries, each naming the one before. A missing one shows in its successor, or in what it told."""
    rows = db.execute("SELECT * FROM entries ORDER BY seq").fetchall()
    altered = first_altered([row["body"] for row in rows])
    for place, row in enumerate(rows):
        if place == altered or link_digest(row["body"]) != row["digest"] or row["seq"] != place + 1:
            raise LedgerError(f"entry {row['seq']} of the ledger's chain was altered", remedy=RESTORE)
    return rows


def _require_told(entries: list[LedgerEntry], records: list[ChargeRecord]) -> None:
    """Every column of a charge that a decision reads is what its moves have made it."""
    told = replay(entries)
    if isinstance(told, Refused):
        raise LedgerError(f"the ledger's chain does not hold: {told.reason}", remedy=RESTORE)
    if told != {record.release: _as_told(record, told.get(record.release)) for record in records}:
        raise LedgerError("the charges are not those of the ledger's chain", remedy=RESTORE)


def _require_recorded(entries: list[LedgerEntry], db: sqlite3.Connection) -> None:
    """Every signature is there and has the digest its entry names."""
    recorded = {(e.release, e.document): e.digest for e in entries if e.kind in {"signed", "received"}}
    rows = db.execute("SELECT release, kind, envelope, digest FROM signatures").fetchall()
    altered = any(parse_envelope(row["envelope"]).digest != row["digest"] for row in rows)
    if altered or recorded != {(row["release"], row["kind"]): row["digest"] for row in rows}:
        raise LedgerError("the signatures are not those of the ledger's chain", remedy=RESTORE)


def _require_whole(db: sqlite3.Connection) -> None:
    """Pages, indices, tables and every row are what an agent of this version has written."""
    (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise LedgerError(f"the ledger's file is damaged: {found}", remedy=RESTORE)
    with closing(sqlite3.connect(":memory:")) as expected:
        expected.executescript(KEPT)
        kept = _columns(expected)  # of no version, so it may be missing
        expected.executescript(SCHEMA)
        if _columns(db) | kept != _columns(expected):
            raise LedgerError("the ledger's tables are not those of this version", remedy=RESTORE)
    if not rows_agree(db):
        raise LedgerError("a row of the ledger's file was altered or is missing", remedy=RESTORE)


def _columns(db: sqlite3.Connection) -> set[tuple[str, str, str, int]]:
    """Table, name, type and place in the key."""
    found = db.execute(
        "SELECT m.name, t.name, t.type, t.pk FROM sqlite_master m, pragma_table_info(m.name) t WHERE m.type = 'table'"
    )
    return {(row[0], row[1], row[2], row[3]) for row in found}


def _as_told(record: ChargeRecord, told: Charge | None) -> Charge:
    """The part of a record that its chain tells: entries of an earlier version have no terms."""
    return Charge(
        population=record.population,
        cost=record.cost,
        terms=None if told is not None and told.terms is None else record.terms,
        state=record.state,
        attempt=record.attempt,
        approvals=record.approvals,
        body_sha256=record.body_sha256,
    )
