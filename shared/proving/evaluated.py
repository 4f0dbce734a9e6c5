"""An evaluator's rows, segment by segment, and what its replies take of them (docs/proofs/proved-bounds.md, 1 and 2).

Rows that the evaluator encrypted are those in its ciphertexts, whose bounds were proved before (`Evaluated`). The
last party encrypts none: its rows are within their bound by the same proof as its replies (`Bounded`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving import code
from commingle.shared.proving.ciphertexts import SQUARES, Ciphertexts, segments
from commingle.shared.proving.columns import BOUND_LIMIT
from commingle.shared.proving.joined import WithoutSquares
from commingle.shared.proving.parameters import REPEATS, Sizes
from commingle.shared.proving.relation import Squares, Term, multipliers
from commingle.shared.proving.replies import Reply
from commingle.shared.proving.transcript import Challenge
from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.layout import Layout
from commingle.shared.ring.parameters import ENTRY_LIMIT
from commingle.shared.ring.residues import Residues


@dataclass(frozen=True)
class Evaluated(WithoutSquares):
    """One segment of the evaluator's rows: those of its ciphertexts.

    Rows: bits of the secret, errors of the key and the ciphertexts, (polynomials, pieces), and columns, (groups, d').

    Attributes:
        ciphertexts: the evaluator's.
        replies: of the evaluator in the release.
    """

    ciphertexts: Ciphertexts
    replies: tuple[Reply, ...]

    @property
    def sizes(self) -> Sizes:
        """Of the ring."""
        return self.ciphertexts.sizes

    @cached_property
    def digest(self) -> bytes:
        """Names the segment: 32 bytes."""
        return sha256(b"evaluated" + self.ciphertexts.digest).digest()

    @property
    def bits(self) -> int:
        """Rows of bits."""
        return self.ciphertexts.secret_rows

    @property
    def column_rows(self) -> NDArray[np.intp]:
        """(groups, columns)."""
        shape = self.ciphertexts.groups, self.ciphertexts.layout.columns
        return self.bits + self.ciphertexts.error_rows.size + np.arange(np.prod(shape)).reshape(shape)

    @property
    def rows(self) -> int:
        """Of the matrix."""
        return int(self.column_rows[-1, -1]) + 1

    @property
    def largest(self) -> int:
        """What honest rows sum up to, at most."""
        ring = self.sizes.ring
        return self.bits + self.ciphertexts.error_rows.size * ring.error_bound + self.column_rows.size * ENTRY_LIMIT

    def linear(self, challenge: Challenge, k: int) -> tuple[Iterable[Term], Sequence[int]]:
        """The equations b = a s + e + Delta y of the segment, and its rows' part in all equations of all replies."""
        own, constants = self.ciphertexts.linear(challenge, k, self.column_rows)

        def terms() -> Iterator[Term]:
            yield from own
            across, counts = _row_weights(self.replies, challenge, k, self.ciphertexts.segment)
            placed = self.ciphertexts.in_groups(counts.T).transpose(1, 0, 2).reshape(REPEATS, -1)
            yield Term(self.column_rows, across, multipliers(placed, self.sizes, self.sizes.ring.primes[k]))

        return terms(), constants


@dataclass(frozen=True)
class Bounded:
    """One segment of the rows of a party that encrypts none: squared norms are within a bound.

    Row i of the segment is at position i modulo l of group i / l. Rows of the matrix: of each group the columns, and
    four numbers that fill up the sums of their squares.

    Attributes:
        layout: what the party's ciphertexts would have, which names it and the release.
        segment: start and stop of the rows, one of `segments`.
        bound: c, the integer bound on squared norms of rows.
        replies: of the party in the release.
        sizes: of the proof.

    Raises:
        DomainError: the segment is none, or the bound is none.
    """

    layout: Layout
    segment: tuple[int, int]
    bound: int
    replies: tuple[Reply, ...]
    sizes: Sizes

    def __post_init__(self) -> None:
        """Squares of the proof stay within what is proved."""
        if self.segment not in segments(self.layout):
            raise DomainError("what is proved is proved of one segment of rows")
        if not 0 < self.bound < BOUND_LIMIT:
            raise DomainError("a bound on squared norms is positive and below 2^38")

    @cached_property
    def digest(self) -> bytes:
        """Names the party, the segment and the bound: 32 bytes."""
        facts = b"".join(fact.to_bytes(8, "little") for fact in (*self.segment, self.bound))
        return sha256(b"bounded" + self.layout.label + facts).digest()

    @property
    def bits(self) -> int:
        """There are no rows of bits."""
        return 0

    @property
    def squares(self) -> tuple[Squares]:
        """Of all rows. Honest entries are within 2^14 in any case."""
        return (bounded_squares(self.layout, self.segment[1] - self.segment[0], self.sizes, self.bound),)

    @property
    def column_rows(self) -> NDArray[np.intp]:
        """Numbers of the rows of columns: (groups, columns)."""
        (held,) = self.squares
        return np.arange(held.rows).reshape(held.groups, held.members)[:, : self.layout.columns]

    @property
    def rows(self) -> int:
        """Of the matrix."""
        return self.squares[0].rows

    @property
    def largest(self) -> int:
        """What honest rows sum up to, at most."""
        return self.squares[0].largest

    def in_groups(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Something of each row of the segment, (count, m), as the matrix has it, zeros behind: (groups, m, l)."""
        groups, length = self.squares[0].groups, self.sizes.message
        padded = np.zeros((groups * length, rows.shape[1]), rows.dtype)
        padded[: len(rows)] = rows
        return padded.reshape(groups, length, -1).transpose(0, 2, 1)

    def linear(self, challenge: Challenge, k: int) -> tuple[Iterable[Term], Sequence[int]]:
        """The rows' part in all equations of all replies."""

        def terms() -> Iterator[Term]:
            across, counts = _row_weights(self.replies, challenge, k, self.segment)
            placed = self.in_groups(counts.T).transpose(1, 0, 2).reshape(REPEATS, -1)
            yield Term(self.column_rows, across, multipliers(placed, self.sizes, self.sizes.ring.primes[k]))

        return terms(), [0] * REPEATS


def bounded_squares(layout: Layout, rows: int, sizes: Sizes, bound: int) -> Squares:
    """So many rows of a party that encrypts none, with numbers that fill up their bound: no more than entries reach."""
    most = min(bound, layout.columns * ENTRY_LIMIT**2)
    return Squares(-(-rows // sizes.message), layout.columns + SQUARES, most)


def _row_weights(
    replies: Sequence[Reply], challenge: Challenge, k: int, segment: tuple[int, int]
) -> tuple[Residues, Residues]:
    """What an entry counts in all equations of all replies: of its column, (repeats, d'), and its row, (repeats, n)."""
    weights = [reply.weights(challenge, number, k) for number, reply in enumerate(replies)]
    counts = np.zeros((REPEATS, segment[1] - segment[0]), np.uint32)
    for reply, own in zip(replies, weights, strict=True):
        counts = code.total(counts, reply.row_weights(own, k, *segment), own.prime)
    return weights[0].across, counts
