"""Whether a ledger's file is as its agent has left it: asked before anything is decided on it, and by the doctor.

The chain of entries is folded, its signatures are held against it, and every row against its digest (`row_checks`). A
damaged or altered file is refused whole: nobody knows what else changed.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from commingle.party_agent.errors import LedgerError
from commingle.party_agent.ledger.row_checks import rows_agree
from commingle.party_agent.ledger.store import KEPT, RESTORE, SCHEMA
from commingle.shared.documents.dsse import parse_envelope
from commingle.shared.documents.errors import DocumentError
from commingle.shared.release.charge import link_digest
from commingle.shared.release.ledger_fold import LedgerFold

_BEFORE_ALL = -(1 << 63)


def verify_ledger(db: sqlite3.Connection, *, population: str) -> LedgerFold:
    """Hold all that is in the file against the chain and the checks. What the chain tells.

    Args:
        db: the file, open, of this agent's version.
        population: as the settings name it.

    Raises:
        LedgerError: something was altered by something else than this agent, is missing, or cannot be read; or the
            settings name another population than the first charge did.
    """
    with _damage_refused():
        told = catch_up(db, LedgerFold())
        _require_recorded(told, db)
        _require_whole(db)
    if told.population not in {None, population}:
        raise LedgerError(
            f"this ledger belongs to population {told.population}, and the settings name {population}",
            remedy=f"Set population back to {told.population} in settings.json: another name is no other budget.",
        )
    return told


def in_words(told: LedgerFold) -> str:
    """How far a ledger has come."""
    return f"{told.length} entries and {len(told.charges)} charges"


def catch_up(db: sqlite3.Connection, told: LedgerFold) -> LedgerFold:
    """The fold of all entries there are: the same one gone on, or a new one where its last entry was rolled back.

    Raises:
        LedgerError: an entry was altered or is missing. A missing one shows in its successor, and the last in `checks`.
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
    """Whatever parsing raises says nothing but that this cannot have been written by an agent.

    What the disk or the time fails may pass, and is raised as it is where that is asked for: such an error has SQLite's
    code, and one about what stands in the file, such as bytes that are no text, has none.
    """
    try:
        yield
    except (sqlite3.Error, DocumentError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        if passing and isinstance(error, sqlite3.OperationalError) and hasattr(error, "sqlite_errorcode"):
            raise
        raise LedgerError("the ledger is damaged, or not one of this agent's", remedy=RESTORE) from None


def _require_recorded(told: LedgerFold, db: sqlite3.Connection) -> None:
    """Every signature is there and has the digest its entry names."""
    recorded = {place: entry.digest for place, entry in told.signed.items()} | told.received
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
