"""A statement about a matrix of small integers: rows of bits, squares that sum up, and linear equations modulo q.

Every matrix is proved to be small: sums over random subsets of rows and positions, each with a mask, are shown. The
shown sums have to be right, which is one more linear equation for each.

The prover and the verifier compute both sides of each check by the same functions: at all places of the code from rows,
and at the opened ones from columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from hashlib import sha256
from itertools import chain
from math import isqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving import code
from commingle.shared.proving.parameters import RANGES, REPEATS, Sizes
from commingle.shared.proving.transcript import Challenge
from commingle.shared.ring.residues import Residues


@dataclass(frozen=True, slots=True)
class Term:
    """A part of the linear equations: combinations of rows, each multiplied by a polynomial, and all added up."""

    rows: NDArray[np.intp]  # their numbers, a line for each combination, (s, m)
    weights: Residues  # the same for each line, (repeats, m), or (1, m) for all repeats
    multipliers: Residues  # of each line, at all places, (s, repeats, 4 l)


@dataclass(frozen=True, slots=True)
class Squares:
    """Rows, group after group; at each of the l positions the squares of a group sum up to a positive bound."""

    groups: int
    members: int  # rows of each
    bound: int

    @property
    def rows(self) -> int:
        return self.groups * self.members

    @property
    def largest(self) -> int:
        """A bound on the sum of absolute values at a position (Cauchy and Schwarz), over all groups."""
        return self.groups * isqrt(self.members * self.bound)


@dataclass(frozen=True, slots=True)
class Shape:
    """The rows of a witness: first `bits` of zeros and ones, then those of `squares`, then others."""

    bits: int
    squares: tuple[Squares, ...] = ()
    others: int = 0
    reach: int = 0  # a bound on the sum of absolute values of honest others at a position

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.bits, sum(each.rows for each in self.squares), self.others

    @property
    def rows(self) -> int:
        return sum(self.counts)

    @property
    def largest(self) -> int:
        """A bound on the sum of absolute values of all honest rows at a position."""
        return self.bits + sum(each.largest for each in self.squares) + self.reach

    def __add__(self, other: "Shape") -> "Shape":
        others, reach = self.others + other.others, self.reach + other.reach
        return Shape(self.bits + other.bits, self.squares + other.squares, others, reach)


class Relation(Protocol):
    """A statement about a matrix of `shape.rows` rows of l integers; its digest names all public numbers in it."""

    @property
    def sizes(self) -> Sizes: ...
    @property
    def digest(self) -> bytes: ...
    @property
    def shape(self) -> Shape: ...

    def linear(self, challenge: Challenge, k: int) -> tuple[Iterable[Term], Sequence[int]]:
        """The combined equations modulo prime k: the sum of the terms over the roots of x^l + 1 is these constants.

        If several relations are proved together, only the sums over all of them are equal.
        """
        ...


def linear(
    relation: Relation, challenge: Challenge, sums: NDArray[np.uint64], k: int
) -> tuple[Iterable[Term], Sequence[int]]:
    """The linear equations of a relation and of its shown sums, modulo prime k, as `Relation.linear`.

    Sum (j, i) is that over rows in subset j and positions in subset i, and mask RANGES j + i. It has the weight alpha_j
    beta_i.
    """
    terms, constants = relation.linear(challenge, k)
    prime, sizes = relation.sizes.ring.primes[k], relation.sizes
    drawn = challenge.numbers(b"range", 2 * RANGES, prime)
    alpha, beta = np.ascontiguousarray(drawn[:, :RANGES]), np.ascontiguousarray(drawn[:, RANGES:])
    rows, positions = (
        code.combinations(numbers, challenge.subsets(purpose, count).astype(np.uint32), prime)
        for numbers, purpose, count in ((alpha, b"rows", relation.shape.rows), (beta, b"positions", sizes.message))
    )
    both = code.product(alpha[:, :, None], beta[:, None], prime).reshape(REPEATS, -1)
    masks = np.pad(both, ((0, 0), (0, sizes.mask_rows * sizes.message - RANGES**2)))
    every = np.arange(relation.shape.rows + sizes.mask_rows)
    own = (
        Term(every[None, : relation.shape.rows], rows, multipliers(positions, sizes, prime)),
        Term(every[relation.shape.rows :, None], np.ones((1, 1), np.uint32), multipliers(masks, sizes, prime)),
    )
    shown = code.product(both, code.reduced(sums.reshape(1, -1), prime), prime).sum(axis=1, dtype=np.uint64)
    return chain(terms, own), [before + int(number) for before, number in zip(constants, shown, strict=True)]


def multipliers(weights: Residues, sizes: Sizes, prime: int) -> Residues:
    """Weights of l entries a line as polynomials with these values: (repeats, s l) to all places, (s, repeats, 4 l)."""
    lines = weights.reshape(REPEATS, -1, sizes.message).transpose(1, 0, 2)
    found = code.interpolated(lines.reshape(-1, sizes.message), prime)
    return code.values(found, sizes.places, prime).reshape(len(lines), REPEATS, sizes.places)


@dataclass(frozen=True, slots=True)
class Quadratic:
    """All quadratic equations combined, modulo one prime: a sum of squares, less a sum of bits, less a constant."""

    squares: Residues  # weights, (repeats, rows of bits and squares)
    bits: Residues  # of them, weights of rows of bits, (repeats, bits)
    constants: Residues  # (repeats, 1)


def quadratic(relation: Relation, challenge: Challenge, prime: int) -> Quadratic:
    """The combination by a challenge of the equations b^2 = b and sum of squares = bound."""
    shape, at = relation.shape, relation.shape.bits
    drawn = challenge.numbers(b"quadratic", shape.bits + sum(each.groups for each in shape.squares), prime)
    held, constants = [drawn[:, : shape.bits]], np.zeros((REPEATS, 1), np.uint64)
    for each in shape.squares:
        groups = drawn[:, at : (at := at + each.groups)]
        held.append(np.repeat(groups, each.members, axis=1))
        constants += groups.sum(axis=1, keepdims=True, dtype=np.uint64) % prime * (each.bound % prime) % prime
    return Quadratic(np.hstack(held), np.ascontiguousarray(held[0]), code.reduced(constants, prime))


def quadratic_values(weights: Quadratic, squares: Residues, bits: Residues, prime: int) -> Residues:
    """From the combination of squares and that of bits at some places: (repeats, places)."""
    return code.difference(code.difference(squares, bits, prime), weights.constants, prime)


@dataclass(frozen=True)
class Joined:
    """Both statements hold, their linear equations in sum."""

    parts: Sequence[Relation]

    @property
    def sizes(self) -> Sizes:
        return self.parts[0].sizes

    @cached_property
    def digest(self) -> bytes:
        return sha256(b"joined" + b"".join(part.digest for part in self.parts)).digest()

    @property
    def shape(self) -> Shape:
        return reduce(Shape.__add__, (part.shape for part in self.parts))

    def places(self, number: int) -> NDArray[np.intp]:
        counts = np.array([part.shape.counts for part in self.parts])
        starts = np.concatenate([[0], counts.T.ravel().cumsum()[:-1]]).reshape(counts.T.shape)[:, number]
        return np.concatenate([start + np.arange(count) for start, count in zip(starts, counts[number], strict=True)])

    def linear(self, challenge: Challenge, k: int) -> tuple[Iterable[Term], Sequence[int]]:
        found = [part.linear(challenge, k) for part in self.parts]

        def terms() -> Iterator[Term]:
            for number, (own, _) in enumerate(found):
                places = self.places(number)
                for term in own:
                    yield replace(term, rows=places[term.rows])

        return terms(), [sum(numbers) for numbers in zip(*(constants for _, constants in found), strict=True)]
