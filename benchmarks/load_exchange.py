"""A moments release of two members under load, every step of it over the network, from proposal to upload."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from hashlib import sha256
from typing import Any, Protocol

import httpx
import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope, Verified, parse_envelope, seal
from commingle.shared.documents.keys import SigningKey
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
from commingle.shared.mechanisms.moments.block import cross_noise, largest_opening
from commingle.shared.mechanisms.moments.exchange.documents import (
    ColumnsStatement,
    ReplyStatement,
    open_columns,
    open_reply_statement,
    quotations,
    transcript,
)
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Reply
from commingle.shared.mechanisms.moments.exchange.products import encrypted_columns, open_part, reply_pieces
from commingle.shared.mechanisms.moments.exchange.submission import own_moments, submission
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.block import ARROW_STREAM, content_digest, encode_block
from commingle.shared.release.plan import plan_block
from commingle.shared.ring.randomness import SEED_BYTES
from commingle.shared.runtime.settings import system_clock

_ROWS, _COLUMNS = 2_000, 5
_HEAD = "0" * 64
_OCTETS = "application/octet-stream"


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
    """One member in one release, with made-up rows."""

    member: Member
    seed: bytes = field(default_factory=lambda: os.urandom(SEED_BYTES))
    columns: bytes = b""

    @property
    def name(self) -> str:
        return self.member.name

    @cached_property
    def made_up(self) -> NDArray[np.int16]:
        """Its rows, once."""
        return np.random.default_rng().integers(-(1 << 14), (1 << 14) + 1, (_ROWS, _COLUMNS), np.int16)

    def rows(self, start: int, stop: int) -> NDArray[np.int16]:
        """As the exchange asks for them."""
        return self.made_up[start:stop]

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

    def send(self, statement: ColumnsStatement | ReplyStatement, kind: str, path: str, body: bytes) -> None:
        """A message of the exchange."""
        headers = {"Content-Type": _OCTETS, "Commingle-Statement": self.sealed(statement, kind).to_json().decode()}
        self.ask(f"{kind} up", "PUT", path, body, headers)


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
        party.ask("approve", "PUT", f"{where}/approvals/{party.name}", _approval(party, spec))
    view = parties[0].ask("read", "GET", where, None).json()
    exchange = Exchange.of(spec, {name: _envelope(found) for name, found in view["approvals"].items()})
    for step in (_send_columns, _reply, _upload):
        for party in parties:
            step(party, exchange, where)


def _approval(party: _Party, spec: Verified[ReleaseSpec]) -> bytes:
    about: dict[str, Any] = {"spec": spec.digest, "party": party.member.name}
    approval = Approval(**about, created=system_clock(), ledger_head=_HEAD)
    alignment = AlignmentStatement(**about, subjects=spec.document.n, digest=_HEAD)
    request = ApprovalRequest(
        approval=party.sealed(approval, "approval"), alignment=party.sealed(alignment, "alignment")
    )
    return request.model_dump_json().encode()


def _send_columns(party: _Party, exchange: Exchange, where: str) -> None:
    made = encrypted_columns(exchange, party=party.name, seed=party.seed, rows=party.rows, entropy=os.urandom)
    party.columns = body = b"".join(made)
    statement = ColumnsStatement(
        spec=exchange.spec.digest,
        party=party.name,
        approvals=exchange.approved,
        body_sha256=sha256(body).hexdigest(),
    )
    party.send(statement, "columns", f"{where}/columns/{party.name}", body)


def _reply(party: _Party, exchange: Exchange, where: str) -> None:
    """Fetch what every party before has encrypted, and reply to it."""
    columns, owners = _signed(party, where, "columns"), dict[str, Columns]()
    for owner in exchange.owners(party.name):
        digest = open_columns(exchange, columns[owner], owner).document.body_sha256
        received = _fetched(party, "columns down", f"{where}/columns/{owner}", digest)
        owners[owner] = Columns(exchange, owner, received)
    made = reply_pieces(
        Columns(exchange, party.name, party.columns),
        owners,
        seed=party.seed,
        rows=party.rows,
        noise=lambda owner: _cross_noise(party, exchange, owner),
        entropy=os.urandom,
    )
    body = b"".join(made)
    reply = ReplyStatement(
        spec=exchange.spec.digest,
        party=party.name,
        columns=quotations(exchange, columns),
        body_sha256=sha256(body).hexdigest(),
    )
    party.send(reply, "reply", f"{where}/replies/{party.name}", body)


def _cross_noise(party: _Party, exchange: Exchange, owner: str) -> NDArray[np.int64]:
    spec = exchange.spec.document
    share = spec.party(party.name)
    return cross_noise(spec, share, exchange.columns(owner), sigma=plan_block(spec, share).sigma, draw=rounded_gaussian)


def _signed(party: _Party, where: str, shown: str) -> dict[str, Envelope]:
    """What everybody has signed of one kind, by party."""
    found = party.ask("read", "GET", where, None).json()["exchange"][shown]
    return {name: _envelope(envelope) for name, envelope in found.items()}


def _fetched(party: _Party, kind: str, path: str, digest: str) -> bytes:
    """What its sender signed. Raises AssertionError where the coordinator gives something else."""
    body = party.ask(kind, "GET", path, None).content
    if sha256(body).hexdigest() != digest:
        raise AssertionError("the coordinator gave other bytes than were signed")
    return body


def _opened(party: _Party, exchange: Exchange, where: str, evaluator: str, reply: Envelope) -> NDArray[np.int64]:
    spec = exchange.spec.document
    share = spec.party(evaluator)
    digest = open_reply_statement(exchange, reply, evaluator).document.body_sha256
    body = _fetched(party, "reply down", f"{where}/replies/{evaluator}", digest)
    largest = largest_opening(spec, share, sigma=plan_block(spec, share).sigma)
    return open_part(Reply(exchange, evaluator, body), owner=party.name, seed=party.seed, largest=largest)


def _upload(party: _Party, exchange: Exchange, where: str) -> None:
    """Fetch and open what every party after has replied, and upload the block."""
    spec, name = exchange.spec.document, party.name
    columns, replies = _signed(party, where, "columns"), _signed(party, where, "replies")
    seen = transcript(exchange, columns=columns, replies=replies)
    opened = {other: _opened(party, exchange, where, other, replies[other]) for other in exchange.evaluators(name)}
    plan = plan_block(spec, spec.party(name))
    block = submission(
        exchange,
        party=name,
        moments=own_moments(exchange, party=name, rows=party.rows),
        opened=opened,
        sigma=plan.sigma,
        draw=rounded_gaussian,
    )
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
        bounds="trusted",
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
