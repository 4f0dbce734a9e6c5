"""A whole exchange of a moments release in this process: every step of every party.

What is signed, sent and checked is what agents and coordinator sign, send and check; there is no network and no disk.
Noise is the caller's, so that products can be compared with exact ones.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TypeAlias

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
from commingle.shared.mechanisms.moments.block import largest_opening
from commingle.shared.mechanisms.moments.entries import cross_noise
from commingle.shared.mechanisms.moments.exchange.documents import (
    ColumnsStatement,
    ReplyStatement,
    quotations,
    transcript,
)
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Reply
from commingle.shared.mechanisms.moments.exchange.products import (
    Rows,
    encrypted_columns,
    open_part,
    reply_pieces,
    verify_bounds,
    verify_reply,
)
from commingle.shared.mechanisms.moments.exchange.submission import own_moments, submission
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.checks import open_spec
from commingle.shared.release.plan import plan_block
from commingle.shared.ring.randomness import SEED_BYTES

Integers: TypeAlias = NDArray[np.int64]
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
    rows: dict[str, Integers] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    columns: dict[str, Envelope] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)
    replies: dict[str, Envelope] = field(default_factory=dict)

    def encrypt(self, name: str, rows: Integers) -> None:
        """That party's columns, signed."""
        self.rows[name] = rows
        self.bodies[name] = b"".join(
            encrypted_columns(
                self.exchange, party=name, seed=self.seeds[name], rows=self.rows_of(name), entropy=os.urandom
            )
        )
        statement = ColumnsStatement(
            spec=self.exchange.spec.digest,
            party=name,
            approvals=self.exchange.approved,
            body_sha256=sha256(self.bodies[name]).hexdigest(),
        )
        self.columns[name] = seal(statement, kind="columns", key=self.keys[name])

    def reply(self, name: str, draw: Sampler) -> None:
        """That party's reply to those before it, with what is drawn inside, signed; proofs of columns come first."""
        spec = self.exchange.spec.document
        for other in self.exchange.senders(name) if self.exchange.proved else []:
            if other != name:
                verify_bounds(self.sent(other))

        def noise(owner: str) -> Integers:
            count = self.exchange.columns(owner)
            return cross_noise(spec, spec.party(name), count, sigma=self.sigma(name), draw=draw)

        pieces = reply_pieces(
            self.sent(name),
            {owner: self.sent(owner) for owner in self.exchange.owners(name)},
            seed=self.seeds[name],
            rows=self.rows_of(name),
            noise=noise,
            entropy=os.urandom,
        )
        self.answers[name] = b"".join(pieces)
        statement = ReplyStatement(
            spec=self.exchange.spec.digest,
            party=name,
            columns=quotations(self.exchange, self.columns),
            body_sha256=sha256(self.answers[name]).hexdigest(),
        )
        self.replies[name] = seal(statement, kind="reply", key=self.keys[name])

    def sent(self, name: str) -> Columns:
        """That party's columns."""
        return Columns(self.exchange, name, self.bodies[name])

    def answered(self, name: str) -> Reply:
        """What that party replied."""
        return Reply(self.exchange, name, self.answers[name])

    def open(self, owner: str, evaluator: str) -> Integers:
        """What that owner finds in what that evaluator replied to it, once that is verified where it is proved."""
        spec, reply = self.exchange.spec.document, self.answered(evaluator)
        if self.exchange.proved:
            verify_reply(reply, {name: self.sent(name) for name in self.exchange.parties})
        largest = largest_opening(spec, spec.party(evaluator), sigma=self.sigma(evaluator))
        return open_part(reply, owner=owner, seed=self.seeds[owner], largest=largest)

    def submit(self, name: str, draw: Sampler) -> Integers:
        """That party's block."""
        transcript(self.exchange, columns=self.columns, replies=self.replies)
        return submission(
            self.exchange,
            party=name,
            moments=own_moments(self.exchange, party=name, rows=self.rows_of(name)),
            opened={evaluator: self.open(name, evaluator) for evaluator in self.exchange.evaluators(name)},
            sigma=self.sigma(name),
            draw=draw,
        )

    def rows_of(self, name: str) -> Rows:
        """As the exchange asks for them."""
        return lambda start, stop: self.rows[name][start:stop].astype(np.int16)

    def sigma(self, name: str) -> int:
        """The planned noise of that party's block."""
        spec = self.exchange.spec.document
        return plan_block(spec, spec.party(name)).sigma


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
    entropy: Callable[[int], bytes] = os.urandom,
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
    return agreed(spec, keys, entropy=entropy)


def agreed(
    spec: ReleaseSpec, keys: Mapping[str, SigningKey], *, entropy: Callable[[int], bytes] = os.urandom
) -> Exchanging:
    """A release that all have approved, of a spec with their keys, and the coordinator's."""
    opened = open_spec(seal(spec, kind="spec", key=keys["coordinator"]), [keys["coordinator"].verifying_key])
    approvals, names = {}, [party.name for party in spec.parties]
    for name in names:
        document = Approval(spec=opened.digest, party=name, created=_CREATED, ledger_head="00" * 32)
        approvals[name] = seal(document, kind="approval", key=keys[name])
    return Exchanging(Exchange.of(opened, approvals), keys, {name: entropy(SEED_BYTES) for name in names})


def _party(name: str, key: SigningKey, columns: int, row_norm: float | None) -> PartySpec:
    raw = key.verifying_key.raw.hex()
    attributes = tuple(NumericAttribute(name=f"{name}-x{i}", lower=-1, upper=1) for i in range(columns))
    return PartySpec(
        name=name, signing_key=raw, sealing_key=raw, dataset="data", attributes=attributes, row_norm=row_norm
    )
