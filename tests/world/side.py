"""One party's side of the exchange of a moments release, step by step; and all sides of it in this process."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope, SigningKey, seal
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import Sums
from commingle.shared.documents.terms import Bounds
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.noise import Sampler
from commingle.shared.mechanisms.moments.block import largest_opening
from commingle.shared.mechanisms.moments.entries import cross_noise
from commingle.shared.mechanisms.moments.exchange.messages import (
    Columns,
    ColumnsStatement,
    Exchange,
    Reply,
    ReplyStatement,
    Stored,
    quotations,
    transcript,
)
from commingle.shared.mechanisms.moments.exchange.products import (
    Rows,
    encrypted_columns,
    open_part,
    own_moments,
    reply_pieces,
    submission,
    verify_bounds,
    verify_reply,
)
from commingle.shared.release.checks import open_spec
from commingle.shared.release.plan import plan_block
from commingle.shared.ring.encryption import SEED_BYTES, Entropy
from tests.world.documents import HEAD, approvals_of

Integers = NDArray[np.int64]
_CREATED = datetime(2026, 1, 1, tzinfo=UTC)


def pieces_of(rows: NDArray[Any]) -> Rows:
    """Integer rows as the exchange asks for them."""
    return lambda start, stop: rows[start:stop].astype(np.int16)


@dataclass(frozen=True)
class Side:
    """A party in an exchange.

    Attributes:
        seed: of its key of this release.
        rows: its bounded rows.
    """

    exchange: Exchange
    name: str
    seed: bytes
    rows: Rows

    @property
    def share(self) -> PartySpec:
        return self.exchange.spec.document.party(self.name)

    @property
    def sigma(self) -> int:
        return plan_block(self.exchange.spec.document, self.share).sigma

    def columns(self, entropy: Entropy) -> bytes:
        """Public key, ciphertexts and proofs."""
        made = encrypted_columns(self.exchange, party=self.name, seed=self.seed, rows=self.rows, entropy=entropy)
        return b"".join(made)

    def says_of_columns(self, body: bytes, sums: Sums | None = None) -> ColumnsStatement:
        return ColumnsStatement(
            spec=self.exchange.spec.digest,
            party=self.name,
            approvals=self.exchange.approved,
            body_sha256=sha256(body).hexdigest(),
            sums=sums,
        )

    def noise_for(self, owner: str, draw: Sampler) -> Integers:
        """What it adds to the products with that owner's columns."""
        count = self.exchange.width(owner)
        return cross_noise(self.exchange.spec.document.terms, self.share, count, sigma=self.sigma, draw=draw)

    def reply(
        self,
        columns: Mapping[str, Columns],
        noise: Callable[[str], Integers],
        entropy: Entropy,
        *,
        rows: Rows | None = None,
    ) -> bytes:
        """What it replies to the parties before it, whose columns these are, its own among them."""
        made = reply_pieces(
            columns[self.name],
            {owner: columns[owner] for owner in self.exchange.owners(self.name)},
            seed=self.seed,
            rows=rows or self.rows,
            noise=noise,
            entropy=entropy,
        )
        return b"".join(made)

    def says_of_reply(self, body: bytes, columns: Mapping[str, Envelope]) -> ReplyStatement:
        return ReplyStatement(
            spec=self.exchange.spec.digest,
            party=self.name,
            columns=quotations(self.exchange, columns),
            body_sha256=sha256(body).hexdigest(),
        )

    def largest(self, evaluator: str) -> int:
        """What a part of that evaluator's reply can be at most."""
        spec = self.exchange.spec.document
        share = spec.party(evaluator)
        return largest_opening(spec.terms, share, sigma=plan_block(spec, share).sigma)

    def opened(self, reply: Reply) -> Integers:
        """What it reads in its part of a reply: products and the evaluator's noise. Raises DeviationError."""
        return open_part(reply, owner=self.name, seed=self.seed, largest=self.largest(reply.party))

    def submission(self, opened: Mapping[str, Integers], draw: Sampler) -> Integers:
        return submission(
            self.exchange,
            party=self.name,
            moments=own_moments(self.exchange, party=self.name, rows=self.rows),
            opened=opened,
            sigma=self.sigma,
            draw=draw,
        )


