"""A whole exchange of a moments release in this process: every step of every party.

What is signed, sent and checked is what agents and coordinator sign, send and check; there is no network and no disk.
Noise is the caller's, so that products can be compared with exact ones.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import Approval
from commingle.shared.documents.terms import Bounds
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.noise import Sampler
from commingle.shared.mechanisms.moments.exchange.documents import transcript
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Reply
from commingle.shared.mechanisms.moments.exchange.products import verify_bounds, verify_reply
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.checks import open_spec
from commingle.shared.ring.randomness import SEED_BYTES, Entropy
from tests.world.side import Integers, Side, pieces_of

_CREATED = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Exchanging:
    """Everybody's state after all have approved.

    Attributes:
        keys: for signing, of the coordinator and of every party.
        seeds: of the key under which each party encrypts.
        bodies, columns: what each party encrypts, and its statement of it.
        answers, replies: what each party replies to all before it, and its statement of it.
    """

    exchange: Exchange
    keys: Mapping[str, SigningKey]
    seeds: Mapping[str, bytes]
    entropy: Entropy = os.urandom
    rows: dict[str, NDArray[Any]] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    columns: dict[str, Envelope] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)
    replies: dict[str, Envelope] = field(default_factory=dict)

    def side(self, name: str) -> Side:
        return Side(self.exchange, name, self.seeds[name], pieces_of(self.rows[name]))

    def encrypt(self, name: str, rows: NDArray[Any]) -> None:
        """That party's columns, signed."""
        self.rows[name] = rows
        self.bodies[name] = self.side(name).columns(self.entropy)
        said = self.side(name).says_of_columns(self.bodies[name])
        self.columns[name] = seal(said, kind="columns", key=self.keys[name])

    def reply(self, name: str, draw: Sampler) -> None:
        """That party's reply to those before it, with what is drawn inside, signed; proofs of columns come first."""
        sent = {other: self.sent(other) for other in (name, *self.exchange.senders(name))}
        for other, columns in sent.items():
            if self.exchange.proved and other != name:
                verify_bounds(columns)
        side = self.side(name)
        self.answers[name] = side.reply(sent, lambda owner: side.noise_for(owner, draw), self.entropy)
        self.replies[name] = seal(
            side.says_of_reply(self.answers[name], self.columns), kind="reply", key=self.keys[name]
        )

    def sent(self, name: str, body: bytes | None = None) -> Columns:
        """That party's columns, or other bytes in their place."""
        return Columns(self.exchange, name, self.bodies[name] if body is None else body)

    def answered(self, name: str, body: bytes | None = None) -> Reply:
        """What that party replied, or other bytes in its place."""
        return Reply(self.exchange, name, self.answers[name] if body is None else body)

    def open(self, owner: str, evaluator: str) -> Integers:
        """What that owner finds in what that evaluator replied to it, once that is verified where it is proved."""
        reply = self.answered(evaluator)
        if self.exchange.proved:
            verify_reply(reply, {name: self.sent(name) for name in self.exchange.parties})
        return self.side(owner).opened(reply)

    def submit(self, name: str, draw: Sampler) -> Integers:
        """That party's block."""
        transcript(self.exchange, columns=self.columns, replies=self.replies)
        return self.side(name).submission(
            {other: self.open(name, other) for other in self.exchange.evaluators(name)}, draw
        )


def no_noise(_: int, count: int) -> Integers:
    """A sampler of nothing."""
    return np.zeros(count, np.int64)


def traffic(exchange: Exchange) -> int:
    """Bytes of all columns and replies, up once, and down to whom each is for."""
    columns = sum(exchange.columns_size(name) * (1 + len(readers(exchange, name))) for name in exchange.parties)
    return columns + sum(exchange.reply_size(name) * (1 + len(exchange.owners(name))) for name in exchange.parties)


def readers(exchange: Exchange, name: str) -> tuple[str, ...]:
    """Who fetches the columns of that party."""
    return tuple(other for other in exchange.parties if other != name and name in exchange.senders(other))


def approved(
    n: int,
    columns: int,
    parties: int,
    *,
    epsilon: float = 1.0,
    row_norm: float | None = None,
    bounds: Bounds = "trusted",
    entropy: Entropy = os.urandom,
) -> Exchanging:
    """A release of that many numeric columns at each party that all have approved; keys are made of `entropy`."""
    names = [f"party-{number}" for number in range(parties)]
    keys = {name: SigningKey(entropy(32)) for name in ("coordinator", *names)}
    spec = ReleaseSpec(
        study="benchmark",
        created=_CREATED,
        expires=_CREATED + timedelta(days=1),
        mechanism="moments",
        fraction_bits=14,
        seed="00" * 32,
        calibration=Calibration.ANALYTIC,
        epsilon=epsilon,
        delta=1e-5,
        n=n,
        bounds=bounds,
        parties=tuple(_party(name, keys[name], columns, row_norm) for name in names),
        proposer=keys["coordinator"].fingerprint,
    )
    opened = open_spec(seal(spec, kind="spec", key=keys["coordinator"]), [keys["coordinator"].verifying_key])
    approvals = {}
    for name in names:
        document = Approval(spec=opened.digest, party=name, created=_CREATED, ledger_head="00" * 32)
        approvals[name] = seal(document, kind="approval", key=keys[name])
    seeds = {name: entropy(SEED_BYTES) for name in names}
    return Exchanging(Exchange.of(opened, approvals), keys, seeds, entropy)


def _party(name: str, key: SigningKey, columns: int, row_norm: float | None) -> PartySpec:
    raw = key.verifying_key.raw.hex()
    attributes = tuple(NumericAttribute(name=f"{name}-x{i}", lower=-1, upper=1) for i in range(columns))
    return PartySpec(
        name=name, signing_key=raw, sealing_key=raw, dataset="data", attributes=attributes, row_norm=row_norm
    )
