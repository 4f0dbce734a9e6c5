"""Relaying an exchange: encrypted columns and replies to them, neither of which the coordinator can read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import BinaryIO, Literal, TypeAlias

import structlog

from commingle.coordinator.coordinator import (
    Coordinator,
    advance_round,
    is_repetition,
    record,
    require_release,
    share_of,
    spec_of,
)
from commingle.coordinator.errors import NotSentError, StateError
from commingle.coordinator.store.rows import ReleaseRow, ShareRow
from commingle.shared.documents.dsse import Envelope, Verified
from commingle.shared.documents.errors import ExchangeError
from commingle.shared.mechanisms.moments.exchange.documents import (
    ColumnsStatement,
    ReplyStatement,
    open_columns,
    open_reply_statement,
    require_one_set,
    transcript,
)
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.rounds import State, Tick
from commingle.shared.runtime import faults

Kind: TypeAlias = Literal["columns", "reply"]
_PIECE = 1 << 20
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ExpectedMessage:
    """An upload that may begin: its verified statement, and how many bytes its body has, neither more nor fewer."""

    release: str
    kind: Kind
    statement: Verified[ColumnsStatement] | Verified[ReplyStatement]
    limit: int


def exchange_of(release: ReleaseRow) -> Exchange:
    """The exchange of a release that every party has approved. Raises ProtocolError where there is none."""
    return Exchange.of(spec_of(release), _present(release, lambda share: share.approval))


def expect_message(
    coordinator: Coordinator, release: str, party: str, envelope: Envelope, *, kind: Kind
) -> ExpectedMessage:
    """Check everything that can be checked before the body is read.

    Raises:
        UnknownError, SignatureError, DocumentError, ExchangeError, OtherBytesError, StateError: it is refused.
        DeviationError: a reply quotes other columns than are here, which are signed too, or what nobody signed.
    """
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    share_of(spec_of(found), party)
    if not is_repetition(_sent(found.shares[party], kind), envelope, what=f"{kind} by {party}"):
        _require_running(coordinator, found)
    exchange = exchange_of(found)
    if kind == "columns":
        columns = open_columns(exchange, envelope, party)
        return ExpectedMessage(release, kind, columns, exchange.columns_size(party))
    require_one_set(exchange, _columns(found), {party: envelope})
    reply = open_reply_statement(exchange, envelope, party)
    return ExpectedMessage(release, kind, reply, exchange.reply_size(party))


def store_message(coordinator: Coordinator, expected: ExpectedMessage, file: BinaryIO) -> bool:
    """Check and record a received body; whether it is new. The file is durable before the transaction begins.

    Raises:
        ExchangeError: the body is not what the statement says.
        OtherBytesError, StateError: something else happened meanwhile.
    """
    release, statement, kind = expected.release, expected.statement, expected.kind
    party, envelope = statement.document.party, statement.envelope
    _check_body(expected, file)
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    repeated = is_repetition(_sent(found.shares[party], kind), envelope, what=f"{kind} by {party}")
    if repeated and found.state.final:
        return False
    if not repeated:  # it may have ended while the body came
        _require_running(coordinator, found)
    coordinator.blobs.put_running(release, envelope.digest, file)
    faults.reach(f"coordinator.{kind}.written")
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        if is_repetition(_sent(found.shares[party], kind), envelope, what=f"{kind} by {party}"):
            return False
        _require_running(coordinator, found)
        tx.releases.save_message(release, party, envelope, kind=kind)
        record(tx, coordinator, release, found.round, kind=kind, party=party, document=envelope.digest)
    faults.reach(f"coordinator.{kind}.committed")
    _log.info("message stored", release=release, party=party, kind=kind)
    return True


def open_messages(coordinator: Coordinator, release: str, parties: Sequence[str], *, kind: Kind) -> Iterator[BinaryIO]:
    """What each of some parties sent, as files the caller closes, opened one after the other.

    Raises:
        UnknownError: no such release or party.
        NotSentError: not there yet, or not any more.
        StorageError: it cannot be read; also from the iterator.
    """
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    digests = [_require_sent(found, party, kind).digest for party in parties]
    return (coordinator.blobs.open_running(release, digest) for digest in digests)


def agreed_transcript(release: ReleaseRow) -> str | None:
    """The digest of everything that was exchanged, verified again; None where the release needs no exchange.

    Raises:
        ExchangeError: columns or a reply are missing.
        ProtocolError: one is not what it must be.
    """
    if not mechanism_of(spec_of(release).document).interactive:
        return None
    replies = _present(release, lambda share: share.reply)
    return transcript(exchange_of(release), columns=_columns(release), replies=replies)


def remove_messages(coordinator: Coordinator, release: str) -> None:
    """Remove what was exchanged for a release that is over. Raises StorageError."""
    coordinator.blobs.remove_running(release)
    faults.reach("coordinator.exchange.dropped")
    _log.info("exchange removed", release=release)


def _require_sent(found: ReleaseRow, party: str, kind: Kind) -> Envelope:
    share_of(spec_of(found), party)
    sent = _sent(found.shares[party], kind)
    if sent is None or found.state.final:
        raise NotSentError(
            f"the release is {found.state}; there is no {kind} by {party}", remedy="Follow the release's events."
        )
    return sent


def _sent(share: ShareRow, kind: Kind) -> Envelope | None:
    return share.columns if kind == "columns" else share.reply


def _columns(release: ReleaseRow) -> Mapping[str, Envelope]:
    return _present(release, lambda share: share.columns)


def _present(release: ReleaseRow, read: Callable[[ShareRow], Envelope | None]) -> Mapping[str, Envelope]:
    return {name: found for name, share in release.shares.items() if (found := read(share)) is not None}


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
