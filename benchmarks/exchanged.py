"""A whole exchange of a moments release in this process: every step of every party and of the dealer, timed.

What is signed, sealed and checked is what agents and coordinator sign, seal and check; there is no network and no disk,
and no noise is added here, so that the products can be compared with exact ones.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from time import perf_counter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope, Verified, seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import Approval, open_spec
from commingle.shared.mechanisms.moments.block import open_matrix
from commingle.shared.mechanisms.moments.exchange.agreement import agreed, countersignature, transcript
from commingle.shared.mechanisms.moments.exchange.deal import Hand, deal, open_package
from commingle.shared.mechanisms.moments.exchange.documents import MaskStatement, open_deal, open_mask
from commingle.shared.mechanisms.moments.exchange.mask import (
    MaskReader,
    MaskSealer,
    MaskSecret,
    check_commitment,
    open_secret,
)
from commingle.shared.mechanisms.moments.exchange.ring import Pad, Rows, Words, rows_of, subtracted
from commingle.shared.mechanisms.moments.exchange.sealing import RoundKey
from commingle.shared.mechanisms.moments.exchange.submission import mask, share, submission
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.matrix import assemble

Integers = NDArray[np.int64]
Masking: TypeAlias = Callable[[Pad], Rows]
"""A party's masked rows under its pad."""
_CREATED = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Exchanging:
    """Everybody's state after all have approved; `products` or `parts` runs the rest, once.

    Attributes:
        seconds: by step, of all parties together.
    """

    exchange: Exchange
    keys: Mapping[str, SigningKey]
    round_keys: Mapping[str, RoundKey]
    seconds: dict[str, float] = field(default_factory=dict)
    _hands: dict[str, Hand] = field(default_factory=dict)
    _masks: dict[str, Envelope] = field(default_factory=dict)
    _bodies: dict[str, bytes] = field(default_factory=dict)

    def products(self, matrices: Sequence[Integers]) -> Integers:
        """All X_i^T X_j of the parties' matrices, in the spec's order, as one matrix."""
        spec = self.exchange.spec.document
        parts = self.parts([partial(subtracted, rows_of(rows)) for rows in matrices])
        with self._timed("open"):
            blocks = [submission(shares, hidden, np.zeros(shares.shape, np.int64)) for shares, hidden in parts]
            return open_matrix(spec, assemble(spec, blocks))[1:, 1:]

    def parts(self, masked: Sequence[Masking]) -> list[tuple[Words, Words]]:
        """Every party's shares and mask: its block but for the noise."""
        parties = self.exchange.parties
        with self._timed("deal"):
            dealt = deal(self.exchange, entropy=os.urandom)
            signed = seal(dealt.statement, kind="deal", key=self.keys["dealer"])
        with self._timed("mask"):
            for name, masking in zip(parties, masked, strict=True):
                self._mask(name, masking, signed, dealt.packages[name])
        with self._timed("agree"):
            seen = {name: self._transcript(name, signed.digest) for name in parties}
            votes = {name: self._countersigned(name, seen[name]) for name in parties}
        with self._timed("submit"):
            return [self._parts(name, seen[name], votes) for name in parties]

    @property
    def bytes_sent(self) -> int:
        """Masks up once, and down once to every other party; the rest does not grow with n."""
        return sum(map(len, self._bodies.values())) * len(self.exchange.parties)

    def _mask(self, name: str, masking: Masking, signed: Envelope, package: bytes) -> None:
        statement = open_deal(self.exchange, signed, self.keys["dealer"].verifying_key)
        hand = open_package(self.exchange, statement, package, party=name, key=self.round_keys[name])
        sealer = MaskSealer(self.exchange, party=name, secret=MaskSecret.draw(os.urandom))
        self._hands[name] = hand
        self._bodies[name] = b"".join(sealer.body(masking(hand.pad)))
        self._masks[name] = seal(sealer.statement(signed.digest), kind="mask", key=self.keys[name])

    def _read(self, recipient: str) -> tuple[dict[str, Verified[MaskStatement]], dict[str, Rows]]:
        """All masks as their recipient reads them, checked; an agent does it before it countersigns and once more."""
        statements, rows = dict[str, Verified[MaskStatement]](), dict[str, Rows]()
        for sender, body in self._bodies.items():
            statement = open_mask(self.exchange, self._masks[sender], sender)
            secret = open_secret(self.exchange, statement, recipient=recipient, key=self.round_keys[recipient])
            reader = MaskReader(self.exchange, party=sender, secret=secret, read=partial(piece, body))
            check_commitment(self.exchange, statement, reader, secret=secret)
            statements[sender], rows[sender] = statement, reader
        return statements, rows

    def _transcript(self, name: str, deal_digest: str) -> str:
        return transcript(self.exchange, deal=deal_digest, masks=self._read(name)[0])

    def _countersigned(self, name: str, seen: str) -> Envelope:
        statement = countersignature(self.exchange, party=name, transcript=seen)
        return seal(statement, kind="countersignature", key=self.keys[name])

    def _parts(self, name: str, seen: str, votes: Mapping[str, Envelope]) -> tuple[Words, Words]:
        rows = self._read(name)[1]
        agreement = agreed(self.exchange, transcript=seen, countersignatures=votes)
        shares = share(self.exchange, party=name, hand=self._hands[name], masked=rows)
        return shares, mask(self.exchange, party=name, key=self.round_keys[name], agreement=agreement)

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self.seconds[step] = perf_counter() - start


def approved(
    n: int,
    columns: int,
    parties: int,
    *,
    epsilon: float = 1.0,
    row_norm: float | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Exchanging:
    """A release of that many numeric columns at each party that all have approved; keys are made of `entropy`."""
    names = [f"party-{number}" for number in range(parties)]
    keys = {name: SigningKey(entropy(32)) for name in ("dealer", *names)}
    round_keys = {name: RoundKey(entropy(32)) for name in names}
    spec = ReleaseSpec(
        study="benchmark",
        created=_CREATED,
        expires=_CREATED + timedelta(days=1),
        mechanism="moments",
        fraction_bits=14,
        seed="00" * 32,
        epsilon=epsilon,
        delta=1e-5,
        n=n,
        parties=tuple(_party(name, keys[name], columns, row_norm) for name in names),
        proposer=keys["dealer"].fingerprint,
    )
    opened = open_spec(seal(spec, kind="spec", key=keys["dealer"]), [keys["dealer"].verifying_key])
    approvals = {}
    for name in names:
        document = Approval(
            spec=opened.digest, party=name, created=_CREATED, ledger_head="00" * 32, round_key=round_keys[name].public
        )
        approvals[name] = seal(document, kind="approval", key=keys[name])
    return Exchanging(Exchange.of(opened, approvals), keys, round_keys)


def _party(name: str, key: SigningKey, columns: int, row_norm: float | None) -> PartySpec:
    raw = key.verifying_key.raw.hex()
    attributes = tuple(NumericAttribute(name=f"{name}-x{i}", lower=-1, upper=1) for i in range(columns))
    return PartySpec(
        name=name, signing_key=raw, sealing_key=raw, dataset="data", attributes=attributes, row_norm=row_norm
    )


def piece(body: bytes, offset: int, size: int) -> bytes:
    """What a reader of that body gets."""
    return body[offset : offset + size]
