"""A public affine map of a party's integer rows, applied exactly before they are clipped.

See docs/design/encoding.md#whitening.

Privacy asks nothing of the map: rows are clipped after it, and that alone bounds them (docs/proofs/sensitivity.md,
section 3.6). Exactness makes the rows the same on every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.fixed_point import SCALE

ROW_SUM_LIMIT = 1 << 10
CONDITION_LIMIT = 1e4
WHITENED_LIMIT = 2 * SCALE * ROW_SUM_LIMIT
MATRIX_BITS = 20
_REMEDY = "Make it with commingle party whiten, if need be with a larger --ridge."


@dataclass(frozen=True, slots=True, eq=False)
class IntegerMap:
    """q -> trunc(A (q - c) / 2^20) on rows of d integers.

    Attributes:
        matrix: A, (d, d) integers, the rows' sums of magnitudes at most 2^30.
        centre: c, (d,) integers in [-2^f, 2^f].
    """

    matrix: NDArray[np.int64]
    centre: NDArray[np.int64]

    @classmethod
    def of(cls, matrix: Sequence[Sequence[float]], centre: Sequence[float]) -> Self:
        """The map nearest to x -> matrix (x - centre) in encoded units.

        Raises:
            ParameterError: not square, too large, or so near to singular that nobody could undo it.
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
        """M (d, d) and c (d,) with x = M z + c for z = map(x), in encoded units and but for truncation."""
        inverse = np.linalg.inv(self.matrix.astype(np.float64) / (1 << MATRIX_BITS))
        return np.asarray(inverse, np.float64), self.centre / SCALE
