"""A moments release of two members under load, every step of it over the network, from proposal to upload."""

import json
import os
import time
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Any, Protocol

import httpx
import numpy as np

from benchmarks.exchanged import piece
from commingle.shared.documents.dsse import Envelope, Verified, parse_envelope, seal
from commingle.shared.documents.keys import SigningKey, VerifyingKey
from commingle.shared.documents.model import WireModel
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import (
    AlignmentStatement,
    Approval,
    ApprovalRequest,
    BlockStatement,
    open_spec,
)
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.exchange.agreement import agreed, countersignature, transcript
from commingle.shared.mechanisms.moments.exchange.deal import Hand, open_package
from commingle.shared.mechanisms.moments.exchange.documents import MaskStatement, open_deal, open_mask
from commingle.shared.mechanisms.moments.exchange.mask import (
    MaskReader,
    MaskSealer,
    MaskSecret,
    check_commitment,
    open_secret,
)
from commingle.shared.mechanisms.moments.exchange.ring import Rows, Words, rows_of, subtracted
from commingle.shared.mechanisms.moments.exchange.sealing import RoundKey
from commingle.shared.mechanisms.moments.exchange.submission import mask, share, submission
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.block import ARROW_STREAM, content_digest, encode_block
from commingle.shared.release.plan import plan_block
from commingle.shared.runtime.settings import system_clock

_ROWS, _COLUMNS = 2_000, 5
_HEAD = "0" * 64
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.2


class Member(Protocol):
    """Who sends signed requests."""

    name: str
    key: SigningKey
    tally: Any

    def share(self, columns: int) -> PartySpec:
        """This member as a party."""

    def call(
        self, kind: str, method: str, path: str, body: bytes | None, headers: dict[str, str] | None = None
    ) -> httpx.Response | None:
        """The answer, counted; None where it is none or no success."""


class _FailedError(Exception):
    """A request was refused; the tally has it."""


