"""An owner's statement: its ciphertexts hold rows within bounds (docs/proofs/proved-bounds.md, 1 and 2).

Of the public key and the ciphertexts of a segment of rows there are a ternary secret, errors of at most what is drawn,
and rows x with ||x||^2 <= c, all of which they are made of.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving.ciphertexts import SECRET_BITS, Ciphertexts, Weights, multipliers
from commingle.shared.proving.parameters import REPEATS, Sizes
from commingle.shared.proving.relation import Term
from commingle.shared.proving.transcript import Challenge
from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.parameters import ENTRY_LIMIT

SQUARES = 4
BOUND_LIMIT = 1 << 38


def digit_weights(error_bound: int) -> tuple[int, ...]:
    """Weights of bits that sum up to just the numbers 0 to twice the bound: powers of two, then what is left."""
    powers = (2 * error_bound + 1).bit_length() - 1
    return (*(1 << j for j in range(powers)), 2 * error_bound + 1 - (1 << powers))


@dataclass(frozen=True)
class Columns:
    """The statement about one segment.

    Attributes:
        ciphertexts: the owner's.
        bound: c, the integer bound on squared norms of rows.

    Raises:
        DomainError: the bound is none.
    """

    ciphertexts: Ciphertexts
    bound: int

    def __post_init__(self) -> None:
        """Squares of the proof stay within what is proved."""
        if not 0 < self.bound < BOUND_LIMIT:
            raise DomainError("a bound on squared norms is positive and below 2^38")

    @property
    def sizes(self) -> Sizes:
        """Of the ring."""
        return self.ciphertexts.sizes

    @cached_property
    def digest(self) -> bytes:
        """Names the statement: 32 bytes."""
        return sha256(b"columns" + self.bound.to_bytes(8, "little") + self.ciphertexts.digest).digest()

    @property
    def digits(self) -> tuple[int, ...]:
        """What the bits of an error are worth; it is their sum less the bound."""
        return digit_weights(self.ciphertexts.layout.parameters.error_bound)

    @property
    def error_rows(self) -> NDArray[np.intp]:
        """Numbers of the rows of bits of errors: (polynomials, the key's first; pieces; digits)."""
        shape = (self.ciphertexts.polynomials, self.ciphertexts.pieces, len(self.digits))
        return SECRET_BITS * self.ciphertexts.pieces + np.arange(np.prod(shape)).reshape(shape)

    @property
    def bits(self) -> int:
        """Rows of bits: of the secret, (pieces, 2), then of errors."""
        return int(self.error_rows[-1, -1, -1]) + 1

    @property
    def groups(self) -> int:
        """How many rows of the matrix a column takes."""
        return self.ciphertexts.groups

    @property
    def members(self) -> int:
        """The columns, and four numbers whose squares fill up each row's bound."""
        return self.ciphertexts.layout.columns + SQUARES

    @property
    def rows(self) -> int:
        """Of the matrix."""
        return self.bits + self.groups * self.members

    @property
    def largest(self) -> int:
        """What honest rows sum up to, at most."""
        root = isqrt(self.bound)
        return self.bits + self.groups * (self.ciphertexts.layout.columns * min(root, ENTRY_LIMIT) + SQUARES * root)

    def linear(self, challenge: Challenge, k: int) -> tuple[Iterable[Term], list[int]]:
        """The equations b = a s + e + Delta m for the key, all ciphertexts and all coefficients, modulo prime k."""
        weights = self.ciphertexts.weights(challenge, k)
        secret, constants = self.ciphertexts.secret_term(weights)
        errors = (
            weights.across.sum(axis=1, dtype=np.uint64).tolist(),
            weights.along.sum(axis=1, dtype=np.uint64).tolist(),
        )
        bound = self.ciphertexts.layout.parameters.error_bound
        both = zip(weights.known, constants, *errors, strict=True)
        return self._terms(weights, secret), [known + shift + bound * a * b for known, shift, a, b in both]

    def _terms(self, weights: Weights, secret: Term) -> Iterator[Term]:
        yield secret
        worth = weights.across[:, :, None] * np.array(self.digits, np.uint64) % weights.prime
        rows = self.error_rows.transpose(1, 0, 2).reshape(self.ciphertexts.pieces, -1)
        along = multipliers(weights.along, self.sizes, weights.prime)
        yield Term(rows, worth.reshape(REPEATS, -1).astype(np.uint32), along)
        numbers = self.bits + np.arange(self.groups * self.members).reshape(self.groups, self.members)
        yield from self.ciphertexts.row_terms(weights, numbers)
