"""What is proved of a matrix of small integers: rows of bits, squares that sum up, and linear equations modulo q.

The prover and the verifier compute both sides of each check by the same functions: at all places of the code from rows,
and at those that were opened from columns.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving import code
from commingle.shared.proving.parameters import Sizes
from commingle.shared.proving.transcript import Challenge
from commingle.shared.ring.residues import Residues


@dataclass(frozen=True, slots=True)
class Term:
    """Of the linear equations: combinations of rows, each multiplied by a polynomial, and all added up.

    Attributes:
        rows: their numbers, a line for each combination, (s, m).
        weights: the same for each line, (repeats, m), or (1, m) for all repeats.
        multipliers: of each line, at all places, (s, repeats, N).
    """

    rows: NDArray[np.intp]
    weights: Residues
    multipliers: Residues


class Relation(Protocol):
    """A statement about a matrix of `rows` rows of l integers.

    Attributes:
        sizes: of the ring.
        digest: names the statement, and all public numbers in it.
        rows: of the matrix: `bits` rows of zeros and ones, then `groups` times `members` rows whose squares sum up to
            `bound` at each of the l positions within each group, then others.
        bound: a positive integer; with no groups it does not matter.
        largest: the sum over all rows of the largest absolute value that an honest row holds.
    """

    @property
    def sizes(self) -> Sizes: ...
    @property
    def digest(self) -> bytes: ...
    @property
    def rows(self) -> int: ...
    @property
    def bits(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def members(self) -> int: ...
    @property
    def bound(self) -> int: ...
    @property
    def largest(self) -> int: ...

    def linear(self, challenge: Challenge, k: int) -> tuple[Iterable[Term], list[int]]:
        """The equations modulo prime k, combined: the terms, summed over the roots of x^l + 1, are these constants.

        Of relations that are proved together it is the sums over all of them that are equal.
        """
        ...


@dataclass(frozen=True, slots=True)
class Quadratic:
    """The combination of all quadratic equations modulo one prime: sum of squares, less sum of bits, less a constant.

    Attributes:
        squares: weights, (repeats, rows of bits and groups).
        bits: of them, weights of rows of bits, (repeats, bits).
        constants: (repeats, 1).
    """

    squares: Residues
    bits: Residues
    constants: Residues


def quadratic(relation: Relation, challenge: Challenge, prime: int) -> Quadratic:
    """What the challenge makes of the equations b^2 = b and sum of squares = bound."""
    drawn = challenge.numbers(b"quadratic", relation.bits + relation.groups, prime)
    groups = np.ascontiguousarray(drawn[:, relation.bits :])
    constants = groups.astype(np.uint64).sum(axis=1, keepdims=True) % prime * (relation.bound % prime) % prime
    return Quadratic(
        np.hstack([drawn[:, : relation.bits], np.repeat(groups, relation.members, axis=1)]),
        np.ascontiguousarray(drawn[:, : relation.bits]),
        constants.astype(np.uint32),
    )


def quadratic_values(weights: Quadratic, squares: Residues, bits: Residues, prime: int) -> Residues:
    """From the combination of squares and that of bits at some places: (repeats, places)."""
    return code.difference(code.difference(squares, bits, prime), weights.constants, prime)