@dataclass
class _Party:
    """One member in one release."""

    member: Member
    round_key: RoundKey = field(default_factory=lambda: RoundKey(os.urandom(32)))

    def ask(
        self, kind: str, method: str, path: str, body: bytes | None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """What is answered."""
        answer = self.member.call(kind, method, path, body, headers)
        if answer is None:
            raise _FailedError
        return answer

    def sealed(self, document: WireModel, kind: str) -> Envelope:
        return seal(document, kind=kind, key=self.member.key)


def release_moments(proposer: Member, other: Member) -> None:
    """One release, as far as requests are answered."""
    parties = [_Party(proposer), _Party(other)]
    spec = _spec(proposer, other)
    envelope = parties[0].sealed(spec, "spec")
    try:
        parties[0].ask("propose", "POST", "/v1/releases", envelope.to_json())
        proposer.tally.accepted.append(envelope.digest)
        _exchange(parties, open_spec(envelope, [proposer.key.verifying_key]))
    except _FailedError:
        return
    proposer.tally.of_moments += 1


def _exchange(parties: Sequence[_Party], spec: Verified[ReleaseSpec]) -> None:
    where = f"/v1/releases/{spec.digest}"
    for party in parties:
        party.ask("approve", "PUT", f"{where}/approvals/{party.member.name}", _approval(party, spec))
    view = _once_dealt(parties[0], where)
    exchange = Exchange.of(spec, {name: _envelope(found) for name, found in view["approvals"].items()})
    dealt = [_mask(party, exchange, where) for party in parties]
    seen = [_countersign(party, exchange, where, deal) for party, (deal, _) in zip(parties, dealt, strict=True)]
    for party, (_, hand), (signed, rows) in zip(parties, dealt, seen, strict=True):
        _upload(party, exchange, where, signed, share(exchange, party=party.member.name, hand=hand, masked=rows))


def _approval(party: _Party, spec: Verified[ReleaseSpec]) -> bytes:
    about: dict[str, Any] = {"spec": spec.digest, "party": party.member.name}
    approval = Approval(**about, created=system_clock(), ledger_head=_HEAD, round_key=party.round_key.public)
    alignment = AlignmentStatement(**about, subjects=spec.document.n, digest=_HEAD)
    request = ApprovalRequest(
        approval=party.sealed(approval, "approval"), alignment=party.sealed(alignment, "alignment")
    )
    return request.model_dump_json().encode()


def _once_dealt(party: _Party, where: str) -> Mapping[str, Any]:
    """The release, once its publisher has dealt."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        view: Mapping[str, Any] = party.ask("read", "GET", where, None).json()
        if view["exchange"]["dealt"]:
            return view
        time.sleep(_PAUSE_SECONDS)
    party.member.tally.errors.append("deal: none within a minute")
    raise _FailedError


def _mask(party: _Party, exchange: Exchange, where: str) -> tuple[str, Hand]:
    """Fetch the hand, send the mask; the digest of the deal, and the hand."""
    name = party.member.name
    shown = party.ask("deal", "GET", f"{where}/deal/{name}", None).json()
    coordinator = VerifyingKey.from_hex(party.ask("key", "GET", "/v1/coordinator", None).json()["signing_key"])
    deal = open_deal(exchange, _envelope(shown["statement"]), coordinator)
    hand = open_package(exchange, deal, b64decode(shown["package"]), party=name, key=party.round_key)
    limit = 2**exchange.spec.document.fraction_bits
    rows = np.random.default_rng().integers(-limit, limit + 1, (_ROWS, _COLUMNS))
    sealer = MaskSealer(exchange, party=name, secret=MaskSecret.draw(os.urandom))
    body = b"".join(sealer.body(subtracted(rows_of(rows), hand.pad)))
    statement = party.sealed(sealer.statement(deal.envelope.digest), "mask").to_json().decode()
    headers = {"Content-Type": "application/octet-stream", "Commingle-Mask": statement}
    party.ask("mask up", "PUT", f"{where}/masks/{name}", body, headers)
    return deal.envelope.digest, hand


def _countersign(party: _Party, exchange: Exchange, where: str, deal: str) -> tuple[str, Mapping[str, Rows]]:
    """Fetch and check every mask, sign what was seen."""
    masks, rows = dict[str, Verified[MaskStatement]](), dict[str, Rows]()
    shown = party.ask("read", "GET", where, None).json()["exchange"]["masks"]
    for sender in exchange.parties:
        masks[sender] = open_mask(exchange, _envelope(shown[sender]), sender)
        secret = open_secret(exchange, masks[sender], recipient=party.member.name, key=party.round_key)
        body = party.ask("mask down", "GET", f"{where}/masks/{sender}", None).content
        rows[sender] = MaskReader(exchange, party=sender, secret=secret, read=partial(piece, body))
        check_commitment(exchange, masks[sender], rows[sender], secret=secret)
    seen = transcript(exchange, deal=deal, masks=masks)
    signed = countersignature(exchange, party=party.member.name, transcript=seen)
    body = party.sealed(signed, "countersignature").to_json()
    party.ask("countersign", "PUT", f"{where}/countersignatures/{party.member.name}", body)
    return seen, rows


def _upload(party: _Party, exchange: Exchange, where: str, seen: str, shares: Words) -> None:
    spec, name = exchange.spec.document, party.member.name
    shown = party.ask("read", "GET", where, None).json()["exchange"]["countersignatures"]
    votes = {sender: _envelope(found) for sender, found in shown.items()}
    agreement = agreed(exchange, transcript=seen, countersignatures=votes)
    plan = plan_block(spec, spec.party(name))
    noise = mechanism_of(spec).noise(spec, spec.party(name), sigma=plan.sigma, draw=rounded_gaussian)
    hidden = mask(exchange, party=name, key=party.round_key, agreement=agreement)
    block = submission(shares, hidden, noise)
    body = encode_block(block, plan.columns)
    statement = BlockStatement(
        spec=exchange.spec.digest,
        approvals=exchange.approved,
        party=name,
        rows=plan.rows,
        columns=plan.columns,
        sigma=plan.sigma,
        body_sha256=sha256(body).hexdigest(),
        content_sha256=content_digest(block),
        ledger_head=_HEAD,
        transcript=seen,
    )
    headers = {"Content-Type": ARROW_STREAM, "Commingle-Block": party.sealed(statement, "block").to_json().decode()}
    party.ask("upload", "PUT", f"{where}/blocks/{name}", body, headers)


def _spec(proposer: Member, other: Member) -> ReleaseSpec:
    now = system_clock()
    return ReleaseSpec(
        study="load",
        created=now,
        expires=now + timedelta(hours=1),
        mechanism="moments",
        fraction_bits=14,
        seed=os.urandom(32).hex(),
        epsilon=1.0,
        delta=1e-5,
        n=_ROWS,
        parties=(proposer.share(_COLUMNS), other.share(_COLUMNS)),
        proposer=proposer.key.fingerprint,
    )


def _envelope(shown: Any) -> Envelope:  # noqa: ANN401 - JSON
    return parse_envelope(json.dumps(shown).encode())
