"""The score equation of a generalised linear model, its solution, and the errors of that.

    E[x (y - c)] - E[has x (mu(x b) - c)] - P b / n = 0

The first term has sums of pairs, unbiased with noise of known covariance. The second is over weighted rows. P is the
precision of a N(0, 1) prior on every coefficient but intercepts, which bounds coefficients that separation leaves open.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from commingle.services.intervals import standard_errors
from commingle.services.models.factors import Factor, in_use
from commingle.services.models.weighted_rows import Response, WeightedRows, weighted_rows
from commingle.shared.documents.schema import GAP
from commingle.shared.estimation.cells import Balanced, group, in_common, outer
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array

PRIOR_DEVIATION = 1.0
_STEPS = 60
_FAR = 4.0
_STILL = 1e-12


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Law(ABC):
    """The law of an outcome, and the estimating functions x (y - c) - x (mu(x b) - c) of its equation.

    Attributes:
        known: (q,) indicator of the people with an outcome, as a combination of a release's columns.
        present: (q,) indicator of the people at the party that holds it.
        gaps: whether some may lack it.
    """

    FORMS: ClassVar[tuple[str, ...]] = ("known", "present")
    """Fields that are combinations of columns."""

    known: Array
    present: Array
    gaps: bool

    def at(self, columns: NDArray[np.intp]) -> Self:
        forms: dict[str, Any] = {name: getattr(self, name)[..., columns] for name in self.FORMS}
        return replace(self, **forms)

    @property
    @abstractmethod
    def alone(self) -> int:
        """How many terms belong to no feature; these come first."""

    @property
    def repeats(self) -> int:
        """How many terms each level of a feature has."""
        return 1

    @property
    def forms(self) -> Array:
        """(t, q) all combinations of columns."""
        return np.vstack([getattr(self, name) for name in self.FORMS])

    @property
    @abstractmethod
    def balance(self) -> Array:
        """(repeats, alone) y - c of features' terms, as combinations of y - c of the terms without a feature."""

    @property
    @abstractmethod
    def largest_covariance(self) -> Array:
        """(repeats, repeats) an upper bound of Cov(y) of the terms of features, or nearly one."""

    def bounded(self, t: Array) -> Array:
        """The first terms E[x (y - c)], (p,), kept within what noise may do to them."""
        return t

    @abstractmethod
    def ys(self, p: int) -> Array:
        """(p, q) y - c of each term, to be multiplied with its x."""

    @abstractmethod
    def start(self, t: Array, share: float) -> Array:
        """(p,) coefficients without features, by the first terms E[x (y - c)] and the share with an outcome."""

    @abstractmethod
    def expectation(self, X: Array, b: Array) -> Array:
        """(N, p) x (mu - c), for X (N, 1 + m) whose first column is 1."""

    @abstractmethod
    def slope(self, X: Array, w: Array, b: Array) -> Array:
        """(p, p) the derivative of E_w of the expectation by b."""

    @abstractmethod
    def spread(self, X: Array, w: Array, b: Array) -> Array:
        """(p, p) E_w Cov(x y given x)."""

    def unseen(self, X: Array, w: Array, b: Array) -> Array:
        """(p, p) the part of attributes that are neither outcome nor feature; a fit of the table would see these."""
        del X, w
        return np.zeros((len(b),) * 2)

    def bent(self, design: "Design", b: Array, covariance: Array) -> Array:
        """(p, p) the error that departures from the law's assumptions may add, for b of this covariance."""
        del design, covariance
        return np.zeros((len(b),) * 2)


L = TypeVar("L", bound=Law)


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """The design of an equation.

    Attributes:
        X: (N, 1 + m) a column of ones, then indicators of the features' levels.
        blocks: the columns of X of each feature.
        weights: (N,) of rows; 0 for those without an outcome.
        columns: (p, q) the factor of the outcome in each of p terms, as a combination of a release's columns.
        present: (p, q) the people at the party of each factor; the outcome's party for terms without a feature.
        totals: (R F, q) the people at each of F parties of features, for each of R repeats; empty where the terms of
            levels need no balance.
        intercepts: how many terms, the first ones, have no feature.
    """

    X: Array
    blocks: tuple[slice, ...]
    weights: Array
    columns: Array
    present: Array
    totals: Array
    n: int
    intercepts: int

    @property
    def precision(self) -> Array:
        """(p,) P / n."""
        k, p = self.intercepts, len(self.columns)
        return np.append(np.zeros(k), np.full(p - k, PRIOR_DEVIATION**-2 / self.n))


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """Coefficients b, (p,), and their covariances, (p, p): for the fit on the table, and for the population.

    If features have a law w' with the same pairs as the law w of the weighted rows, `beyond` (p,) bounds how far b
    moves, to first order, for each unit of the root of E_w (w' / w - 1)^2. `bent` (p,) is the part of `Law.bent` in
    both covariances, as standard errors.
    """

    design: Design
    b: Array
    table: Array
    population: Array
    beyond: Array
    bent: Array


