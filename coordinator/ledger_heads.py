"""Witnessing how far its members' ledgers have come, so that none of them is set back unnoticed.

Only what follows the newest is taken, and the last thousand of each member are kept. A member's statement may be
carried by any other: that is how a coordinator which was restored from a backup, or hides what it has, is corrected.
"""

import structlog

from commingle.coordinator.coordinator import Coordinator
from commingle.coordinator.errors import LedgerHeadError
from commingle.coordinator.members import require_party
from commingle.coordinator.store.rows import HeadRow
from commingle.shared.documents.errors import SignatureError
from commingle.shared.documents.ledger_head import NO_HEAD, LedgerHead, open_head
from commingle.shared.documents.model import decode
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.release.rounds import Refused

_log = structlog.get_logger()


def witness(coordinator: Coordinator, party: str, signed: SignedDocument, *, after: str) -> bool:
    """Keep a member's newest ledger head; whether it is new.

    Args:
        coordinator: who witnesses.
        party: whose it is.
        signed: under a key that is or was the member's.
        after: the head it follows, `NO_HEAD` where it is the first.

    Raises:
        UnknownError, SignatureError, DocumentError: not this member's.
        LedgerHeadError: it does not follow the newest that is kept, which stays.
    """
    offered, key = open_head(signed, party=party)
    with coordinator.store.write() as tx:
        member = require_party(tx, party)
        if key.fingerprint not in {known.fingerprint for known in tx.members.keys(member.name)}:
            raise SignatureError(
                "the ledger head is signed with a key that was never this party's", remedy="Sign it with the party's."
            )
        row = tx.heads.newest(party)
        if row is not None and row.head == offered.head:
            return False
        newest = None if row is None else open_head(_signed(row))[0]
        if (refused := _refuse(newest, offered, after=after)) is not None:
            raise LedgerHeadError(
                refused.reason, remedy="Compare with the party's own ledger: GET /v1/parties/{party}/ledger-heads."
            )
        tx.heads.add(head_row(offered, signed))
    _log.info("ledger head witnessed", party=party, height=offered.height)
    return True


def newest_heads(coordinator: Coordinator) -> tuple[SignedDocument, ...]:
    """The newest of each member, in order of names."""
    with coordinator.store.read() as tx:
        return tuple(map(_signed, tx.heads.newest_of_each()))


def head_history(coordinator: Coordinator, party: str, *, below: int | None, limit: int) -> tuple[SignedDocument, ...]:
    """A member's statements of less than a height, the newest first. Raises UnknownError."""
    with coordinator.store.read() as tx:
        return tuple(map(_signed, tx.heads.history(require_party(tx, party).name, below=below, limit=limit)))


def head_row(head: LedgerHead, signed: SignedDocument) -> HeadRow:
    """The database row of a witnessed head and of the document that stated it."""
    return HeadRow(head.party, head.height, head.head, signed.model_dump_json())


def _signed(row: HeadRow) -> SignedDocument:
    return decode(SignedDocument, row.document.encode())


def _refuse(newest: LedgerHead | None, offered: LedgerHead, *, after: str) -> Refused | None:
    """Why what is said to follow the head `after` is not taken; None where it is."""
    if newest is None:
        return None if after == NO_HEAD else Refused("no ledger head of this party is known here")
    if after != newest.head:
        return Refused(f"the newest ledger head here is {newest.head}, of height {newest.height}")
    if offered.height <= newest.height:
        return Refused(f"height {offered.height} is not beyond {newest.height}, where the newest ledger head here is")
    return None
