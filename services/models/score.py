"""The score equation of a generalised linear model, each of its terms from where it is known, and its errors.

    E[x (y - c)] - E[has x (mu(x b) - c)] - P b / n = 0

The first term is sums of pairs, unbiased with noise of known covariance; the second is over weighted rows; P is the
precision of a N(0, 1) prior on every coefficient but intercepts, which bounds what separation leaves open.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from commingle.services.models.weighted_rows import Response, WeightedRows, outer, ratios
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.prepared import Array

PRIOR_DEVIATION = 1.0
_STEPS = 60
_FAR = 4.0
_STILL = 1e-12


class Law(Protocol):
    """What an equation needs of what is explained: see `outcome.Outcome`."""

    @property
    def present(self) -> Array:
        """Who is at the party that holds it."""

    def ys(self, p: int) -> Array:
        """What each term's x is multiplied with."""

    def start(self, t: Array, share: float) -> Array:
        """Coefficients without features."""

    def expectation(self, X: Array, b: Array) -> Array:
        """By row and term."""

    def slope(self, X: Array, w: Array, b: Array) -> Array:
        """The derivative of its mean."""

    def spread(self, X: Array, w: Array, b: Array) -> Array:
        """The mean covariance of what it is the expectation of."""


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """What the equation is about.

    Attributes:
        X: (N, 1 + m) a column of ones, then indicators of the features' levels.
        weights: (N,) of rows; 0 for those without an outcome.
        columns: (p, q) what the outcome is multiplied with in each of p terms, as combinations of a release's columns.
        present: (p, q) who is at the party of each; the outcome's where no feature is.
        n: subjects.
        intercepts: terms, the first ones, without a feature.
    """

    X: Array
    weights: Array
    columns: Array
    present: Array
    n: int
    intercepts: int

    @property
    def precision(self) -> Array:
        """(p,) P / n."""
        k, p = self.intercepts, len(self.columns)
        return np.append(np.zeros(k), np.full(p - k, PRIOR_DEVIATION**-2 / self.n))


def first_term(sums: CrossProducts, design: Design, outcome: Law) -> tuple[Array, Array]:
    """E[x (y - c)], (p,), and its errors as forms, (p, q, q)."""
    ys, shared = outcome.ys(len(design.columns)), np.tile(outcome.present, (len(design.columns), 1))
    return ratios(sums, outer(design.columns, ys), outer(design.present, shared))


def solve(design: Design, outcome: Law, t: Array) -> Array:
    """Solve t - E[has x (mu - c)] - P b / n = 0, by Newton's method with steps halved until the left side shrinks."""
    X, w, P = design.X, design.weights, design.precision

    def left(b: Array) -> Array:
        return np.asarray(t - w @ outcome.expectation(X, b) - P * b)

    b = outcome.start(t, max(float(w.sum()), _STILL))
    now = left(b)
    for _ in range(_STEPS):
        if np.abs(now).max() < _STILL:
            break
        step = np.linalg.solve(outcome.slope(X, w, b) + np.diag(P + _STILL), now)
        step /= max(1.0, float(np.abs(step).max()) / _FAR)
        while (
            float(np.linalg.norm(after := left(b + step))) > float(np.linalg.norm(now)) and np.abs(step).max() > _STILL
        ):
            step = step / 2
        b, now = b + step, after
    return b


@dataclass(frozen=True, slots=True, eq=False)
class Errors:
    """Covariances of b, (p, p): for the fit on the table, and for the population."""

    table: Array
    population: Array


def errors(sums: CrossProducts, rows: WeightedRows, design: Design, outcome: Law, b: Array) -> Errors:
    """H^-1 [noise] H^-1 and H^-1 [noise + sampling + v v'] H^-1 with H = dE[has x mu] / db + P / n, v = P b / n.

    H^-1 v is how far the prior pulls b, which the fit on the table has too.
    Noise: of the form W_t - B W_m, and the ridge's. The table's own second term differs from that of weighted rows by
    the mean of g - B phi over its people, g = has x (mu - c): that is drawing too.
    """
    X, w = design.X, design.weights
    has = np.divide(w, rows.weights, out=np.zeros_like(w), where=rows.weights > 0)
    g = outcome.expectation(X, b) * has[:, None]
    response = rows.response(g)
    _, forms = first_term(sums, design, outcome)
    noise = sums.covariance(forms - np.tensordot(response.B, rows.forms, axes=1)) + response.bias
    inverse = np.linalg.inv(outcome.slope(X, w, b) + np.diag(design.precision + _STILL))
    beyond, drawn = _sampling(sums, rows, design, outcome, (g, response, outcome.spread(X, w, b)))
    pull = design.precision * b
    return Errors(inverse @ (noise + beyond) @ inverse.T, inverse @ (noise + drawn + np.outer(pull, pull)) @ inverse.T)


def _sampling(
    sums: CrossProducts, rows: WeightedRows, design: Design, outcome: Law, parts: tuple[Array, Response, Array]
) -> tuple[Array, Array]:
    """Of the score, (p, p), for the table and for the population.

    It is a sum of means of u_G = x_G (y - c) - B_G phi_G over groups G, those whom two parties share or one holds.
    Cov(mean over G, mean over H) = k Cov(u_G, u_H), with k = 1 / n of the parties in both, and where there is none
    1 / N by n_ab = n_a n_b / N. Where subjects are listed, k = 1 / n, and the table has drawn its y already.
    """
    g, response, spread = parts
    terms = [_parties(outcome.present, at) for at in design.present]
    features = feature_groups(rows)
    groups = sorted({*terms, *features})
    t, f = (np.array([groups.index(each) for each in some], np.intp) for some in (terms, features))
    K, w = in_common(sums, groups), rows.weights
    about = g - w @ g
    G, A, B, C = (about * w[:, None]).T @ about, response.A, response.B, response.C
    M = (A * K[np.ix_(t, f)]) @ B.T
    beyond = G * K[np.ix_(t, t)] - M - M.T + B @ (C * K[np.ix_(f, f)]) @ B.T
    drawn = beyond + spread * K[np.ix_(t, t)]
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
