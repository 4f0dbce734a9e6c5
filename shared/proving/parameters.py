"""Sizes of a proof, and how likely a false statement is to pass (docs/proofs/proved-bounds.md, 5).

A witness is a matrix of small integers, l to a row. Modulo each prime of the ring a row is a polynomial of degree below
k = l + t with these values at the roots of x^l + 1, and t random coefficients; its values at the N roots of x^N + 1 are
committed to, and t of the N places are opened. So sizes follow from the ring's degree, and primes that suit the ring
suit the proof.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import comb

from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.parameters import Parameters

OPENED = 296  # t: places that are opened
RANGES = 104  # sums of random subsets of rows that are shown
FOLDS = 7  # random combinations, modulo each prime, that are shown to be polynomials of low degree
REPEATS = 4  # random combinations, modulo each prime, of all linear, and of all quadratic, equations
RANGE_BITS = 52  # masks of sums are below 2^52; what is proved of every entry is |w| < 2^52
MATRIX_LIMIT = 1 << 16  # rows of a matrix, blinds included
THROWN_LIMIT = Fraction(1, 4)  # of tries whose sums would tell of the witness, at most
_RATE = 4


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of one proof.

    Attributes:
        ring: its degree is the number of places, N.

    Raises:
        DomainError: the ring is too small for t opened places.
    """

    ring: Parameters

    def __post_init__(self) -> None:
        """Anything smaller would prove nothing."""
        if self.places <= 2 * self.width + self.message:
            raise DomainError(f"a ring of degree {self.ring.degree} has too few places to open {OPENED}")

    @property
    def places(self) -> int:
        """N, of which t are opened."""
        return self.ring.degree

    @property
    def message(self) -> int:
        """l, the entries of a row."""
        return self.ring.degree // _RATE

    @property
    def width(self) -> int:
        """k, the coefficients of a row's polynomial."""
        return self.message + OPENED

    @property
    def linear(self) -> int:
        """The coefficients of a sum of rows times polynomials of l coefficients."""
        return self.message + self.width - 1

    @property
    def quotient(self) -> int:
        """The coefficients of a sum of squares of rows over x^l + 1."""
        return 2 * self.width - 1 - self.message

    def shift(self, coefficients: int) -> int:
        """The s of low + x^s high, which hides so many: of k coefficients each, so that no two make more than these."""
        return coefficients - self.width

    @property
    def wrong_places(self) -> int:
        """e: a matrix that differs from polynomials at more places than these is caught by its combinations."""
        return (self.places - 2 * self.width + 1) // 2

    def missed(self, agreeing: int) -> Fraction:
        """How likely t different places, drawn uniformly, are all among so many."""
        return Fraction(comb(agreeing, OPENED), comb(self.places, OPENED))


def thrown_away(sizes: Sizes, largest: int) -> Fraction:
    """How likely a try has a sum too close to an end of its range, at most (the proof's 6.2).

    Args:
        sizes: of the proof.
        largest: what the absolute values of an honest witness's rows sum up to, at most, over all parts.
    """
    return Fraction(2 * largest * RANGES * sizes.message, 1 << RANGE_BITS)


def check_tries(sizes: Sizes, largest: int) -> None:
    """Arguments are those of `thrown_away`.

    Raises:
        DomainError: more than a quarter of all tries may be thrown away.
    """
    if thrown_away(sizes, largest) > THROWN_LIMIT:
        raise DomainError(f"rows that sum up to {largest} are not proved: too many tries would be thrown away")


def first_error(sizes: Sizes, rows: int) -> Fraction:
    """How likely the first challenge spares what is wrong, at most: of a matrix of so many rows (the proof's 5.6)."""
    prime, levels = min(sizes.ring.primes), (rows - 1).bit_length() + 1
    fold = Fraction(levels * (sizes.wrong_places + 1), prime) ** FOLDS
    return max(fold, Fraction(2, prime) ** REPEATS, Fraction(1, 1 << RANGES))


def second_error(sizes: Sizes) -> Fraction:
    """How likely the opened places spare what is wrong, at most (the proof's 5.7)."""
    return max(
        sizes.missed(sizes.places - sizes.wrong_places - 1),
        sizes.missed(sizes.wrong_places + 2 * sizes.width - 2),
    )
