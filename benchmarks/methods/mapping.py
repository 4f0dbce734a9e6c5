"""Into the unit ball and back (Kalaja 2020; Wang 2018).

Row by row a map reads nothing but the row itself and the numbers of its `Scales`, so it costs nothing beyond the method
that follows. `Scales.of` takes the numbers from the private rows: that is what the papers do, it is not private, and it
is for benchmarks only. The product maps rows by the bounds of their schema.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Self

import numpy as np

from commingle.party_agent.private.regression.problem import Floats
from commingle.shared.documents.regression import RowMapping
from commingle.shared.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Mapped:
    """Rows and labels in the ball; give them to `problem.clip_sample` or `on_grid` with label bound 1.

    Attributes:
        x: n x d, or n x (d + 1) with the intercept column first.
        row_bound: 1, or sqrt(2) where an intercept column of ones stands beside rows of norm 1.
    """

    x: Floats
    y: Floats
    row_bound: float


@dataclass(frozen=True, slots=True)
class Scales:
    """The numbers of a map, in the units of the data.

    Attributes:
        means, sds: d, what columns are less, and then divided by.
        label_mean, label_max: the same of the label, after the row's norm where that divides it.
        row_max: largest norm of a standardised row, by which `maximum` divides all. `per_row` divides each by its own
            norm and leaves its label, `per_row_with_label` its label too.
        intercept: whether a column of ones comes first.
    """

    means: Floats
    sds: Floats
    label_mean: float
    label_max: float
    row_max: float
    mapping: RowMapping
    intercept: bool

    @classmethod
    def of(cls, x: Floats, y: Floats, *, mapping: RowMapping, intercept: bool, centre_label: bool = True) -> Self:
        """Means, standard deviations and maxima of the rows themselves. Not private: benchmarks only."""
        means, sds = x.mean(axis=0), x.std(axis=0)
        sds = np.where(sds > 0, sds, 1.0)
        label_mean = float(y.mean()) if centre_label else 0.0
        longest = float(_row_norms((x - means) / sds).max())
        rough = cls(means, sds, label_mean, 1.0, longest, mapping, intercept)
        return replace(rough, label_max=float(np.abs(rough.applied(x, y).y).max()) or 1.0)

    def applied(self, x: Floats, y: Floats) -> Mapped:
        """Standardise, add the intercept column, scale. With public scales rows may leave the ball: clip them after."""
        whole = self.mapping == "maximum"
        rows = (x - self.means) / self.sds / (self.row_max if whole else 1.0)
        labels = (y - self.label_mean) / self.label_max
        if self.intercept:
            rows = np.column_stack([np.ones(len(rows)), rows])
        if whole:
            return Mapped(rows, labels, sqrt(2) if self.intercept else 1.0)
        norms = _row_norms(rows)
        return Mapped(rows / norms[:, None], labels / norms if self.mapping == "per_row_with_label" else labels, 1.0)

    def undone(self, theta: Floats) -> tuple[float, Floats]:
        """Intercept and d slopes in the units of the data, from coefficients with the intercept first. Post-processing.

        theta'_j = y_max theta_j / (x_max sd_j), theta'_0 = label_mean + y_max theta_0 - sum_j theta'_j mean_j, with
        x_max = 1 for per_row_with_label, where a row and its label are divided alike.

        Raises ParameterError: the mapping is per_row, after which labels are no linear function of the rows.
        """
        if self.mapping == "per_row":
            raise ParameterError(
                "coefficients of rows divided by their norms have no counterpart in the units of the data",
                remedy="Use mapping maximum or per_row_with_label.",
            )
        slopes = self.label_max * theta[1:] / ((self.row_max if self.mapping == "maximum" else 1.0) * self.sds)
        return float(self.label_mean + self.label_max * theta[0] - slopes @ self.means), slopes


def _row_norms(rows: Floats) -> Floats:
    norms: Floats = np.linalg.norm(rows, axis=1)
    norms[norms == 0] = 1.0
    return norms
