"""How encoded rows become the rows of a regression: each from itself and public numbers (docs/design/estimation.md)."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.private.regression.problem import Floats
from commingle.shared.documents.regression import RowMapping
from commingle.shared.dp.fixed_point import SCALE, clip_rows, squared_row_limit

_ROUNDING = 1e-12
"""Kept above the bound, so that rows exactly on it are not scaled down by the last bit."""


@dataclass(frozen=True, slots=True)
class RowMap:
    """What a request says of rows.

    Attributes:
        mapping: `maximum` leaves rows as they are, all within one bound; `per_row` divides each by its norm, and
            `per_row_with_label` its label too (Kalaja 2020, 3.2).
        intercept: whether a column of ones comes first, before the norm is taken.
        row_norm: encoded features of a row are scaled down to it; None where their bounds do.
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
