"""Into the unit ball and back (Kalaja 2020; Wang 2018; docs/design/estimation.md#unit-ball).

Every map here takes its numbers from `Scales`. Row by row it then reads nothing but the row itself, so it costs
nothing beyond the method that follows. `scales_from_rows` takes the numbers from the private rows: that is what the
papers do, it is not private, and it is for benchmarks only. The product maps rows by the bounds of their schema.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import sqrt

import numpy as np

from commingle.party_agent.private.regression.problem import Floats
from commingle.shared.dp.errors import ParameterError


class Mapping(StrEnum):
    """How standardised rows come into the unit ball.

    `per_row` divides each row by its norm and leaves its label; `per_row_with_label` divides the label too;
    `maximum` divides all rows by one number, the largest norm.
    """

    PER_ROW = "per_row"
    PER_ROW_WITH_LABEL = "per_row_with_label"
    MAXIMUM = "maximum"


@dataclass(frozen=True, slots=True)
class Scales:
    """The numbers of a mapping, in the units of the data.

    Attributes:
        means: d, subtracted from the columns.
        sds: d, positive, what the columns are then divided by.
        label_mean: subtracted from the label.
        label_max: what the label is then divided by (after the row's norm, if that divides it).
        row_max: largest norm of a standardised row; used by `maximum` only.
    """

    means: Floats
    sds: Floats
    label_mean: float
    label_max: float
    row_max: float


@dataclass(frozen=True, slots=True)
class Mapped:
    """Rows and labels in the ball; give them to `problem.clip_sample` or `on_grid` with label bound 1.

    Attributes:
        x: n x d, or n x (d + 1) with the intercept column first.
        y: n.
        row_bound: 1, or sqrt(2) where an intercept column of ones stands beside rows of norm 1.
    """

    x: Floats
    y: Floats
    row_bound: float


def map_rows(x: Floats, y: Floats, *, mapping: Mapping, scales: Scales, intercept: bool) -> Mapped:
    """Standardise, add the intercept column, scale. With public scales rows may leave the ball: clip them after."""
    rows = (x - scales.means) / scales.sds
    labels = (y - scales.label_mean) / scales.label_max
    if mapping is Mapping.MAXIMUM:
        rows = rows / scales.row_max
    if intercept:
        rows = np.column_stack([np.ones(len(rows)), rows])
    if mapping is Mapping.MAXIMUM:
        return Mapped(rows, labels, sqrt(2) if intercept else 1.0)
    norms = _row_norms(rows)
    if mapping is Mapping.PER_ROW_WITH_LABEL:
        labels = labels / norms
    return Mapped(rows / norms[:, None], labels, 1.0)


def scales_from_rows(x: Floats, y: Floats, *, mapping: Mapping, intercept: bool, centre_label: bool = True) -> Scales:
    """Means, standard deviations and maxima of the rows themselves. Not private: benchmarks only."""
    means, sds = x.mean(axis=0), x.std(axis=0)
    sds = np.where(sds > 0, sds, 1.0)
    label_mean = float(y.mean()) if centre_label else 0.0
    norms = _row_norms((x - means) / sds)
    rough = Scales(means, sds, label_mean, 1.0, float(norms.max()))
    largest = float(np.abs(map_rows(x, y, mapping=mapping, scales=rough, intercept=intercept).y).max())
    return Scales(means, sds, label_mean, largest or 1.0, rough.row_max)


def clip_above(x: Floats, ceilings: Floats) -> Floats:
    """Columns cut at their ceilings (d), one-sided. Public ceilings keep it a map of single rows."""
    cut: Floats = np.minimum(x, ceilings)
    return cut


def ceilings_from_rows(x: Floats, c: float) -> Floats:
    """The values mean_j + c sd_j of every column. Not private: benchmarks only."""
    ceilings: Floats = x.mean(axis=0) + c * x.std(axis=0)
    return ceilings


def unstandardised(theta: Floats, *, mapping: Mapping, scales: Scales) -> tuple[float, Floats]:
    """Intercept and d slopes in the units of the data, from coefficients with the intercept first. Post-processing.

    theta'_j = y_max theta_j / (x_max sd_j), theta'_0 = label_mean + y_max theta_0 - sum_j theta'_j mean_j, with
    x_max = 1 for per_row_with_label, where a row and its label are divided alike.

    Raises:
        ParameterError: the mapping is per_row, after which labels are no linear function of the rows.
    """
    if mapping is Mapping.PER_ROW:
        raise ParameterError(
            "coefficients of rows divided by their norms have no counterpart in the units of the data",
            remedy="Use mapping maximum or per_row_with_label.",
        )
    row_max = scales.row_max if mapping is Mapping.MAXIMUM else 1.0
    slopes = scales.label_max * theta[1:] / (row_max * scales.sds)
    return float(scales.label_mean + scales.label_max * theta[0] - slopes @ scales.means), slopes


def _row_norms(rows: Floats) -> Floats:
    norms: Floats = np.linalg.norm(rows, axis=1)
    norms[norms == 0] = 1.0
    return norms
