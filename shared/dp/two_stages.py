"""Second moments of one holder's columns in two stages, features and label together (docs/proofs/two-stages.md, 7).

A share of rho buys noisy sums of the columns and of their squares, and the rest all second moments of the rows that
were centred, scaled and cut as those sums suggest. Under `add_remove`, where the number of rows is private, it is the
first of those sums. From rho, n, the schema and the noisy sums everybody computes the same noise and map, in integers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from commingle.shared.dp.accounting import Rho, gaussian_loss, least_sigma
from commingle.shared.dp.first_stage import (
    FirstStage,
    MeasuredAttribute,
    RadiusRule,
    first_stage_loss,
    plan_first_stage,
    radius_squared_for,
    scaling,
)
from commingle.shared.dp.fixed_point import SCALE, WHITENED_LIMIT, IntegerMap, clip_rows
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.errors import ParameterError

SHARE = Fraction(3, 20)
"""Of rho for the first stage, chosen by measuring, as the weight of linear terms was; privacy depends on neither."""
_LINEAR = Fraction(1, 4)
_SQUARED = {Adjacency.REPLACE_ONE: (2 + _LINEAR) ** 2 / 2, Adjacency.ADD_REMOVE: 1 + _LINEAR}
_MOST_ROWS = 1 << 23  # n 2^30 < 2^53: sums of products are exact in float64, in whatever order
_MOST_COLUMNS = 256
# What is published has no standard errors, so what cutting bends need not vanish beside them: r^2 has a largest value.
_RADIUS, _MOST_RADIUS_SQUARED = RadiusRule(unit=80, least=Fraction(1, 2), rooted=False), Fraction(4)
WIDER = 4 * SHARE + Fraction(9, 4) * (1 - SHARE)
"""At most what a plan for `add_remove` costs under `replace_one`, over its own loss."""


@dataclass(frozen=True, slots=True)
class TwoStages:
    """The noise of both stages and the radius of the map between them.

    Attributes:
        sigma: standard deviation of the noise of sum z_j^2, z a mapped row, in steps of 4^-15.
        radius_squared: of `scaling`.
    """

    first: FirstStage
    sigma: int
    radius_squared: Fraction

    @property
    def sigmas(self) -> tuple[int, int, int]:
        """What a document states: of sums, of their squares, and of second moments, in steps of each."""
        return self.first.sigma, self.first.square_sigma, self.sigma

    @property
    def product_sigma(self) -> int:
        """The noise of sum z_j z_k, j < k, which stands for two equal entries: the least s with 2 s^2 >= sigma^2."""
        return isqrt(-(-(self.sigma**2) // 2) - 1) + 1

    @property
    def linear_sigma(self) -> int:
        """The noise of sum z_j in steps of 2^-15: the least s with w 4^15 s^2 >= sigma^2, w linear terms' weight."""
        return isqrt(-(-(self.sigma**2) * _LINEAR.denominator // (_LINEAR.numerator * SCALE**2)) - 1) + 1

    def sums(self, q: NDArray[np.int64], draw: Sampler) -> NDArray[np.float64]:
        """The first stage: noisy sums of encoded rows q (n x d), then of squares of numeric columns; whole numbers.

        Before them, under `add_remove`, 2^15 times the number of rows, with the noise of sums.
        """
        return (self.first.sums(q) + self.first.noise(draw)).astype(np.float64)

    def count(self, sums: NDArray[np.float64]) -> int:
        """How many rows the fit goes by, 1 at least: as `sums` say where that is private."""
        return self.first.count(int(sums[0]))

    def map(self, sums: NDArray[np.float64]) -> IntegerMap:
        """The map that follows from what `sums` gave, whatever it gave."""
        return scaling(self.first, sums.astype(np.int64), radius_squared=self.radius_squared)

    def moments(self, q: NDArray[np.int64], mapped: IntegerMap, draw: Sampler) -> NDArray[np.float64]:
        """The second stage: noisy sums of mapped rows z, cut at norm 1, and of z_j z_k, j <= k, whole numbers.

        Independent of the first but for the map. Precondition: |q| <= 2^15 and fewer than 2^23 rows.
        """
        z = clip_rows(mapped.rows(q), SCALE**2, largest=WHITENED_LIMIT).astype(np.float64)
        d, upper = z.shape[1], np.triu_indices(z.shape[1])
        symmetric = np.diag(draw(self.sigma, d))
        symmetric[np.triu_indices(d, 1)] = draw(self.product_sigma, d * (d - 1) // 2)
        linear = z.sum(axis=0).astype(np.int64) + draw(self.linear_sigma, d)
        products = (z.T @ z).astype(np.int64) + symmetric
        return np.concatenate([linear, products[upper]]).astype(np.float64)

    def system(self, moments: NDArray[np.float64], *, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The moments as sums over rows (1, z) in units of z, (d + 1, d + 1), n first, and variances of their noise."""
        d = self.first.columns
        upper = np.triu_indices(d)
        gram, variance = np.zeros((d + 1, d + 1)), np.zeros((d + 1, d + 1))
        gram[0, 0] = n
        gram[0, 1:], variance[0, 1:] = moments[:d] / SCALE, (self.linear_sigma / SCALE) ** 2
        gram[1:, 1:][upper] = moments[d:] / SCALE**2
        variance[1:, 1:] = (self.product_sigma / SCALE**2) ** 2
        np.fill_diagonal(variance[1:, 1:], (self.sigma / SCALE**2) ** 2)
        variance[1:, 0] = variance[0, 1:]
        return np.triu(gram) + np.triu(gram, 1).T, variance


def plan_two_stages(attributes: Sequence[MeasuredAttribute], *, n: int, rho: Rho, adjacency: Adjacency) -> TwoStages:
    """The least noise with which both stages together lose no more than `rho` in that adjacency.

    n is public: under `add_remove` a figure that only says how far rows are cut. Raises ParameterError: rho is so
    small, or n so large, that sums or noise leave exact arithmetic.
    """
    columns = sum(attribute.columns for attribute in attributes)
    if n >= _MOST_ROWS or columns > _MOST_COLUMNS:
        raise ParameterError(
            f"{n} rows of {columns} columns are too many for two stages",
            remedy=f"Use fewer than 2^23 rows and {_MOST_COLUMNS} columns at most.",
        )
    share = Rho(int(rho.units * SHARE))
    first = plan_first_stage(attributes, n=n, rho=share, adjacency=adjacency)
    sigma = least_sigma(squared_sensitivity=_squared_sensitivity(adjacency), rho=rho - share)
    radius_squared = radius_squared_for(_RADIUS, rho=rho, n=n, columns=Fraction(columns))
    return TwoStages(first, sigma, min(radius_squared, _MOST_RADIUS_SQUARED))


def two_stage_loss(stages: TwoStages, adjacency: Adjacency) -> Rho:
    """What both stages cost together in an adjacency, be it the one that they were planned for or replace_one.

    Guarantee: a Gaussian loss of rho for those who see both; neighbours differ in one row's values, or under
    `add_remove` by one row (docs/proofs/two-stages.md, 7).
    """
    second = gaussian_loss(squared_sensitivity=_squared_sensitivity(adjacency), sigma=stages.sigma)
    return first_stage_loss(stages.first, adjacency) + second


def _squared_sensitivity(adjacency: Adjacency) -> int:
    """The bound of second moments, linear terms counted by their weight, in steps of 4^-15: a multiple of S^4 / 32."""
    return int(_SQUARED[adjacency] * SCALE**4)
