"""An owner's statement: its ciphertexts hold rows within bounds (docs/proofs/proved-bounds.md, 1 and 2).

Of the public key and the ciphertexts of a segment of rows there are a ternary secret, errors whose squares sum up to no
more than those of the largest that are drawn, and rows x with ||x||^2 <= c, all of which they are made of.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving.ciphertexts import SQUARES, Ciphertexts
from commingle.shared.proving.parameters import Sizes
from commingle.shared.proving.relation import Squares, Term
from commingle.shared.proving.transcript import Challenge
from commingle.shared.ring.errors import DomainError

BOUND_LIMIT = 1 << 38


def squares(errors: int, error_bound: int, groups: int, columns: int, bound: int) -> tuple[Squares, Squares]:
    """So many rows of errors together, and the columns of each group, with numbers that fill up a sum."""
    return Squares(1, errors + SQUARES, errors * error_bound**2), Squares(groups, columns + SQUARES, bound)


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
    def bits(self) -> int:
        """Rows of bits: those of the secret."""
        return self.ciphertexts.secret_rows

    @cached_property
    def squares(self) -> tuple[Squares, Squares]:
        """Rows of errors, then columns by groups, four numbers behind each."""
        layout = self.ciphertexts.layout
        errors, error_bound = self.ciphertexts.error_rows.size, layout.parameters.error_bound
        return squares(errors, error_bound, self.ciphertexts.groups, layout.columns, self.bound)

    @property
    def column_rows(self) -> NDArray[np.intp]:
        """Numbers of the rows of columns and of what fills them up: (groups, members)."""
        errors, columns = self.squares
        return self.bits + errors.rows + np.arange(columns.rows).reshape(columns.groups, columns.members)

    @property
    def rows(self) -> int:
        """Of the matrix."""
        return self.bits + sum(each.rows for each in self.squares)

    @property
    def largest(self) -> int:
        """What honest rows sum up to at a position, at most."""
        return self.bits + sum(each.largest for each in self.squares)

    def linear(self, challenge: Challenge, k: int) -> tuple[Iterable[Term], Sequence[int]]:
        """The equations b = a s + e + Delta m for the key, all ciphertexts and all coefficients, modulo prime k."""
        return self.ciphertexts.linear(challenge, k, self.column_rows)
