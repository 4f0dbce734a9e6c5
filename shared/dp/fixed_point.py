"""Fixed point, public maps of rows and exact row clipping.

See docs/design/encoding.md#fixed-point, #whitening and #row-clipping. Privacy: everything here is exact integer
arithmetic. So the sensitivity bounds of `sensitivity` hold for the integers themselves and not merely up to rounding,
and rows are the same on every machine. Privacy needs nothing of a map: rows are clipped after it, and that alone bounds
them (docs/proofs/sensitivity.md, section 3.6).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite, isqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

from commingle.shared.errors import EncodingRangeError, ParameterError

FRACTION_BITS = 15
SCALE = 1 << FRACTION_BITS
EXACT_LIMIT = 1 << 53
_GAIN_BITS = 24
_PRESENCE_BITS = 1
ROW_SUM_LIMIT = 1 << 10
CONDITION_LIMIT = 1e4
WHITENED_LIMIT = 2 * SCALE * ROW_SUM_LIMIT
MATRIX_BITS = 20
_REMEDY = "Make it with commingle party whiten, if need be with a larger --ridge."


def quantise(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Encoded values in [-1, 1] as integers q = trunc(x 2^f), |q| <= 2^f: toward zero, so norms never grow.

    Raises EncodingRangeError: a value is outside [-1, 1] or not a number.
    """
    if not bool(np.all(np.abs(values) <= 1.0)):
        raise EncodingRangeError(
            "an encoded value lies outside [-1, 1]", remedy="Report this: values are clipped before encoding."
        )
    return np.trunc(values * SCALE).astype(np.int64)


def within_unit(values: NDArray[np.float64], lower: float, upper: float) -> NDArray[np.float64]:
    """Numbers clipped to [lower, upper] and mapped onto [-1, 1]: x = 2 (v - lower) / (upper - lower) - 1."""
    with np.errstate(invalid="ignore"):  # a NaN of a file that signals would be a warning in the agent's log
        encoded = 2 * ((np.clip(values, lower, upper) - lower) / (upper - lower)) - 1
        return np.clip(encoded, -1, 1)


def coarsen(q: NDArray[np.int64], fraction_bits: int) -> NDArray[np.int64]:
    """Integers at 15 fraction bits as integers at fewer: trunc(q 2^(f - 15)), so trunc(x 2^f) of the same value."""
    if fraction_bits == FRACTION_BITS:
        return q
    coarse: NDArray[np.int64] = np.sign(q) * (np.abs(q) >> (FRACTION_BITS - fraction_bits))
    return coarse


def presence(fraction_bits: int) -> int:
    """The mark that a keyed row is there, 2^(f - s): little, as counts are large (docs/design/keyed.md)."""
    return 1 << fraction_bits - _PRESENCE_BITS


def exact_row_norm(row_norm: float) -> Fraction:
    """The row norm bound C as an exact rational. Raises ParameterError: C is not a positive finite number."""
    if not (isfinite(row_norm) and row_norm > 0):
        raise ParameterError(f"row_norm is {row_norm!r}", remedy="Give a positive number, or leave row_norm out.")
    return Fraction(row_norm)


def squared_row_limit(row_norm: float, fraction_bits: int = FRACTION_BITS) -> int:
    """M = floor(C^2 4^f), the largest squared norm of an integer row."""
    return int(exact_row_norm(row_norm) ** 2 * 4**fraction_bits)


