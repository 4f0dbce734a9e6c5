"""What members do in a round: they propose a release, decide on it, and contribute blocks and messages of an exchange.

The coordinator cannot read the messages. It checks each contribution against its party's signature and the spec, stores
it, then records it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import BinaryIO, Generic, Literal, TypeAlias, TypeVar

import structlog

from commingle.coordinator.coordinator import (
    STAYS,
    Coordinator,
    advance_round,
    is_repetition,
    record,
    require_blobs,
    require_release,
    share_of,
    spec_of,
)
from commingle.coordinator.errors import NotSentError, StateError, TooManyProposalsError
from commingle.coordinator.store.releases import ReleaseRow
from commingle.coordinator.store.store import Transaction
from commingle.shared.documents.dsse import Envelope, Fingerprint, Verified, VerifyingKey
from commingle.shared.documents.model import WireModel, decode
from commingle.shared.documents.spec import PartySpec, ReleaseSpec, require_plain_text
from commingle.shared.documents.statements import (
    REJECTED_BECAUSE,
    AlignmentStatement,
    Approval,
    ApprovalRequest,
    BlockStatement,
    Rejection,
    approval_set_digest,
    open_approvals,
    open_statement,
)
from commingle.shared.errors import BlockError, DocumentError, ExchangeError, SpecError
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.exchange.messages import (
    ColumnsStatement,
    Exchange,
    ReplyStatement,
    open_columns,
    open_reply_statement,
    require_evidence,
    require_one_set,
    transcript,
)
from commingle.shared.release.checks import open_spec
from commingle.shared.release.matrix import ReleaseSizes, check_block, largest_body, release_sizes
from commingle.shared.release.plan import plan_block
from commingle.shared.release.rounds import UNSTATED, Alignment, Approve, Reject, State, StoreBlock, Tick
from commingle.shared.runtime import faults
from commingle.shared.text import quoted

Kind: TypeAlias = Literal["columns", "reply"]
Said = TypeVar("Said", bound=WireModel)
_CLOCKS_APART = timedelta(days=1)
_FURTHEST = timedelta(days=366)
_PIECE = 1 << 20
_log = structlog.get_logger()
_one_block_in_memory = Lock()


def propose(coordinator: Coordinator, envelope: Envelope) -> tuple[ReleaseRow, bool]:
    """Record a proposal; whether it is new. The same bytes again change nothing."""
    with coordinator.store.read() as tx:
        keys = _proposers(tx, coordinator, envelope)
    spec = open_spec(envelope, keys)
    require_plain_text(spec.document)
    sizes = release_sizes(spec.document)  # refuses a spec whose noise leaves exact arithmetic
    with coordinator.store.write() as tx:
        present = tx.releases.get(spec.digest)
        if present is not None:
            return present, False
        coordinator.quotas.require_accepted(sizes)
        coordinator.disks.require(sizes.exchanged + sizes.kept)
        _make_room(tx, coordinator, spec.signer, sizes)
        _check_times(spec.document, coordinator.clock())
        for party in spec.document.parties:
            _check_member(tx, party)
        proposer = next(key for key in keys if key.fingerprint == spec.signer)
        tx.releases.add(spec.envelope, spec.document, proposer_key=proposer.raw.hex(), sizes=sizes)
        release = require_release(tx, spec.digest)
        record(tx, coordinator, spec.digest, release.round, kind="proposal", document=spec.digest)
    faults.reach("coordinator.proposal.committed")
    _log.info("proposed", release=spec.digest)
    return release, True


def approve(coordinator: Coordinator, release: str, party: str, request: ApprovalRequest) -> bool:
    """Record a party's approval; whether it is new. The same documents again change nothing."""
    spec = _spec(coordinator, release)
    share = share_of(spec, party)
    approval = open_statement(request.approval, Approval, share, spec=release)
    stated = _stated(request, share, spec)
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        recorded, what = found.shares[party], f"approval by {party}"
        again = is_repetition(recorded.approval, request.approval, what=what)
        if again and (request.alignment is None or is_repetition(recorded.alignment, request.alignment, what=what)):
            return False
        after = advance_round(found.round, Approve(party, stated), coordinator)
        tx.releases.save_approval(release, party, request.approval, request.alignment, stated)
        record(tx, coordinator, release, after, kind="approval", party=party, document=approval.digest)
    faults.reach("coordinator.approval.committed")
    _log.info("approved", release=release, party=party, state=after.state)
    return True


def _stated(request: ApprovalRequest, share: PartySpec, spec: Verified[ReleaseSpec]) -> Alignment:
    if (request.alignment is None) is not spec.document.keyed:
        raise DocumentError(
            "an approval states its list of people where they are listed, and nothing where they are keyed",
            remedy="Approve with an agent of this version.",
        )
    if request.alignment is None:
        return UNSTATED
    alignment = open_statement(request.alignment, AlignmentStatement, share, spec=spec.digest).document
    return Alignment(alignment.subjects, alignment.digest)


