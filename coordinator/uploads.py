"""Blocks: checked against the party's signature and the spec, stored, then recorded."""

from dataclasses import dataclass
from threading import Lock
from typing import BinaryIO

import structlog

from commingle.coordinator.coordinator import (
    Coordinator,
    advance_round,
    is_repetition,
    record,
    require_blobs,
    require_release,
    share_of,
    spec_of,
)
from commingle.coordinator.exchanges import agreed_transcript
from commingle.coordinator.store.rows import ReleaseRow
from commingle.shared.documents.dsse import Envelope, Verified
from commingle.shared.documents.errors import BlockError
from commingle.shared.documents.model import decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import (
    BlockStatement,
    approval_set_digest,
    open_approvals,
    open_block_statement,
)
from commingle.shared.mechanisms.moments.exchange.documents import ColumnsStatement
from commingle.shared.release.block import check_block, largest_body
from commingle.shared.release.plan import plan_block
from commingle.shared.release.rounds import StoreBlock
from commingle.shared.runtime import faults

_log = structlog.get_logger()
_one_block_in_memory = Lock()


@dataclass(frozen=True, slots=True)
class ExpectedBlock:
    """An upload that may begin: its verified statement, and the most bytes its body can have."""

    release: str
    party: str
    statement: Verified[BlockStatement]
    limit: int


def expect_block(coordinator: Coordinator, release: str, party: str, envelope: Envelope) -> ExpectedBlock:
    """Check everything that can be checked before the body is read.

    Raises:
        UnknownError, SignatureError, DocumentError, BlockError, OtherBytesError, StateError: the upload is refused.
    """
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    spec = spec_of(found)
    share = share_of(spec, party)
    statement = open_block_statement(envelope, share, spec=release)
    if not is_repetition(found.shares[party].statement, envelope, what=f"block by {party}"):
        advance_round(found.round, StoreBlock(party), coordinator)
        _check_approvals(found, spec, statement.document)
        if statement.document.transcript != agreed_transcript(found):
            raise BlockError(
                "the block does not come from the exchange that is recorded here",
                remedy="Propose a new release.",
            )
        columns = found.shares[party].columns
        if columns is not None and decode(ColumnsStatement, columns.payload_bytes).sums != statement.document.sums:
            raise BlockError("the block's sums are not those of the party's columns", remedy="Propose a new release.")
    plan = plan_block(spec.document, share)
    if not plan.describes(statement.document):
        raise BlockError(
            "the statement's rows, columns, sigma or sums are not those the spec calls for",
            remedy="Both sides must run the same version; privatise again under this spec.",
        )
    return ExpectedBlock(release, party, statement, largest_body(plan.rows, len(plan.columns)))


def store_block(coordinator: Coordinator, expected: ExpectedBlock, file: BinaryIO) -> bool:
    """Check and record a received body; whether it is new. The blob is durable before the transaction begins.

    Raises:
        BlockError: the body is not what the statement says.
        OtherBytesError, StateError: something else happened meanwhile.
    """
    release, party = expected.release, expected.party
    with _one_block_in_memory:
        file.seek(0)
        body = file.read()
        check_block(body, expected.statement.document)
        digest = coordinator.blobs.put(body)
    faults.reach("coordinator.block.written")
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        share = found.shares[party]
        if is_repetition(share.statement, expected.statement.envelope, what=f"block by {party}") and share.body:
            return False
        after = advance_round(found.round, StoreBlock(party), coordinator)
        require_blobs(coordinator, [digest])
        tx.releases.save_block(release, party, expected.statement.envelope, digest)
        statement = expected.statement.digest
        record(tx, coordinator, release, after, kind="block", party=party, document=statement)
    faults.reach("coordinator.block.committed")
    _log.info("block stored", release=release, party=party, state=after.state)
    return True


def _check_approvals(found: ReleaseRow, spec: Verified[ReleaseSpec], statement: BlockStatement) -> None:
    approvals = {name: share.approval for name, share in found.shares.items() if share.approval is not None}
    if statement.approvals != approval_set_digest(open_approvals(approvals, spec)):
        raise BlockError(
            "the block relies on another set of approvals than the recorded one",
            remedy="Compare the approvals at GET /v1/releases/{id} with those the debit was made under.",
        )