@dataclass(frozen=True, slots=True, eq=False)
class Equation(Generic[L]):
    """The equation of a law and some features of a release.

    Attributes:
        sums: in the columns that it uses.
        rows: weighted rows of the features and, last, of who has an outcome, where some lack it.
        places: the place of each level of each attribute among the levels of its factor.
        merged: warnings about levels that count as one.
        n: subjects.
    """

    sums: CrossProducts
    rows: WeightedRows
    factors: list[Factor]
    places: list[NDArray[np.intp]]
    merged: list[str]
    law: L
    n: int

    @classmethod
    def of(
        cls, sums: CrossProducts, outcome: str, law: L, features: Sequence[str], entropy: int | Sequence[int]
    ) -> "Equation[L]":
        """The equation of the law of an attribute, `outcome`, by features. Rare levels of these count as one.

        Raises:
            NoTablesError: a feature has no levels.
            NoOverlapError: two parties share too few subjects.
            FeaturesError: there are too many levels to fit together.
        """
        prepared, factors = sums.prepared, [Factor.of(sums, name) for name in features]
        sums, factors, kept = in_use(sums, factors, law.forms, (outcome,))
        law = law.at(kept)
        together = [f.together(sums, law.present) for f in factors]
        factors = [factor for factor, _, _ in together]
        observed = Factor("", ("known", GAP), np.array([law.known, law.present - law.known]), law.present)
        rows = weighted_rows(sums, [*factors, *([observed] if law.gaps else [])], entropy=entropy)
        used = [i for name in (outcome, *features) for i in prepared.columns[name]]
        places, merged = [at for _, at, _ in together], [said for _, _, each in together for said in each]
        return cls(sums, rows, factors, places, merged, law, prepared.shared(used))

    def solved(self, law: L) -> Solved:
        levels = [(f.present, column) for f in self.factors for column in f.indicators[1:]]
        present, columns = ([law.present] * law.alone + list(each) * law.repeats for each in zip(*levels, strict=True))
        weights = self.rows.weights * (self.rows.codes[:, -1] == 0) if law.gaps else self.rows.weights
        X = self.rows.points.X[:, : 1 + len(levels)]
        ends = np.cumsum([1, *(len(f.labels) - 1 for f in self.factors)]).tolist()
        blocks = tuple(slice(first, last) for first, last in pairwise(ends))
        apart = [f.present for f in self.factors if not np.array_equal(f.present, law.present)]
        apart = apart if len(self.sums.strangers) > 1 else []
        totals = np.unique(apart, axis=0) if apart else np.zeros((0, len(law.present)))
        totals = np.tile(totals, (law.repeats, 1))
        design = Design(X, blocks, weights, np.array(columns), np.array(present), totals, self.n, law.alone)
        first = first_term(self.sums, design, law)
        b = solve(design, law, law.bounded(first.values))
        return Solved(design, b, *errors(self.sums, self.rows, law, first, design=design, b=b))