@dataclass
class Exchanging:
    """A whole exchange after all have approved: every step of every party, without a network and a disk.

    What is signed, sent and checked is what agents and coordinator sign, send and check. Attackers change fields, or
    give a step something else.

    Attributes:
        keys: for signing, of the coordinator and of every party.
        seeds: of the key under which each party encrypts.
        entropy: for each message that is made, by its name.
        verifies: whether proofs are verified where an agent does so.
        sums: of first stages.
        bodies, columns: what each party encrypts, and its statement of it.
        noises: by owner and evaluator, what the evaluator drew for its reply.
        answers, replies: what each party replies to all before it, and its statement of it.
    """

    exchange: Exchange
    keys: Mapping[str, SigningKey]
    seeds: Mapping[str, bytes]
    entropy: Callable[[str], Entropy] = lambda _: os.urandom
    verifies: bool = True
    rows: dict[str, NDArray[Any]] = field(default_factory=dict)
    sums: dict[str, Sums | None] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    columns: dict[str, Envelope] = field(default_factory=dict)
    noises: dict[tuple[str, str], Integers] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)
    replies: dict[str, Envelope] = field(default_factory=dict)

    def side(self, name: str) -> Side:
        return Side(self.exchange, name, self.seeds[name], pieces_of(self.rows[name]))

    def encrypt(self, name: str, rows: NDArray[Any] | None = None) -> None:
        """That party's columns, signed; from now on it has these rows."""
        if rows is not None:
            self.rows[name] = rows
        self.bodies[name] = self.side(name).columns(self.entropy(f"columns {name}"))
        self.columns[name] = self.signed_columns(name)

    def signed_columns(self, name: str, key: SigningKey | None = None, **changes: object) -> Envelope:
        said = self.side(name).says_of_columns(self.bodies[name], self.sums.get(name))
        return seal(said.model_copy(update=changes), key=key or self.keys[name])

    def reply(self, name: str, draw: Sampler) -> None:
        """That party's reply to those before it, with what is drawn inside, signed."""

        def noise(owner: str) -> Integers:
            self.noises[owner, name] = self.side(name).noise_for(owner, draw)
            return self.noises[owner, name]

        self.answer(name, noise)

    def answer(self, name: str, noise: Callable[[str], Integers]) -> None:
        self.answers[name] = self.reply_body(name, noise)
        self.replies[name] = self.signed_reply(name)

    def reply_body(
        self,
        name: str,
        noise: Callable[[str], Integers],
        *,
        columns: Mapping[str, Columns] | None = None,
        rows: Rows | None = None,
        entropy: Entropy | None = None,
    ) -> bytes:
        """What it replies, to what it was sent or to other columns, of its rows or of other ones; proofs come first."""
        sent = {other: self.sent(other) for other in (name, *self.exchange.senders(name))} | dict(columns or {})
        for other, found in sent.items():
            if self.verifies and self.exchange.proved and other != name:
                verify_bounds(found)
        return self.side(name).reply(sent, noise, entropy or self.entropy(f"reply {name}"), rows=rows)

    def signed_reply(self, name: str, key: SigningKey | None = None, **changes: object) -> Envelope:
        said = self.side(name).says_of_reply(self.answers[name], self.columns)
        return seal(said.model_copy(update=changes), key=key or self.keys[name])

    def sent(self, name: str, body: Stored | None = None) -> Columns:
        """That party's columns, or other bytes in their place."""
        return Columns(self.exchange, name, self.bodies[name] if body is None else body)

    def answered(self, name: str, body: Stored | None = None) -> Reply:
        """What that party replied, or other bytes in its place."""
        return Reply(self.exchange, name, self.answers[name] if body is None else body)

    def transcript(self) -> str:
        return transcript(self.exchange, columns=self.columns, replies=self.replies)

    def open(self, owner: str, evaluator: str, body: Stored | None = None) -> Integers:
        """What that owner finds in what that evaluator replied to it, once that is verified where it is proved."""
        reply = self.answered(evaluator, body)
        if self.verifies and self.exchange.proved:
            verify_reply(reply, {name: self.sent(name) for name in self.exchange.parties})
        return self.side(owner).opened(reply)

    def submit(self, name: str, draw: Sampler) -> Integers:
        self.transcript()
        return self.side(name).submission(
            {other: self.open(name, other) for other in self.exchange.evaluators(name)}, draw
        )


def traffic(exchange: Exchange) -> int:
    """Bytes of all columns and replies, up once, and down to whom each is for."""
    columns = sum(exchange.columns_size(name) * (1 + len(readers(exchange, name))) for name in exchange.parties)
    return columns + sum(exchange.reply_size(name) * (1 + len(exchange.owners(name))) for name in exchange.parties)


def readers(exchange: Exchange, name: str) -> tuple[str, ...]:
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
    seeds = {name: entropy(SEED_BYTES) for name in names}
    return Exchanging(agreed(spec, keys), keys, seeds, lambda _: entropy)


def agreed(spec: ReleaseSpec, keys: Mapping[str, SigningKey], *, head: str = HEAD) -> Exchange:
    """The exchange of a release that every party has approved, at that head of its ledger."""
    opened = open_spec(seal(spec, key=keys["coordinator"]), [keys["coordinator"].verifying_key])
    parties = {party.name: keys[party.name] for party in spec.parties}
    return Exchange.of(opened, approvals_of(opened.digest, parties, created=spec.created, head=head))


def _party(name: str, key: SigningKey, columns: int, row_norm: float | None) -> PartySpec:
    raw = key.verifying_key.raw.hex()
    attributes = tuple(NumericAttribute(name=f"{name}-x{i}", lower=-1, upper=1) for i in range(columns))
    return PartySpec(
        name=name, signing_key=raw, sealing_key=raw, dataset="data", attributes=attributes, row_norm=row_norm
    )
