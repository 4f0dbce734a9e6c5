"""What every method takes and gives: rows of a regression within their bounds in, privatised coefficients out.

Each encoded row becomes one of the regression from itself and public numbers (docs/design/estimation.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import frexp, isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.errors import SampleError
from commingle.shared.documents.regression import RowMapping
from commingle.shared.dp.fixed_point import SCALE, clip_rows, quantise, squared_row_limit
from commingle.shared.errors import ParameterError

_ROUNDING = 1e-12
"""Kept above the bound, so that rows exactly on it are not scaled down by the last bit."""

Floats = NDArray[np.float64]
Published = Mapping[str, float | Sequence[float]]


EXACT_ROWS = 1 << 23
"""n 2^30 < 2^53: sums of n products of grid values stay where float64 holds every integer."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows within their public bounds; made by `clip_sample` or `on_grid` only.

    Attributes:
        x: n x d, every row's Euclidean norm at most row_bound.
        y: n labels, |y| at most label_bound.
        public_n: about how many rows there are, if the exact number is private.
    """

    x: Floats = field(repr=False)
    y: Floats = field(repr=False)
    row_bound: float
    label_bound: float
    public_n: int | None = None

    @property
    def n(self) -> int:
        """The number of rows as a method may know it: the public figure, if there is one."""
        return len(self.y) if self.public_n is None else self.public_n

    @property
    def d(self) -> int:
        return int(self.x.shape[1])


@dataclass(frozen=True, slots=True)
class Estimate:
    """What leaves: d coefficients in the units of the sample.

    Attributes:
        published: further quantities that are privatised too and covered by the charge; nothing else belongs here.
    """

    coefficients: Floats
    published: Published = field(default_factory=dict)


def clip_sample(x: Floats, y: Floats, *, row_bound: float, label_bound: float, public_n: int | None = None) -> Sample:
    """Rows scaled down into the ball, labels cut, in floating point.

    The bounds hold up to a few units in the last place: for benchmarks, and methods with floating-point noise.

    Raises:
        SampleError: shapes that do not fit, or a value that is not finite.
        ParameterError: a bound that is not a positive finite number.
    """
    _check(x, y, row_bound, label_bound)
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    scaled: Floats = x / np.maximum(1.0, norms / row_bound)
    return Sample(scaled, np.clip(y, -label_bound, label_bound), row_bound, label_bound, public_n)


def on_grid(x: Floats, y: Floats, *, row_bound: float, label_bound: float, public_n: int | None = None) -> Sample:
    """As `clip_sample`, but on a grid of 2^-15 times the next power of two above each bound, and exactly within it.

    A row is clipped in integers: to 2^-15 times a power of two of its own where it is longer than a unit, below 2^16,
    then by `clip_rows`. So what becomes of it follows from that row alone, wherever it stands. Every sum of products
    of grid values is a multiple of the grid's square below 2^53 of them, so X^T X and X^T y are computed without any
    rounding, in whatever order (docs/proofs/regression.md, 1).

    Raises SampleError: as `clip_sample`, or 2^23 rows and more; ParameterError: as `clip_sample`.
    """
    _check(x, y, row_bound, label_bound)
    if len(y) >= EXACT_ROWS:
        raise SampleError("there are too many rows for exact sums", remedy="Use fewer than 2^23 rows.")
    row_unit, label_unit = power_of_two_above(row_bound), power_of_two_above(label_bound)
    scaled = x / row_unit
    longest = np.frexp(np.abs(scaled).max(axis=1, keepdims=True))[1]  # an entry of the row is 2^(longest - 1) or more
    shorter = np.ldexp(scaled, -np.maximum(longest - 1, 0))  # what is halved here is still over the limit
    steps = np.trunc(shorter * SCALE).astype(np.int64)
    rows = clip_rows(steps, squared_row_limit(row_bound / row_unit), largest=2 * SCALE)
    labels = quantise(np.clip(y, -label_bound, label_bound) / label_unit)
    x_exact = rows.astype(np.float64) * (row_unit / SCALE)
    y_exact = labels.astype(np.float64) * (label_unit / SCALE)
    return Sample(x_exact, y_exact, row_bound, label_bound, public_n)


def power_of_two_above(value: float) -> float:
    """The least power of two that is at least `value`; dividing by it is exact."""
    mantissa, exponent = frexp(value)
    return float(2.0 ** (exponent - 1 if mantissa == 0.5 else exponent))  # noqa: PLR2004 - frexp's least mantissa


def _check(x: Floats, y: Floats, row_bound: float, label_bound: float) -> None:
    for name, bound in (("row_bound", row_bound), ("label_bound", label_bound)):
        if not (isfinite(bound) and bound > 0):
            raise ParameterError(f"{name} is {bound!r}", remedy="Give a positive finite number.")
    if x.ndim != 2 or y.shape != x.shape[:1] or x.shape[1] == 0:  # noqa: PLR2004 - a matrix
        raise SampleError(
            f"rows of shape {x.shape} and labels of shape {y.shape}", remedy="Give an n x d matrix and n labels."
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise SampleError("a value is missing or infinite", remedy="Fill or drop such rows beforehand.")


@dataclass(frozen=True, slots=True)
class RowMap:
    """What a request says of rows.

    Attributes:
        mapping: `maximum` leaves rows as they are, all within one bound; `per_row` divides each by its norm, and
            `per_row_with_label` its label too (Kalaja 2020, 3.2).
        intercept: whether a column of ones comes first, before the norm is taken.
        row_norm: encoded features of a row are scaled down to it; None if their bounds do.
    """

    mapping: RowMapping = "maximum"
    intercept: bool = True
    row_norm: float | None = None

    def bound(self, attributes: int) -> float:
        """Norm of a row: 1, or sqrt(1 + min(attributes, row_norm^2)), as an attribute's radius is 1."""
        if self.mapping != "maximum":
            return 1 + _ROUNDING
        square = attributes if self.row_norm is None else min(attributes, self.row_norm * self.row_norm)
        return sqrt(self.intercept + square) * (1 + _ROUNDING)

    def apply(self, features: NDArray[np.int64], target: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Rows (m x D) and labels (m) of encoded integers; no row longer than `bound` but by rounding."""
        q = features if self.row_norm is None else clip_rows(features, squared_row_limit(self.row_norm))
        ones = np.full((len(q), int(self.intercept)), SCALE)
        x, y = np.hstack([ones, q]) / SCALE, target / SCALE
        if self.mapping == "maximum":
            return x, y
        # the square is a sum of integers: exact, and the same wherever the row stands
        norms = np.sqrt(np.sum(q**2, axis=1) + self.intercept * SCALE**2) / SCALE
        norms[norms == 0] = 1.0
        return x / norms[:, None], y / norms if self.mapping == "per_row_with_label" else y