def first_term(sums: CrossProducts, design: Design, law: Law) -> Balanced:
    """E[x (y - c)] of each term.

    The people that the outcome's party shares with a feature's have sums of y for every level of the feature, also for
    the first. So they give the mean of y again; without it the first level would have the noise of all others.
    """
    p, shared = len(design.columns), len(design.totals)
    each, ys = shared // law.repeats, law.ys(p)
    of_features = ys[law.alone :: (p - law.alone) // law.repeats]
    columns, present = (np.vstack([some, design.totals]) for some in (design.columns, design.present))
    terms = outer(columns, np.vstack([ys, np.repeat(of_features, each, axis=0)]))
    counts = outer(present, np.tile(law.present, (p + shared, 1)))
    again = np.zeros((shared, p))
    again[:, : law.alone] = np.repeat(law.balance, each, axis=0)
    spread = np.asarray(np.kron(law.largest_covariance, np.ones((each, each))), np.float64)
    return Balanced.of(sums, terms, counts, [group(law.present, at) for at in present], again=again, spread=spread)


def solve(design: Design, law: Law, t: Array) -> Array:
    """Solve t - E[has x (mu - c)] - P b / n = 0, by Newton's method with steps halved until the left side shrinks."""
    X, w, P = design.X, design.weights, design.precision

    def left(b: Array) -> Array:
        return np.asarray(t - w @ law.expectation(X, b) - P * b)

    b = law.start(t, max(float(w.sum()), _STILL))
    now = left(b)
    for _ in range(_STEPS):
        if np.abs(now).max() < _STILL:
            break
        step = np.linalg.solve(law.slope(X, w, b) + np.diag(P + _STILL), now)
        step /= max(1.0, float(np.abs(step).max()) / _FAR)
        while (
            float(np.linalg.norm(after := left(b + step))) > float(np.linalg.norm(now)) and np.abs(step).max() > _STILL
        ):
            step = step / 2
        b, now = b + step, after
    return b


def errors(
    sums: CrossProducts, rows: WeightedRows, law: Law, first: Balanced, *, design: Design, b: Array
) -> tuple[Array, Array, Array, Array]:
    """H^-1 [noise + Q] H^-1, H^-1 [noise + Q + sampling + pull] H^-1, H = dE[has x mu] / db + P / n.

    Then `Solved.beyond`, which pairs do not tell, and the errors of Q alone. Q is `Law.bent`.

    The prior pulls by H^-1 P b / n, b of the population; it also does so in the fit on the table. `_pull` has E[b b'].
    Noise is that of the form W_t - B W_m, and the ridge's. The table's own second term differs from that of weighted
    rows by the mean of g - B phi over its people, g = has x (mu - c): this is drawing too.
    """
    X, w = design.X, design.weights
    has = np.divide(w, rows.weights, out=np.zeros_like(w), where=rows.weights > 0)
    g = law.expectation(X, b) * has[:, None]
    response = rows.response(g)
    noise = sums.covariance(first.forms - np.tensordot(response.B, rows.means.forms, axes=1)) + response.bias
    inverse = np.asarray(np.linalg.inv(law.slope(X, w, b) + np.diag(design.precision + _STILL)), np.float64)
    spread, unseen = law.spread(X, w, b), law.unseen(X, w, b)
    beyond, drawn = _sampling(sums, first, rows.means, response, spread)
    bent = law.bent(design, b, inverse @ (noise + drawn) @ inverse.T)
    return (
        inverse @ (noise + bent + beyond + unseen / design.n) @ inverse.T,
        inverse @ (noise + bent + drawn + _pull(design, b, inverse, spread)) @ inverse.T,
        standard_errors(inverse @ (response.beyond + unseen) @ inverse.T),
        standard_errors(inverse @ bent @ inverse.T),
    )


def _pull(design: Design, b: Array, inverse: Array, spread: Array) -> Array:
    """P E[B B'] P / n^2 for true coefficients B, (p, p).

    Given b they have E[B B'] = b b' + C, C = H^-1 (P / n + spread) H^-1 / n: the covariance of b - B, which is
    H^-1 (e - P B / n) with B of covariance P^-1 and e of spread / n. Where data say nothing, b is near 0 and C is P^-1.
    """
    P = design.precision
    after = inverse @ (np.diag(P) + spread) @ inverse.T / design.n
    return np.asarray(P[:, None] * (np.outer(b, b) + after) * P)


def _sampling(
    sums: CrossProducts, first: Balanced, means: Balanced, response: Response, spread: Array
) -> tuple[Array, Array]:
    """The part of drawing in the score's covariance, (p, p), for the table and for the population.

    It is a sum of means of u_G = x_G (y - c) - B_G phi_G over groups G of people whom two parties share or one holds,
    both mixed as `Balanced` says. Cov(mean over G, mean over H) = k Cov(u_G, u_H), k of `in_common`. If subjects are
    listed, k = 1 / n, and the table has drawn its y already. Noise in the k of keyed subjects may leave directions a
    variance below 0, which counts as 0: H^-1 would multiply it where features are collinear.
    """
    K, p = in_common(sums, [*first.groups, *means.groups]), len(first.groups)
    B, mix = means.mixed(response.B), first.mixed(np.eye(len(spread)))
    G, C = first.within(response.G), means.within(response.C)
    A = means.extended(first.extended(response.A.T).T)
    M = mix @ (A * K[:p, p:]) @ B.T
    beyond = mix @ (G * K[:p, :p]) @ mix.T - M - M.T + B @ (C * K[p:, p:]) @ B.T
    drawn = _nonnegative(beyond + mix @ (first.within(spread) * K[:p, :p]) @ mix.T)
    return (drawn if len(sums.strangers) > 1 else beyond), drawn


def _nonnegative(covariance: Array) -> Array:
    values, Q = np.linalg.eigh((covariance + covariance.T) / 2)
    return np.asarray((Q * np.maximum(values, 0.0)) @ Q.T)