def reject(coordinator: Coordinator, release: str, party: str, envelope: Envelope) -> bool:
    """Record a party's rejection or withdrawal; whether it is new. The same document again changes nothing."""
    spec = _spec(coordinator, release)
    rejection = open_statement(envelope, Rejection, share_of(spec, party), spec=release)
    require_evidence(spec, rejection.document)
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        if is_repetition(found.shares[party].rejection, envelope, what=f"rejection by {party}"):
            return False
        after = advance_round(found.round, Reject(party, _why(rejection.document)), coordinator)
        tx.releases.save_signed(release, party, envelope, kind="rejection")
        record(tx, coordinator, release, after, kind="rejection", party=party, document=rejection.digest)
    faults.reach("coordinator.rejection.committed")
    _log.info("rejected", release=release, party=party, state=after.state)
    return True


def _why(rejection: Rejection) -> str:
    said = REJECTED_BECAUSE[rejection.reason]
    if rejection.reason == "exchange" and rejection.about is not None:
        said = f"messages of {rejection.about} do not follow the exchange"
    if rejection.evidence is not None:
        said += f", and {rejection.about} signed two sets of columns"
    if rejection.said is None:
        return said
    own = quoted(rejection.said, longest=2000)
    return own if rejection.reason == "operator" else f"{said}: {own}"


def _proposers(tx: Transaction, coordinator: Coordinator, envelope: Envelope) -> list[VerifyingKey]:
    member = tx.members.by_key(envelope.signatures[0].keyid)
    own = coordinator.key.verifying_key
    return [own] if member is None or member.revoked is not None else [own, VerifyingKey.from_hex(member.signing_key)]


def _make_room(tx: Transaction, coordinator: Coordinator, signer: Fingerprint, sizes: ReleaseSizes) -> None:
    # no member fills the disk: we limit its open proposals, its ended ones that we keep whole, and its bytes
    member = tx.members.owner_of(signer)
    if member is None:  # the coordinator itself
        return
    keys, most = [key.signing_key for key in tx.members.keys(member)], coordinator.most_proposals
    if tx.releases.open_by(keys) >= most:
        raise TooManyProposalsError(
            f"{most} proposals of {member} are open already",
            remedy="Wait until one is published or expires, or have a member reject one; then propose again.",
        )
    taken = tx.releases.bytes_by(keys, since=coordinator.clock() - STAYS)
    coordinator.quotas.require_share(member, taken, sizes)
    for release in tx.releases.ended_by(keys)[most:]:
        tx.releases.drop_documents(release)


def _check_times(spec: ReleaseSpec, now: datetime) -> None:
    remedy = "Propose it again with the clock set right."
    if spec.expired(now):
        raise SpecError("expires: the spec has expired already", remedy=remedy)
    if not -_FURTHEST < spec.created - now < _CLOCKS_APART:
        raise SpecError("created: not a time near now", remedy=remedy)
    if spec.expires - now > _FURTHEST:
        raise SpecError(f"expires: more than {_FURTHEST.days} days ahead", remedy="Choose a shorter lifetime.")


def _check_member(tx: Transaction, party: PartySpec) -> None:
    member = tx.members.get(party.name)
    if member is None:
        raise SpecError(f"parties: {party.name} is not enrolled", remedy="Invite and enrol every member first.")
    if member.revoked is not None:
        how = "was revoked" if member.departure is None else f"left on {member.revoked:%Y-%m-%d}"
        raise SpecError(f"parties: {party.name} {how}", remedy="Propose it without that member.")
    if (member.signing_key, member.sealing_key) != (party.signing_key, party.sealing_key):
        raise SpecError(
            f"parties: {party.name} is enrolled with other keys",
            remedy="Take every party's keys from GET /v1/parties.",
        )


def _spec(coordinator: Coordinator, release: str) -> Verified[ReleaseSpec]:
    with coordinator.store.read() as tx:
        return spec_of(require_release(tx, release))


@dataclass(frozen=True, slots=True)
class Expected(Generic[Said]):
    """An upload that may begin, with its verified statement.

    Attributes:
        limit: the most bytes of a block; the exact size of a message.
    """

    release: str
    party: str
    statement: Verified[Said]
    limit: int


ExpectedMessage: TypeAlias = Expected[ColumnsStatement] | Expected[ReplyStatement]


def exchange_of(release: ReleaseRow) -> Exchange:
    """The exchange of a release that every party has approved. Raises ProtocolError if there is none."""
    return Exchange.of(spec_of(release), release.signed("approval"))


def expect_message(
    coordinator: Coordinator, release: str, party: str, envelope: Envelope, *, kind: Kind
) -> ExpectedMessage:
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
    """The messages of some parties, as files the caller closes, opened one after the other."""
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    digests = [_require_sent(found, party, kind).digest for party in parties]
    return (coordinator.blobs.open_running(release, digest) for digest in digests)


def agreed_transcript(release: ReleaseRow) -> str | None:
    """The digest of everything that was exchanged, verified again; None if the release needs no exchange."""
    if not mechanism_of(spec_of(release).document).interactive:
        return None
    columns, replies = release.signed("columns"), release.signed("reply")
    return transcript(exchange_of(release), columns=columns, replies=replies)


def remove_messages(coordinator: Coordinator, release: str) -> None:
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
    # an exchange is over once a block is in: everybody has replied
    state = advance_round(found.round, Tick(), coordinator).state
    if state is not State.APPROVED:
        raise StateError(f"the release is {state}", remedy="GET the release to see where it stands.")


def expect_block(coordinator: Coordinator, release: str, party: str, envelope: Envelope) -> Expected[BlockStatement]:
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
