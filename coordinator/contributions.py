"""What parties contribute to a release: messages of an exchange, which the coordinator cannot read, and blocks.

Each is checked against its party's signature and the spec, stored, then recorded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import BinaryIO, Generic, Literal, TypeAlias, TypeVar

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
from commingle.coordinator.errors import NotSentError, StateError
from commingle.coordinator.store.releases import ReleaseRow
from commingle.shared.documents.dsse import Envelope, Verified
from commingle.shared.documents.model import WireModel, decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import BlockStatement, approval_set_digest, open_approvals, open_statement
from commingle.shared.errors import BlockError, ExchangeError
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.exchange.messages import (
    ColumnsStatement,
    Exchange,
    ReplyStatement,
    open_columns,
    open_reply_statement,
    require_one_set,
    transcript,
)
from commingle.shared.release.matrix import check_block, largest_body
from commingle.shared.release.plan import plan_block
from commingle.shared.release.rounds import State, StoreBlock, Tick
from commingle.shared.runtime import faults

Kind: TypeAlias = Literal["columns", "reply"]
Said = TypeVar("Said", bound=WireModel)
_PIECE = 1 << 20
_log = structlog.get_logger()
_one_block_in_memory = Lock()


@dataclass(frozen=True, slots=True)
class Expected(Generic[Said]):
    """An upload that may begin.

    Attributes:
        statement: verified.
        limit: bytes of the body: at most, and of a message in an exchange neither more nor fewer.
    """

    release: str
    party: str
    statement: Verified[Said]
    limit: int


ExpectedMessage: TypeAlias = Expected[ColumnsStatement] | Expected[ReplyStatement]


def exchange_of(release: ReleaseRow) -> Exchange:
    """The exchange of a release that every party has approved. Raises ProtocolError where there is none."""
    return Exchange.of(spec_of(release), release.signed("approval"))


def expect_message(
    coordinator: Coordinator, release: str, party: str, envelope: Envelope, *, kind: Kind
) -> ExpectedMessage:
    """Check everything that can be checked before the body is read."""
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    share_of(spec_of(found), party)
    if not is_repetition(found.signed(kind).get(party), envelope, what=f"{kind} by {party}"):
        _require_running(coordinator, found)
    exchange = exchange_of(found)
    if kind == "columns":
        columns = open_columns(exchange, envelope, party)
        return Expected(release, party, columns, exchange.columns_size(party))
    require_one_set(exchange, found.signed("columns"), {party: envelope})
    reply = open_reply_statement(exchange, envelope, party)
    return Expected(release, party, reply, exchange.reply_size(party))


def store_message(coordinator: Coordinator, expected: ExpectedMessage, file: BinaryIO) -> bool:
    """Check and record a received body; whether it is new. The file is durable before the transaction begins."""
    release, party, envelope = expected.release, expected.party, expected.statement.envelope
    kind: Kind = "columns" if isinstance(expected.statement.document, ColumnsStatement) else "reply"
    _check_body(expected, file)
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    repeated = is_repetition(found.signed(kind).get(party), envelope, what=f"{kind} by {party}")
    if repeated and found.state.final:
        return False
    if not repeated:  # it may have ended while the body came
        _require_running(coordinator, found)
    coordinator.blobs.put_running(release, envelope.digest, file)
    faults.reach(f"coordinator.{kind}.written")
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        if is_repetition(found.signed(kind).get(party), envelope, what=f"{kind} by {party}"):
            return False
        _require_running(coordinator, found)
        tx.releases.save_signed(release, party, envelope, kind=kind)
        record(tx, coordinator, release, found.round, kind=kind, party=party, document=envelope.digest)
    faults.reach(f"coordinator.{kind}.committed")
    _log.info("message stored", release=release, party=party, kind=kind)
    return True


def open_messages(coordinator: Coordinator, release: str, parties: Sequence[str], *, kind: Kind) -> Iterator[BinaryIO]:
    """What each of some parties sent, as files the caller closes, opened one after the other."""
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    digests = [_require_sent(found, party, kind).digest for party in parties]
    return (coordinator.blobs.open_running(release, digest) for digest in digests)


def agreed_transcript(release: ReleaseRow) -> str | None:
    """The digest of everything that was exchanged, verified again; None where the release needs no exchange."""
    if not mechanism_of(spec_of(release).document).interactive:
        return None
    columns, replies = release.signed("columns"), release.signed("reply")
    return transcript(exchange_of(release), columns=columns, replies=replies)


def remove_messages(coordinator: Coordinator, release: str) -> None:
    """Remove what was exchanged for a release that is over. Raises StorageError."""
    coordinator.blobs.remove_running(release)
    faults.reach("coordinator.exchange.dropped")
    _log.info("exchange removed", release=release)


def _require_sent(found: ReleaseRow, party: str, kind: Kind) -> Envelope:
    share_of(spec_of(found), party)
    sent = found.signed(kind).get(party)
    if sent is None or found.state.final:
        raise NotSentError(
            f"the release is {found.state}; there is no {kind} by {party}", remedy="Follow the release's events."
        )
    return sent


def _check_body(expected: ExpectedMessage, file: BinaryIO) -> None:
    file.seek(0)
    digest = sha256()
    for piece in iter(partial(file.read, _PIECE), b""):
        digest.update(piece)
    if (file.tell(), digest.hexdigest()) != (expected.limit, expected.statement.document.body_sha256):
        raise ExchangeError("the uploaded bytes are not those of the signed statement", remedy="Send the stored bytes.")


def _require_running(coordinator: Coordinator, found: ReleaseRow) -> None:
    """Refuse where the exchange is over: once a block is in, everybody has replied."""
    state = advance_round(found.round, Tick(), coordinator).state
    if state is not State.APPROVED:
        raise StateError(f"the release is {state}", remedy="GET the release to see where it stands.")


def expect_block(coordinator: Coordinator, release: str, party: str, envelope: Envelope) -> Expected[BlockStatement]:
    """Check everything that can be checked before the body is read."""
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    spec = spec_of(found)
    share = share_of(spec, party)
    statement = open_statement(envelope, BlockStatement, share, spec=release)
    if not is_repetition(found.shares[party].block, envelope, what=f"block by {party}"):
        advance_round(found.round, StoreBlock(party), coordinator)
        _check_approvals(found, spec, statement.document)
        if statement.document.transcript != agreed_transcript(found):
            raise BlockError(
                "the block does not come from the exchange that is recorded here",
                remedy="Propose a new release.",
            )
        columns = found.shares[party].columns
        if columns is not None and decode(ColumnsStatement, columns.payload_bytes).sums != statement.document.sums:
            raise BlockError("the block's sums are not those of the member's columns", remedy="Propose a new release.")
    plan = plan_block(spec.document, share)
    if not plan.describes(statement.document):
        raise BlockError(
            "the statement's rows, columns, sigma or sums are not those the spec calls for",
            remedy="Both sides must run the same version; privatise again under this spec.",
        )
    return Expected(release, party, statement, largest_body(plan.rows, len(plan.columns)))


def store_block(coordinator: Coordinator, expected: Expected[BlockStatement], file: BinaryIO) -> bool:
    """Check and record a received body; whether it is new. The blob is durable before the transaction begins."""
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
        if is_repetition(share.block, expected.statement.envelope, what=f"block by {party}") and share.body:
            return False
        after = advance_round(found.round, StoreBlock(party), coordinator)
        require_blobs(coordinator, [digest])
        tx.releases.save_block(release, party, expected.statement.envelope, digest)
        record(tx, coordinator, release, after, kind="block", party=party, document=expected.statement.digest)
    faults.reach("coordinator.block.committed")
    _log.info("block stored", release=release, party=party, state=after.state)
    return True


def _check_approvals(found: ReleaseRow, spec: Verified[ReleaseSpec], statement: BlockStatement) -> None:
    if statement.approvals != approval_set_digest(open_approvals(found.signed("approval"), spec)):
        raise BlockError(
            "the block relies on another set of approvals than the recorded one",
            remedy="Compare the approvals at GET /v1/releases/{id} with those the debit was made under.",
        )
