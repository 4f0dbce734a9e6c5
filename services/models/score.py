"""The score equation of a generalised linear model, each of its terms from where it is known, and its errors.

    E[x (y - c)] - E[has x (mu(x b) - c)] - P b / n = 0

The first term is sums of pairs, unbiased with noise of known covariance; the second is over weighted rows; P is the
precision of a N(0, 1) prior on every coefficient but intercepts, which bounds what separation leaves open.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from commingle.services.models.weighted_rows import Factor, Response, WeightedRows, in_use, outer, ratios, weighted_rows
from commingle.shared.documents.schema import GAP
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array

PRIOR_DEVIATION = 1.0
_STEPS = 60
_FAR = 4.0
_STILL = 1e-12


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Law(ABC):
    """What is explained, and the estimating functions x (y - c) - x (mu(x b) - c) of its equation.

    Attributes:
        known: (q,) who has an outcome, as a combination of a release's columns.
        present: (q,) who is at the party that holds it.
        gaps: whether some may lack it.
    """

    FORMS: ClassVar[tuple[str, ...]] = ("known", "present")
    """Fields that are combinations of columns."""
    BALANCED: ClassVar[bool] = False
    """Whether all terms have one y - c, which alone is the first term."""

    known: Array
    present: Array
    gaps: bool

    def at(self, columns: NDArray[np.intp]) -> Self:
        forms: dict[str, Any] = {name: getattr(self, name)[..., columns] for name in self.FORMS}
        return replace(self, **forms)

    @property
    @abstractmethod
    def alone(self) -> int:
        """How many terms, the first ones, have no feature."""

    @property
    def repeats(self) -> int:
        """How many terms each level of a feature has."""
        return 1

    @property
    def forms(self) -> Array:
        """(t, q) all that are combinations of columns."""
        return np.vstack([getattr(self, name) for name in self.FORMS])

    @property
    def largest_variance(self) -> float:
        """At most Var(y), or near it."""
        return 0.25

    def bounded(self, t: Array) -> Array:
        """The first terms E[x (y - c)], (p,), as far as noise may take them."""
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


L = TypeVar("L", bound=Law)


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """What the equation is about.

    Attributes:
        X: (N, 1 + m) a column of ones, then indicators of the features' levels.
        weights: (N,) of rows; 0 for those without an outcome.
        columns: (p, q) what the outcome is multiplied with in each of p terms, as combinations of a release's columns.
        present: (p, q) who is at the party of each; the outcome's where no feature is.
        totals: (F, q) who is at the party of a feature; none where the terms of its levels need no balance.
        intercepts: terms, the first ones, without a feature.
    """

    X: Array
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
    """Coefficients b, (p,), and their covariances, (p, p): for the fit on the table, and for the population."""

    design: Design
    b: Array
    table: Array
    population: Array


@dataclass(frozen=True, slots=True, eq=False)
class Equation(Generic[L]):
    """What a law and features of a release make of it.

    Attributes:
        sums: in the columns that are used.
        rows: of the features and, last, of who has an outcome, where some lack it.
        places: of each level of each attribute among the levels of its factor.
        merged: what is to be said of levels that count as one.
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
        """The equation of the law of an attribute, `outcome`, by features, whose rare levels count as one.

        Raises:
            NoTablesError: a feature without levels.
            NoOverlapError: two parties share too few subjects.
            FeaturesError: too many levels to be fitted together.
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
        """The coefficients of this law."""
        levels = [(f.present, column) for f in self.factors for column in f.indicators[1:]]
        present, columns = ([law.present] * law.alone + list(each) * law.repeats for each in zip(*levels, strict=True))
        weights = self.rows.weights * (self.rows.codes[:, -1] == 0) if law.gaps else self.rows.weights
        X = self.rows.points.X[:, : 1 + len(levels)]
        apart = [f.present for f in self.factors if law.BALANCED and not np.array_equal(f.present, law.present)]
        apart = apart if len(self.sums.strangers) > 1 else []
        totals = np.unique(apart, axis=0) if apart else np.zeros((0, len(law.present)))
        design = Design(X, weights, np.array(columns), np.array(present), totals, self.n, law.alone)
        first = FirstTerm.of(self.sums, design, law)
        b = solve(design, law, law.bounded(first.t))
        return Solved(design, b, *errors(self.sums, self.rows, law, first, b))


@dataclass(frozen=True, slots=True, eq=False)
class FirstTerm:
    """E[x (y - c)] of each term, balanced.

    A member that holds y knows its mean, t_0, well. Whom it shares with the party of a feature have sums of y for
    every level of the feature, the first one too, and these say the mean again: d = t_0 - E_shared (y - c) is noise if
    who is shared does not depend on values. Without it the first level would have to be what the others leave of t_0,
    with the noise of all. t - G d, G = Cov(t, d) Cov(d)^-1, has less noise than t whatever y is. Drawing adds to
    Cov(d) at most Var(y - c) times that of the means, so that G is 0 where there is no noise.

    Attributes:
        design: of the equation.
        t: (p,).
        forms: (p, q, q) its errors.
        mix: (p, p + F) t as a combination of terms and, after them, the means that are shared with each of `totals`.
    """

    design: Design
    t: Array
    forms: Array
    mix: Array

    @classmethod
    def of(cls, sums: CrossProducts, design: Design, law: Law) -> Self:
        """The first terms of a law in a release."""
        p, F = len(design.columns), len(design.totals)
        who = np.tile(law.present, (p + F, 1))
        ys = law.ys(p)
        terms = outer(np.vstack([design.columns, design.totals]), np.vstack([ys, np.tile(ys[0], (F, 1))]))
        t, forms = ratios(sums, terms, outer(np.vstack([design.present, design.totals]), who))
        if not F:
            return cls(design, t, forms, np.eye(p))
        means = np.hstack([np.ones((F, 1)), -np.eye(F)])  # of t_0 and what is shared with each of `totals`
        differ = np.hstack([means[:, :1], np.zeros((F, p - 1)), means[:, 1:]])
        K = in_common(sums, [_parties(law.present, at) for at in (law.present, *design.totals)])
        V = sums.covariance(forms)
        of_differ = differ @ V @ differ.T + means @ (law.largest_variance * K) @ means.T + _STILL * np.eye(F)
        mix = np.eye(p, p + F) - (V[:p] @ differ.T) @ np.linalg.solve(of_differ, differ)
        return cls(design, mix @ t, np.tensordot(mix, forms, axes=1), mix)


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


def errors(sums: CrossProducts, rows: WeightedRows, law: Law, first: FirstTerm, b: Array) -> tuple[Array, Array]:
    """H^-1 [noise] H^-1 and H^-1 [noise + sampling + v v'] H^-1 with H = dE[has x mu] / db + P / n, v = P b / n.

    H^-1 v is how far the prior pulls b, which the fit on the table has too.
    Noise: of the form W_t - B W_m, and the ridge's. The table's own second term differs from that of weighted rows by
    the mean of g - B phi over its people, g = has x (mu - c): that is drawing too.
    """
    design = first.design
    X, w = design.X, design.weights
    has = np.divide(w, rows.weights, out=np.zeros_like(w), where=rows.weights > 0)
    g = law.expectation(X, b) * has[:, None]
    response = rows.response(g)
    noise = sums.covariance(first.forms - np.tensordot(response.B, rows.forms, axes=1)) + response.bias
    inverse = np.linalg.inv(law.slope(X, w, b) + np.diag(design.precision + _STILL))
    beyond, drawn = _sampling(sums, rows, law, first, (g, response, law.spread(X, w, b)))
    pull = design.precision * b
    return inverse @ (noise + beyond) @ inverse.T, inverse @ (noise + drawn + np.outer(pull, pull)) @ inverse.T


def _sampling(
    sums: CrossProducts, rows: WeightedRows, law: Law, first: FirstTerm, parts: tuple[Array, Response, Array]
) -> tuple[Array, Array]:
    """What drawing adds to the score, (p, p), for the table and for the population.

    It is a sum of means of u_G = x_G (y - c) - B_G phi_G over groups G, those whom two parties share or one holds,
    with the terms x_G (y - c) mixed as `FirstTerm` does.
    Cov(mean over G, mean over H) = k Cov(u_G, u_H), with k = 1 / n of the parties in both, and where there is none
    1 / N by n_ab = n_a n_b / N. Where subjects are listed, k = 1 / n, and the table has drawn its y already.
    """
    (g, response, spread), design, mix = parts, first.design, first.mix
    terms = [_parties(law.present, at) for at in (*design.present, *design.totals)]
    features = feature_groups(rows)
    groups = sorted({*terms, *features})
    t, f = (np.array([groups.index(each) for each in some], np.intp) for some in (terms, features))
    K, w = in_common(sums, groups), rows.weights
    about, p = g - w @ g, len(design.present)
    of = np.append(np.arange(p), np.zeros(len(design.totals), np.intp))  # a total is that of t_0
    G, A, B, C = ((about * w[:, None]).T @ about)[np.ix_(of, of)], response.A[of], response.B, response.C
    M = mix @ (A * K[np.ix_(t, f)]) @ B.T
    beyond = mix @ (G * K[np.ix_(t, t)]) @ mix.T - M - M.T + B @ (C * K[np.ix_(f, f)]) @ B.T
    drawn = beyond + mix @ (spread[np.ix_(of, of)] * K[np.ix_(t, t)]) @ mix.T
    return (drawn if len(sums.strangers) > 1 else beyond), drawn


def feature_groups(rows: WeightedRows) -> list[tuple[int, ...]]:
    """The parties, one or two, that hold each feature phi of the weighted rows."""
    at = [np.zeros_like(rows.factors[0].present)]
    at += [f.present for f in rows.factors for _ in f.labels[1:]]
    return [_parties(at[b] if a == 0 else at[a], at[b]) for a, b in rows.points.pairs.tolist()]


def _parties(one: Array, other: Array) -> tuple[int, ...]:
    return tuple(sorted({int(one.argmax()), int(other.argmax())}))


def in_common(sums: CrossProducts, groups: list[tuple[int, ...]]) -> Array:
    """K of all groups of parties with all, (groups, groups): Cov(mean over G, mean over H) = k Cov of one person."""
    n = np.maximum(sums.values[: len(sums.strangers), : len(sums.strangers)], 1.0)

    def common(one: tuple[int, ...], other: tuple[int, ...]) -> float:
        both = sorted(set(one) & set(other))
        if both:
            return 1 / float(n[both[0], both[-1]])
        return float(np.mean([n[a, b] / (n[a, a] * n[b, b]) for a in one for b in other]))

    return np.array([[common(one, other) for other in groups] for one in groups])
