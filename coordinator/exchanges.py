"""Relaying an exchange: masks, which the coordinator cannot read, and what parties sign once they have checked them."""

from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import BinaryIO

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
from commingle.coordinator.dealing import exchange_of
from commingle.coordinator.errors import NotDealtError, StateError
from commingle.coordinator.store.rows import ReleaseRow
from commingle.shared.documents.dsse import Envelope, Verified
from commingle.shared.documents.errors import ExchangeError
from commingle.shared.mechanisms.moments.exchange.agreement import agreed, transcript
from commingle.shared.mechanisms.moments.exchange.documents import MaskStatement, open_countersignature, open_mask
from commingle.shared.mechanisms.moments.exchange.mask import body_size
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.rounds import State, Tick
from commingle.shared.runtime import faults

_PIECE = 1 << 20
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ExpectedMask:
    """An upload that may begin: its verified statement, and how many bytes its body has, neither more nor fewer."""

    release: str
    statement: Verified[MaskStatement]
    limit: int


def expect_mask(coordinator: Coordinator, release: str, party: str, envelope: Envelope) -> ExpectedMask:
    """Check everything that can be checked before the body is read.

    Raises:
        UnknownError, SignatureError, DocumentError, ExchangeError, OtherBytesError, StateError: it is refused.
    """
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    share_of(spec_of(found), party)
    if not is_repetition(found.shares[party].mask, envelope, what=f"mask by {party}"):
        _require_running(coordinator, found)
    exchange = exchange_of(found)
    statement = open_mask(exchange, envelope, party)
    if found.deal is None or statement.document.deal != found.deal.digest:
        raise ExchangeError("the mask is not for the deal of this release", remedy="Propose a new release.")
    return ExpectedMask(release, statement, body_size(exchange, party))


def store_mask(coordinator: Coordinator, expected: ExpectedMask, file: BinaryIO) -> bool:
    """Check and record a received body; whether it is new. The file is durable before the transaction begins.

    Raises:
        ExchangeError: the body is not what the statement says.
        OtherBytesError, StateError: something else happened meanwhile.
    """
    release, statement = expected.release, expected.statement
    party, envelope = statement.document.party, statement.envelope
    _check_body(expected, file)
    with coordinator.store.read() as tx:
        if require_release(tx, release).state.final:
            return False  # a repetition, or it would not have been expected
    coordinator.blobs.put_mask(release, envelope.digest, file)
    faults.reach("coordinator.mask.written")
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        if is_repetition(found.shares[party].mask, envelope, what=f"mask by {party}"):
            return False
        _require_running(coordinator, found)
        tx.releases.save_mask(release, party, envelope)
        record(tx, coordinator, release, found.round, kind="mask", party=party, document=envelope.digest)
    faults.reach("coordinator.mask.committed")
    _log.info("mask stored", release=release, party=party)
    return True


def open_mask_body(coordinator: Coordinator, release: str, party: str) -> BinaryIO:
    """A party's encrypted masked rows, as a file the caller closes.

    Raises:
        UnknownError: no such release or party.
        NotDealtError: not there yet, or not any more.
        StorageError: it cannot be read.
    """
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    share_of(spec_of(found), party)
    mask = found.shares[party].mask
    if mask is None or found.state.final:
        raise NotDealtError(
            f"the release is {found.state}; there is no mask by {party}", remedy="Follow the release's events."
        )
    return coordinator.blobs.open_mask(release, mask.digest)


def countersign(coordinator: Coordinator, release: str, party: str, envelope: Envelope) -> bool:
    """Record that a party has checked every mask; whether it is new. The same document again changes nothing.

    Raises:
        UnknownError, SignatureError, DocumentError, ExchangeError, OtherBytesError, StateError: it is not recorded.
    """
    what = f"countersignature by {party}"
    with coordinator.store.read() as tx:
        found = require_release(tx, release)
    share_of(spec_of(found), party)
    if not is_repetition(found.shares[party].countersignature, envelope, what=what):
        _require_running(coordinator, found)
    exchange = exchange_of(found)
    signed = open_countersignature(exchange, envelope, party)
    if signed.document.transcript != _transcript(exchange, found):
        raise ExchangeError(f"{party} saw another exchange", remedy="Propose a new release.")
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        if is_repetition(found.shares[party].countersignature, envelope, what=what):
            return False
        _require_running(coordinator, found)
        tx.releases.save_countersignature(release, party, envelope)
        record(tx, coordinator, release, found.round, kind="countersignature", party=party, document=envelope.digest)
    faults.reach("coordinator.countersignature.committed")
    _log.info("countersigned", release=release, party=party)
    return True


def agreed_transcript(release: ReleaseRow) -> str | None:
    """What every party has countersigned, verified again; None where the release needs no exchange.

    Raises:
        ExchangeError: a mask or countersignature is missing.
        ProtocolError: one is not what it must be.
    """
    if not spec_of(release).document.interactive:
        return None
    exchange = exchange_of(release)
    signed = {name: s.countersignature for name, s in release.shares.items() if s.countersignature is not None}
    return agreed(exchange, transcript=_transcript(exchange, release), countersignatures=signed).transcript


def remove_masks(coordinator: Coordinator, release: str) -> None:
    """Remove the masks of a release that is over. Raises StorageError."""
    coordinator.blobs.remove_masks(release)
    faults.reach("coordinator.exchange.dropped")
    _log.info("masks removed", release=release)


def _transcript(exchange: Exchange, release: ReleaseRow) -> str:
    present = {name: share.mask for name, share in release.shares.items() if share.mask is not None}
    masks = {name: open_mask(exchange, mask, name) for name, mask in present.items()}
    return transcript(exchange, deal="" if release.deal is None else release.deal.digest, masks=masks)


def _check_body(expected: ExpectedMask, file: BinaryIO) -> None:
    file.seek(0)
    digest = sha256()
    for piece in iter(partial(file.read, _PIECE), b""):
        digest.update(piece)
    if (file.tell(), digest.hexdigest()) != (expected.limit, expected.statement.document.body_sha256):
        raise ExchangeError(
            "the uploaded bytes are not those of the signed statement", remedy="Send the stored bytes of the mask."
        )


def _require_running(coordinator: Coordinator, found: ReleaseRow) -> None:
    """Refuse where the exchange is over: once a block is in, everybody has countersigned."""
    state = advance_round(found.round, Tick(), coordinator).state
    if state is not State.APPROVED:
        raise StateError(f"the release is {state}", remedy="GET the release to see where it stands.")
