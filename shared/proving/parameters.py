"""Sizes of a proof with which a false one hardly ever passes (docs/proofs/proved-bounds.md, 5).

A witness is a matrix of small integers, l to a row. Modulo each prime of the ring a row is a polynomial of degree below
k = l + t with these values at the roots of x^l + 1, and t random coefficients. The prover commits to its values at the
4 l roots of x^4l + 1, and t of the 4 l places are opened.
"""

from dataclasses import dataclass
from fractions import Fraction

from commingle.shared.errors import DomainError
from commingle.shared.ring.parameters import Parameters

LENGTHS = (2048, 4096, 8192)  # l: a proof has the one that makes it shortest
RANGES = 105  # random subsets of rows, and of positions: sums over each two of them are shown
REPEATS = 4  # random combinations, modulo each prime, of all linear, and of all quadratic, equations
RANGE_BITS = 59  # masks of sums are below 2^59; every entry is proved to have |w| < 2^60
MATRIX_LIMIT = 1 << 16  # rows of a matrix, blinds included
THROWN_LIMIT = Fraction(1, 4)  # at most this part of tries has sums that would tell of the witness
BOUND_LIMIT = 1 << 38  # of squared norms of rows
NOISE_BITS = 62  # of an evaluator's noise
SECRET_BITS = 2  # a ternary number is their sum less 1
SQUARES = 4  # numbers whose squares fill up a sum
_RATE = 4
_OPENED = {2048: 293, 4096: 269, 8192: 259}  # t: the fewest places with which what is wrong is spared below 2^-104
_FOLDS = {2048: 7, 4096: 7, 8192: 8}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one proof, about a ring, in rows of `message` entries: l, one of `LENGTHS`.

    Raises DomainError: another length, or the ring has shorter polynomials, or primes without so many roots.
    """

    ring: Parameters
    message: int

    def __post_init__(self) -> None:
        if self.message not in LENGTHS or self.ring.degree % self.message:
            raise DomainError(f"nothing is proved in rows of {self.message} numbers for degree {self.ring.degree}")
        if any(prime % (2 * self.places) != 1 for prime in self.ring.primes):
            raise DomainError(f"primes of a proof are 1 modulo {2 * self.places}")

    @property
    def places(self) -> int:
        """4 l; t of them are opened."""
        return self.message * _RATE

    @property
    def opened(self) -> int:
        return _OPENED[self.message]

    @property
    def folds(self) -> int:
        """Random combinations, modulo each prime, that are shown to be polynomials of low degree."""
        return _FOLDS[self.message]

    @property
    def pieces(self) -> int:
        """The rows for the coefficients of one polynomial of the ring."""
        return self.ring.degree // self.message

    @property
    def mask_rows(self) -> int:
        return -(-(RANGES**2) // self.message)

    @property
    def added(self) -> int:
        """Rows of a matrix beside its witness: masks, and what hides combinations (two halves each) and folds."""
        return self.mask_rows + 4 * REPEATS + self.folds

    @property
    def width(self) -> int:
        """k, the coefficients of a row's polynomial."""
        return self.message + self.opened

    @property
    def linear(self) -> int:
        """The coefficients of a sum of rows times polynomials of l coefficients."""
        return self.message + self.width - 1

    @property
    def quotient(self) -> int:
        """The coefficients of a sum of squares of rows over x^l + 1."""
        return 2 * self.width - 1 - self.message

    def shift(self, coefficients: int) -> int:
        """The s of low + x^s high that hides so many coefficients: two halves of k each never make more than these."""
        return coefficients - self.width


def thrown_away(sizes: Sizes, largest: int) -> Fraction:
    """At most the chance that a try has a sum too close to an end of its range (the proof's 6.2).

    `largest` bounds the sum of the absolute values of an honest witness's rows, over all parts.
    """
    return Fraction(2 * largest * sizes.message * RANGES**2, 1 << RANGE_BITS)


def check_tries(sizes: Sizes, largest: int) -> None:
    """Arguments as of `thrown_away`. Raises DomainError: more than a quarter of all tries may be thrown away."""
    if thrown_away(sizes, largest) > THROWN_LIMIT:
        raise DomainError(f"rows that sum up to {largest} are not proved: too many tries would be thrown away")
