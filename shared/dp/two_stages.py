"""Releases in two stages: facts about a party's own columns first, then rows or moments that follow from them.

A small share of a party's budget buys noisy sums and sums of squares of its encoded columns. From them and public
numbers alone, in integer arithmetic, everybody computes the affine map (an `IntegerMap`) of the rows of the main
release, which spends the rest (docs/proofs/two-stages.md). Columns are centred and divided by the square root of their
standard deviation, so that directions in which rows hardly vary do not drown. Then rows are cut at norm 1.

A regression by one holder has both stages of its own, features and label together (section 7 there): the rest of rho
buys all second moments of the mapped rows. Under `add_remove`, where the number of rows is private, it is the first of
the sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from commingle.shared.dp.accounting import RHO_UNITS, SIGMA_LIMIT, Rho, gaussian_loss, least_sigma
from commingle.shared.dp.fixed_point import MATRIX_BITS, SCALE, WHITENED_LIMIT, IntegerMap, clip_rows
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.errors import ParameterError

_SQUARE_WEIGHT = {
    Adjacency.REPLACE_ONE: Fraction(11, 4),
    Adjacency.ZERO_OUT: Fraction(1),
    Adjacency.ADD_REMOVE: Fraction(1),
}
MOST_SUBJECTS = 1 << 31  # sums of squares stay below 2^61

# Chosen by measuring; privacy depends on none of them (docs/proofs/two-stages.md, section 5).
_MEAN_VARIANCE = Fraction(3, 20)  # of column means before anything is known, in encoded units
_LEAST_VARIANCE, _LEAST_OF_LEVELS = SCALE**2 // 250, SCALE**2 // 25  # of numbers; of levels, which are rare then
_ROOT_BITS = 32


class Kind(StrEnum):
    """The kind of an attribute in a schema: it decides what has to be measured."""

    NUMERIC = "numeric"
    BINARY = "binary"
    CATEGORICAL = "categorical"


@dataclass(frozen=True, slots=True)
class MeasuredAttribute:
    """An attribute of one encoded column, of several if categorical, and of one more if it marks missing cells."""

    kind: Kind
    columns: int = 1  # a number's or a binary attribute's second one holds S where the cell is missing, and the first 0
    # of its squares in the norm of a mapped row; the more, the less noise it gets beside others
    weight: Fraction = Fraction(1)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of its columns: a mark is an indicator, as a level has one."""
        return (self.kind, *[Kind.CATEGORICAL] * (self.columns - 1))


