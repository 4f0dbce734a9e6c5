"""Fixed point and exact row clipping (docs/design/encoding.md#fixed-point, #row-clipping).

Privacy: everything here is exact integer arithmetic, so the sensitivity bounds of `sensitivity` hold for the
integers themselves and not merely up to rounding.
"""

from fractions import Fraction
from math import isfinite, isqrt

import numpy as np
from numpy.typing import NDArray

from commingle.shared.dp.errors import EncodingRangeError, ParameterError

FRACTION_BITS = 15
SCALE = 1 << FRACTION_BITS
EXACT_LIMIT = 1 << 53
_GAIN_BITS = 24
_PRESENCE_BITS = 1


def quantise(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Encoded values in [-1, 1] as integers q = trunc(x 2^f), |q| <= 2^f.

    Truncation is toward zero, so norms never grow.

    Raises:
        EncodingRangeError: a value is outside [-1, 1] or not a number.
    """
    if not bool(np.all(np.abs(values) <= 1.0)):
        raise EncodingRangeError(
            "an encoded value lies outside [-1, 1]", remedy="Report this: values are clipped before encoding."
        )
    return np.trunc(values * SCALE).astype(np.int64)


def within_unit(values: NDArray[np.float64], lower: float, upper: float) -> NDArray[np.float64]:
    """Numbers clipped to [lower, upper] and mapped onto [-1, 1]: x = 2 (v - lower) / (upper - lower) - 1."""
    encoded = 2 * ((np.clip(values, lower, upper) - lower) / (upper - lower)) - 1
    return np.clip(encoded, -1, 1)


def coarsen(q: NDArray[np.int64], fraction_bits: int) -> NDArray[np.int64]:
    """Integers at 15 fraction bits as integers at fewer: trunc(q 2^(f - 15)), so trunc(x 2^f) of the same value."""
    if fraction_bits == FRACTION_BITS:
        return q
    coarse: NDArray[np.int64] = np.sign(q) * (np.abs(q) >> (FRACTION_BITS - fraction_bits))
    return coarse


def presence(fraction_bits: int) -> int:
    """What says of a keyed row that it is there, 2^(f - s).

    Less than a unit: counts are large and need little room beside values (docs/design/keyed.md#presence).
    """
    return 1 << fraction_bits - _PRESENCE_BITS


def exact_row_norm(row_norm: float) -> Fraction:
    """The row norm bound C as an exact rational.

    Raises:
        ParameterError: C is not a positive finite number.
    """
    if not (isfinite(row_norm) and row_norm > 0):
        raise ParameterError(f"row_norm is {row_norm!r}", remedy="Give a positive number, or leave row_norm out.")
    return Fraction(row_norm)


def squared_row_limit(row_norm: float, fraction_bits: int = FRACTION_BITS) -> int:
    """M = floor(C^2 4^f), the largest squared norm of an integer row."""
    return int(exact_row_norm(row_norm) ** 2 * 4**fraction_bits)


def clip_rows(q: NDArray[np.int64], squared_limit: int, *, largest: int = SCALE) -> NDArray[np.int64]:
    """Rows (m x d) scaled down so that every ||q||^2 <= M, exactly.

    For ||q||^2 > M: g = isqrt(floor(M 4^24 / ||q||^2)) < 2^24, each |q| becomes (|q| g) >> 24, sign kept. Then
    ||q'||^2 <= ||q||^2 g^2 / 4^24 <= M.

    Args:
        q: m x d integers.
        squared_limit: M.
        largest: what no entry may exceed in magnitude; d largest^2 < 2^63.

    Raises:
        EncodingRangeError: an entry exceeds `largest`, beyond which squares could leave int64.
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
    """Refuse sizes whose sums could leave the integers that float64 holds exactly: n 2^f max(1, C) < 2^53.

    Raises:
        ParameterError: too many subjects.
    """
    norm = max(Fraction(1), exact_row_norm(row_norm)) if row_norm is not None else Fraction(1)
    if subjects * SCALE * norm >= EXACT_LIMIT:
        raise ParameterError(
            f"{subjects} subjects are too many for exact arithmetic at {FRACTION_BITS} fraction bits",
            remedy="Split the subjects into several releases or lower row_norm.",
        )
