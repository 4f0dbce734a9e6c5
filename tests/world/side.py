"""One party's side of the exchange of a moments release: what it sends, states, opens and submits, step by step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope
from commingle.shared.documents.spec import PartySpec
from commingle.shared.documents.statements import Sums
from commingle.shared.dp.noise import Sampler
from commingle.shared.mechanisms.moments.block import largest_opening
from commingle.shared.mechanisms.moments.entries import cross_noise
from commingle.shared.mechanisms.moments.exchange.documents import ColumnsStatement, ReplyStatement, quotations
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Reply
from commingle.shared.mechanisms.moments.exchange.products import Rows, encrypted_columns, open_part, reply_pieces
from commingle.shared.mechanisms.moments.exchange.submission import own_moments, submission
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.plan import plan_block
from commingle.shared.ring.randomness import Entropy

Integers = NDArray[np.int64]


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
        count = self.exchange.columns(owner)
        return cross_noise(self.exchange.spec.document, self.share, count, sigma=self.sigma, draw=draw)

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
        return largest_opening(spec, share, sigma=plan_block(spec, share).sigma)

    def opened(self, reply: Reply) -> Integers:
        """What it reads in its part of a reply: products and the evaluator's noise. Raises DeviationError."""
        return open_part(reply, owner=self.name, seed=self.seed, largest=self.largest(reply.party))

    def submission(self, opened: Mapping[str, Integers], draw: Sampler) -> Integers:
        """What it uploads."""
        return submission(
            self.exchange,
            party=self.name,
            moments=own_moments(self.exchange, party=self.name, rows=self.rows),
            opened=opened,
            sigma=self.sigma,
            draw=draw,
        )