@dataclass(frozen=True, slots=True)
class FirstStage:
    """The noise of a party's sums."""

    attributes: tuple[MeasuredAttribute, ...]  # of the party, in the order of its columns
    n: int
    sigma: int  # standard deviation of the noise of sum q_j, in steps of 2^-15
    square_sigma: int  # of sum q_j^2 of numeric columns, in steps of 4^-15
    # whether subjects are: the first sum is then 2^15 times their number, which the map takes for n
    keyed: bool = False

    @property
    def columns(self) -> int:
        return sum(attribute.columns for attribute in self.attributes)

    @property
    def size(self) -> int:
        return sums_of(self.attributes, keyed=self.keyed)

    def count(self, first: int) -> int:
        """The number of subjects for the map and fits: for keyed ones the first of the noisy sums gives it."""
        return max(1, (2 * first + SCALE) // (2 * SCALE)) if self.keyed else self.n

    def noise(self, draw: Sampler) -> NDArray[np.int64]:
        numbers = len(_numeric(self.attributes))
        return np.concatenate([draw(self.sigma, self.keyed + self.columns), draw(self.square_sigma, numbers)])

    def sums(self, q: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sums of encoded rows (m x d), without noise. Exact, and additive."""
        count = [len(q) * SCALE] if self.keyed else []
        return np.concatenate([np.array(count, np.int64), column_sums(q, self.attributes)])


def sums_of(attributes: Sequence[MeasuredAttribute], *, keyed: bool) -> int:
    """How many sums there are: of subjects if they are keyed, of columns, and of squares of numeric ones."""
    return keyed + sum(attribute.columns for attribute in attributes) + len(_numeric(attributes))


def plan_first_stage(attributes: Sequence[MeasuredAttribute], *, n: int, rho: Rho, adjacency: Adjacency) -> FirstStage:
    """The least noise with which the sums over n subjects lose no more than `rho` in that adjacency.

    Raises ParameterError: rho is so small, or n so large, that sums or noise leave exact arithmetic.
    """
    if n > MOST_SUBJECTS:
        raise ParameterError(f"{n} people cannot be summed exactly", remedy="Split them into several releases.")
    attributes, weight = tuple(attributes), _SQUARE_WEIGHT[adjacency]
    keyed = adjacency is Adjacency.ADD_REMOVE
    sigma = least_sigma(squared_sensitivity=_squared_sensitivity(attributes, adjacency), rho=rho)
    # the least s with weight s^2 >= sigma^2 4^15
    square_sigma = isqrt(-(-((sigma * SCALE) ** 2) * weight.denominator // weight.numerator) - 1) + 1
    if square_sigma > SIGMA_LIMIT:
        raise ParameterError("the first stage needs too much noise", remedy="Raise epsilon.")
    return FirstStage(attributes, n, sigma, square_sigma, keyed)


def first_stage_loss(stage: FirstStage, adjacency: Adjacency) -> Rho:
    """The loss of the sums in an adjacency: that of their plan, or replace_one.

    Guarantee: a Gaussian loss of rho for those who see them; neighbours differ in one subject's values, or by one
    subject (docs/proofs/two-stages.md, 1; docs/proofs/keyed-subjects.md, 2.6).
    """
    return gaussian_loss(squared_sensitivity=_squared_sensitivity(stage.attributes, adjacency), sigma=stage.sigma)


def _squared_sensitivity(attributes: tuple[MeasuredAttribute, ...], adjacency: Adjacency) -> int:
    """The bound of all sums, those of squares counted by their weight.

    Under replace_one squares add nothing, unless the other cell is missing: then 1 + 1 + 11/4 (proof, 1.3).
    """
    replace = adjacency is Adjacency.REPLACE_ONE
    each = {Kind.NUMERIC: 4 if replace else 2, Kind.BINARY: 4 if replace else 1, Kind.CATEGORICAL: 2 if replace else 1}
    marked = sum(a.kind is Kind.NUMERIC and a.columns > 1 for a in attributes)
    added = marked * (2 + _SQUARE_WEIGHT[adjacency] - each[Kind.NUMERIC]) if replace else Fraction(0)
    present = int(adjacency is Adjacency.ADD_REMOVE)
    return int((present + sum(each[attribute.kind] for attribute in attributes) + added) * SCALE**2)


def column_sums(q: NDArray[np.int64], attributes: Sequence[MeasuredAttribute]) -> NDArray[np.int64]:
    """Sums of the d columns of encoded rows (m x d), then sums of squares of the numeric ones. Exact, and additive."""
    squares = q[:, _numeric(attributes)] ** 2
    return np.concatenate([q.sum(axis=0), squares.sum(axis=0)])


def expected_sums(stage: FirstStage, means: NDArray[np.float64], squares: NDArray[np.float64]) -> NDArray[np.int64]:
    """`column_sums` of rows whose columns have these means and mean squares, (d,) each, in encoded units."""
    count = [1.0] if stage.keyed else []
    totals = np.concatenate([count, means, squares[_numeric(stage.attributes)] * SCALE])
    sums: NDArray[np.int64] = np.rint(totals * (stage.n * SCALE)).astype(np.int64)
    return sums


def mean_squares(stage: FirstStage, sums: Sequence[int], centre: NDArray[np.int64]) -> NDArray[np.float64]:
    """(d,) mean squares of the columns about `centre`, (d,) in steps of 2^-15, by noisy sums; in encoded units."""
    totals = np.array(sums, np.float64) / SCALE
    n, totals = max(1.0, totals[0]) if stage.keyed else float(stage.n), totals[stage.keyed :]
    means, about = totals[: stage.columns] / n, centre / SCALE
    squares, start = means.copy(), 0  # of an indicator the same
    for attribute in stage.attributes:
        if attribute.kind is Kind.BINARY:  # +-1, unless a mark says that the cell is missing
            squares[start] = 1 - means[start + 1 : start + attribute.columns].sum()
        start += attribute.columns
    squares[_numeric(stage.attributes)] = totals[stage.columns :] / (n * SCALE)
    found: NDArray[np.float64] = squares - 2 * about * means + about**2
    return found


def mean_square_errors(stage: FirstStage, centre: NDArray[np.int64], *, n: int) -> NDArray[np.float64]:
    """(d,) standard deviations of the noise in `mean_squares` for n subjects, in encoded units; `centre` as there.

    The square of an indicator is itself, that of a binary column 1 less its mark, if it has one.
    """
    about, sigma, start = centre / SCALE, stage.sigma / SCALE / n, 0
    found, numeric = np.abs(1 - 2 * about) * sigma, _numeric(stage.attributes)
    for attribute in stage.attributes:
        if attribute.kind is Kind.BINARY:
            found[start] = np.hypot(2 * about[start], np.sqrt(attribute.columns - 1)) * sigma
        start += attribute.columns
    found[numeric] = np.hypot(stage.square_sigma / SCALE**2 / n, 2 * about[numeric] * sigma)
    return np.asarray(found)


def scaling(stage: FirstStage, sums: NDArray[np.int64], *, radius_squared: Fraction) -> IntegerMap:
    """The map of a party's rows that follows from its noisy `FirstStage.sums`, whatever they are; it can be undone.

    z = (x - m) sqrt(w / s) / R with means m, standard deviations s, weights w and R^2 = r^2 sum w s: the mean square
    norm of a row is 1 / r^2. If R^2 is no less than W^2, the sum over attributes of the largest w / s, then z = x
    sqrt(w / s) / W instead: no row of the schema is longer than 1, and none is cut.
    """
    totals = [int(total) for total in sums]
    stage, totals = replace(stage, n=stage.count(totals[0])), totals[stage.keyed :]
    squares = dict(zip(_numeric(stage.attributes), totals[stage.columns :], strict=True))
    centres, deviations, weights, longest, start = [], [], [], Fraction(0), 0
    for attribute in stage.attributes:
        places = range(start, start + attribute.columns)
        kinds = zip(attribute.kinds, places, strict=True)
        found = [_column(stage, kind, totals[j], squares.get(j, 0)) for kind, j in kinds]
        centres += [centre for centre, _ in found]
        deviations += [deviation for _, deviation in found]
        weights += [attribute.weight] * attribute.columns
        longest += attribute.weight * Fraction(SCALE, min(deviation for _, deviation in found))
        start = places.stop
    cut = radius_squared * sum(w * s for w, s in zip(weights, deviations, strict=True)) / SCALE
    limit = min(cut, longest)
    gains = [isqrt(int((SCALE << 2 * MATRIX_BITS) * w / (s * limit))) for w, s in zip(weights, deviations, strict=True)]
    centre = np.array(centres, np.int64) if cut < longest else np.zeros(stage.columns, np.int64)
    return IntegerMap(np.diag(np.array(gains, np.int64)), centre)


@dataclass(frozen=True, slots=True)
class RadiusRule:
    """Where rows are cut, depending on how noise enters; chosen by measuring."""

    unit: int  # n sqrt(rho) / columns^1.5 where r is 1
    least: Fraction  # the least r^2
    rooted: bool  # whether r^2 grows as the root of that figure, and not as the figure itself


MOMENTS_ARE_NOISY = RadiusRule(unit=60, least=Fraction(1, 2), rooted=False)
ROWS_ARE_NOISY = RadiusRule(unit=1000, least=Fraction(1, 4), rooted=True)


def radius_squared_for(rule: RadiusRule, *, rho: Rho, n: int, columns: Fraction) -> Fraction:
    """r^2 of `scaling`, from public numbers: the less noise there will be, the less rows are cut.

    Above its least value it is n sqrt(rho) / (unit columns^1.5), or its root; rho is that of both stages of one party,
    which has so many columns on average. Noise costs a fit columns (r^2 columns)^2 / (rho n^2), a term for each of so
    many slopes. Cutting bends less as r grows, and has to bend less where intervals shorten. So there is no largest r:
    `scaling` cuts nothing in the end.
    """
    signal = Fraction(rho.units, RHO_UNITS) * n**2 / (rule.unit**2 * columns**3)
    found = isqrt(int(signal * 4**_ROOT_BITS))
    if rule.rooted:
        found = isqrt(found << _ROOT_BITS)
    return max(Fraction(found, 2**_ROOT_BITS), rule.least)


def _numeric(attributes: Sequence[MeasuredAttribute]) -> list[int]:
    kinds = [kind for attribute in attributes for kind in attribute.kinds]
    return [place for place, kind in enumerate(kinds) if kind is Kind.NUMERIC]


def _column(stage: FirstStage, kind: Kind, total: int, squares: int) -> tuple[int, int]:
    """Mean and standard deviation of a column, in steps of 2^-15, from its noisy sums.

    The mean is drawn towards 0 as its noise, of variance sigma^2 / n^2, requires under a prior variance of 3/20. The
    variance Q/n - (T^2 - sigma^2)/n^2 counts as at least one standard deviation of its own noise.
    """
    n, noise, prior = stage.n, stage.sigma**2, _MEAN_VARIANCE * SCALE**2
    mean = int(total * n * prior / (n**2 * prior + noise))
    centre = min(max(mean, 0 if kind is Kind.CATEGORICAL else -SCALE), SCALE)
    if kind is Kind.NUMERIC:
        error = (stage.square_sigma**2 + 4 * centre**2 * noise) * n**2
    elif kind is Kind.BINARY:
        squares, error = n * SCALE**2, 4 * centre**2 * noise * n**2
    else:
        squares, error = SCALE * total, (SCALE - 2 * centre) ** 2 * noise * n**2
    variance = (n * squares - total**2 + noise) // n**2
    uncertainty = isqrt((error + 2 * noise**2) // n**4)
    least = _LEAST_VARIANCE if kind is Kind.NUMERIC else _LEAST_OF_LEVELS
    return centre, isqrt(min(max(variance, uncertainty, least), SCALE**2))


SHARE = Fraction(3, 20)
"""The first stage's share of rho. Measurements chose it and the weight of linear terms; privacy depends on neither."""
_LINEAR = Fraction(1, 4)
_SQUARED = {Adjacency.REPLACE_ONE: (2 + _LINEAR) ** 2 / 2, Adjacency.ADD_REMOVE: 1 + _LINEAR}
_MOST_ROWS = 1 << 23  # n 2^30 < 2^53: sums of products are exact in float64, in whatever order
_MOST_COLUMNS = 256
# A published regression has no standard errors beside which bending by cutting must vanish: r^2 has a largest value.
_RADIUS, _MOST_RADIUS_SQUARED = RadiusRule(unit=80, least=Fraction(1, 2), rooted=False), Fraction(4)
WIDER = 4 * SHARE + Fraction(9, 4) * (1 - SHARE)
"""Under `replace_one` a plan for `add_remove` costs at most so many times its own loss."""


@dataclass(frozen=True, slots=True)
class TwoStages:
    """The noise of both stages and the radius of the map between them."""

    first: FirstStage
    sigma: int  # standard deviation of the noise of sum z_j^2, z a mapped row, in steps of 4^-15
    radius_squared: Fraction  # of `scaling`

    @property
    def sigmas(self) -> tuple[int, int, int]:
        """The figures in a document: noise of sums, of their squares, and of second moments, in steps of each."""
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

        Under `add_remove` 2^15 times the number of rows comes before them, with the noise of sums.
        """
        return (self.first.sums(q) + self.first.noise(draw)).astype(np.float64)

    def count(self, sums: NDArray[np.float64]) -> int:
        """How many rows the fit goes by, at least 1: `sums` give it if it is private."""
        return self.first.count(int(sums[0]))

    def map(self, sums: NDArray[np.float64]) -> IntegerMap:
        """The map that follows from the result of `sums`, whatever it is."""
        return scaling(self.first, sums.astype(np.int64), radius_squared=self.radius_squared)

    def moments(self, q: NDArray[np.int64], mapped: IntegerMap, draw: Sampler) -> NDArray[np.float64]:
        """The second stage: noisy sums of mapped rows z, cut at norm 1, and of z_j z_k, j <= k, whole numbers.

        Only the map depends on the first stage. Precondition: |q| <= 2^15 and fewer than 2^23 rows.
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

    n is public: under `add_remove` it only decides how far rows are cut. Raises ParameterError: rho is so small, or n
    so large, that sums or noise leave exact arithmetic.
    """
    columns = sum(attribute.columns for attribute in attributes)
    if n >= _MOST_ROWS or columns > _MOST_COLUMNS:
        raise ParameterError(
            f"{n} rows of {columns} columns are too many for two stages",
            remedy=f"Use fewer than 2^23 rows and {_MOST_COLUMNS} columns at most.",
        )
    share = Rho(int(rho.units * SHARE))
    first = plan_first_stage(attributes, n=n, rho=share, adjacency=adjacency)
    sigma = least_sigma(squared_sensitivity=_second_sensitivity(adjacency), rho=rho - share)
    radius_squared = radius_squared_for(_RADIUS, rho=rho, n=n, columns=Fraction(columns))
    return TwoStages(first, sigma, min(radius_squared, _MOST_RADIUS_SQUARED))


def two_stage_loss(stages: TwoStages, adjacency: Adjacency) -> Rho:
    """The loss of both stages together in an adjacency: that of their plan, or replace_one.

    Guarantee: a Gaussian loss of rho for those who see both; neighbours differ in one row's values, or under
    `add_remove` by one row (docs/proofs/two-stages.md, 7).
    """
    second = gaussian_loss(squared_sensitivity=_second_sensitivity(adjacency), sigma=stages.sigma)
    return first_stage_loss(stages.first, adjacency) + second


def _second_sensitivity(adjacency: Adjacency) -> int:
    """The bound of second moments, linear terms counted by their weight, in steps of 4^-15: a multiple of S^4 / 32."""
    return int(_SQUARED[adjacency] * SCALE**4)