def clip_rows(q: NDArray[np.int64], squared_limit: int, *, largest: int = SCALE) -> NDArray[np.int64]:
    """Rows (m x d) scaled down so that every ||q||^2 <= M, exactly.

    For ||q||^2 > M: g = isqrt(floor(M 4^24 / ||q||^2)) < 2^24, each |q| becomes (|q| g) >> 24, sign kept. Then ||q'||^2
    <= ||q||^2 g^2 / 4^24 <= M. Raises EncodingRangeError: an entry exceeds `largest` in magnitude, d largest^2 < 2^63,
    beyond which squares could leave int64.
    """
    if q.size and max(-int(q.min()), int(q.max())) > largest:
        raise EncodingRangeError(
            f"an encoded value lies outside [-{largest}, {largest}]",
            remedy="Report this: values are clipped before encoding.",
        )
    squared = np.einsum("ij,ij->i", q, q)
    over = squared > squared_limit
    if not over.any():
        return q
    gains = [isqrt((squared_limit << (2 * _GAIN_BITS)) // int(s)) for s in squared[over]]
    clipped = q.copy()
    rows = q[over]
    clipped[over] = np.sign(rows) * ((np.abs(rows) * np.array(gains, np.int64)[:, None]) >> _GAIN_BITS)
    return clipped


def check_exact_range(subjects: int, row_norm: float | None) -> None:
    """Raise ParameterError unless n 2^f max(1, C) < 2^53: float64 must hold sums exactly."""
    norm = max(Fraction(1), exact_row_norm(row_norm)) if row_norm is not None else Fraction(1)
    if subjects * SCALE * norm >= EXACT_LIMIT:
        raise ParameterError(
            f"{subjects} people are too many for exact arithmetic at {FRACTION_BITS} fraction bits",
            remedy="Split the people into several releases or lower row_norm.",
        )


@dataclass(frozen=True, slots=True, eq=False)
class IntegerMap:
    """q -> trunc(A (q - c) / 2^20) on rows of d integers."""

    matrix: NDArray[np.int64]  # A, (d, d) integers, the rows' sums of magnitudes at most 2^30
    centre: NDArray[np.int64]  # c, (d,) integers in [-2^f, 2^f]

    @classmethod
    def of(cls, matrix: Sequence[Sequence[float]], centre: Sequence[float]) -> Self:
        """The map nearest to x -> matrix (x - centre) in encoded units.

        Raises ParameterError: not square, too large, or so near to singular that nobody could undo it.
        """
        d = len(centre)
        if [len(row) for row in matrix] != [d] * d:
            raise ParameterError(f"whitening {d} columns takes a {d} x {d} matrix", remedy=_REMEDY)
        exact, middle = np.array(matrix, np.float64), np.array(centre, np.float64)
        steps = np.rint(exact * (1 << MATRIX_BITS))
        # of the integers: rounding can add half a step for every column
        within = np.abs(steps).sum(axis=1) <= ROW_SUM_LIMIT << MATRIX_BITS
        if not within.all() or not (np.abs(middle) <= 1).all():
            raise ParameterError(
                f"a row of the whitening matrix adds up to more than {ROW_SUM_LIMIT} in magnitude, or the centre "
                "lies outside [-1, 1]",
                remedy=_REMEDY,
            )
        if not np.linalg.cond(steps) <= CONDITION_LIMIT:
            raise ParameterError(
                f"the whitening matrix has a condition number above {CONDITION_LIMIT:g}",
                remedy=_REMEDY,
            )
        return cls(steps.astype(np.int64), np.rint(middle * SCALE).astype(np.int64))

    def rows(self, q: NDArray[np.int64]) -> NDArray[np.int64]:
        """The map of rows (m x d) with |q| <= 2^f. Entries are at most `WHITENED_LIMIT`.

        |q - c| <= 2^16 and the rows of A add up to at most 2^30, so every partial sum of the product is an integer
        below 2^46, which float64 holds: the result depends neither on BLAS nor on the order of summation.
        """
        product = ((q - self.centre).astype(np.float64) @ self.matrix.T.astype(np.float64)).astype(np.int64)
        whitened: NDArray[np.int64] = np.sign(product) * (np.abs(product) >> MATRIX_BITS)
        return whitened

    def undo(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """M (d, d) and c (d,) with x = M z + c for z = map(x), in encoded units, up to truncation."""
        inverse = np.linalg.inv(self.matrix.astype(np.float64) / (1 << MATRIX_BITS))
        return np.asarray(inverse, np.float64), self.centre / SCALE
