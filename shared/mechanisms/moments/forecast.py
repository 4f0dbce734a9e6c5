"""Moments: S + E with E of public entry variances (docs/design/estimation.md#noisy-moments).

Centred moments of (x, y), q features x and the label y, are n Sigma + K^T E K - e e^T / n exactly, with K = (-mean; I)
and e the noise of the linear terms, row 0 of E. For keyed subjects E begins with the presences of J parties, which all
hold the same people here; to first order each column is about its mean by the presence of its party.

Standard errors are those of the learner's `ols`, in closed form. The R^2 of its `shrunken` is averaged over a few draws
of E. Each is fitted as the learner does, but the search of the posterior mode ends early, after ten steps, and knows
only the columns of the task.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil, isqrt, sqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.terms import Terms, allowed_rho, settled
from commingle.shared.dp.fixed_point import presence
from commingle.shared.estimation.entry_noise import Array, EntryNoise
from commingle.shared.estimation.method import FAILURE
from commingle.shared.estimation.posterior import EntryLikelihood, exponent, search
from commingle.shared.estimation.prepared import bucket_counts
from commingle.shared.mechanisms.moments.entries import block_sensitivity, entry_variances, places
from commingle.shared.mechanisms.moments.fit import (
    ENOUGH,
    Slopes,
    draw_noise,
    least_label,
    spectral_norms,
    wald_quantile,
)
from commingle.shared.mechanisms.prediction import Planner, Prediction, RegressionTask, undoing

_MOST_DRAWS, _LEAST_DRAWS, _DRAWN_COLUMNS = 100, 6, 1600  # the noise of many columns varies little as a whole
_MOST_FITS, _FITTED_COLUMNS = 16, 200  # fits are dearer
_STEPS, _STEPS_OF_WIDE, _WIDE = 10, 3, 64
_SEED = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Draws:
    noise: Array  # (m, q + 2, q + 2) E
    centred: Array  # (m, q + 1, q + 1) K^T E K
    bound: float  # t, the 0.95 quantile of the spectral norm of the features' part of `centred`


class MomentsPlanner(Planner):
    def predict(self, terms: Terms, task: RegressionTask) -> Prediction:
        # Expected figures of the learner's `ols` and `shrunken` on a release of these terms.
        # Cov(b) = (n xx)^-1 Cov(v) (n xx)^-1 with v the noise of g - X b, around the fit on the private table.
        n, spread = _summed(terms), _spread(terms)
        release = _Release.of(terms, task)
        noise, T, unit = release.noise, release.T, release.unit
        c = np.append(-task.b, 1.0)
        slopes = noise.covariance(c)
        level = float(release.linear @ (noise.basis @ c) ** 2)  # its covariance with the slopes is small: left out
        draws = _draws(unit.tobytes(), (T.T @ _centring(release.mean)).tobytes())
        r_squared = _r_squared(task, n, spread * draws.noise, release)
        return Prediction(
            covariance=task.inverse @ slopes @ task.inverse / n**2,
            level_variance=level / n**2,
            r_squared=r_squared,
            r_squared_constant=-(1 + unit[0, -1] * (T[-1, -1] * spread) ** 2 / (n * task.yy)) / n,
            told_apart=self._tells_apart(terms, task, release),
            reliable=_smallest(n * task.xx, n, draws, spread, T) > ENOUGH * draws.bound * spread,
        )

    def tells_apart(self, terms: Terms, task: RegressionTask) -> bool:
        return self._tells_apart(terms, task, _Release.of(terms, task))

    def _tells_apart(self, terms: Terms, task: RegressionTask, release: "_Release") -> bool:
        g, q = _summed(terms) * task.xx @ task.b, len(task.b)
        expected = 1 + float(g @ np.linalg.solve(release.omega, g)) / q
        return expected > wald_quantile(q) and self.fits_across(terms)

    def count_error(self, terms: Terms) -> float:
        J = len(terms.parties)
        products = unit_variances(terms)[:J, :J]
        worst = float(products[~np.eye(J, dtype=bool)].max()) / (2 * allowed_rho(terms))
        counted = bucket_counts(np.full((2, 2), _summed(terms)), np.full((2, 2), sqrt(worst)), buckets=terms.table_rows)
        return float(counted.errors[0, 1])


NOISY_MOMENTS = MomentsPlanner()


def _summed(terms: Terms) -> int:
    return terms.n if terms.kept is None else max(1, terms.kept)


def unit_variances(terms: Terms) -> Array:
    """(p, p) variances of the entries at rho = 1/2, where sigma is the sensitivity; those of the intercept are first.

    For keyed parties the presences, counted as 1, stand in its place. Epsilon and n do not change them, and are all
    alike here: they are computed once for a whole plan.
    """
    shape = replace(terms, k=None, n=0, epsilon=0.0, buckets=None, bounds=None, delta_implementation=None)
    return _unit_variances(shape)


@lru_cache(maxsize=8)
def _unit_variances(terms: Terms) -> Array:
    moved = [
        block_sensitivity(terms, party, terms.adjacency) / (1 - Fraction(settled(party.first_stage_share) or 0))
        for party in terms.parties
    ]
    found = entry_variances(terms, [isqrt(max(ceil(m), 1) - 1) + 1 for m in moved])
    if not terms.keyed:
        return found
    present = np.isin(np.arange(len(found)), [own.start for own in places(terms).values()])
    order = np.argsort(~present, kind="stable")
    unit = np.where(present, 2**terms.fraction_bits / presence(terms.fraction_bits), 1.0)[order] ** 2
    return np.asarray(found[np.ix_(order, order)] * np.outer(unit, unit))


def _spread(terms: Terms) -> float:
    return 1 / sqrt(2 * allowed_rho(terms))


def _of(matrix: Array, task: RegressionTask, lead: int) -> Array:
    chosen = [*range(lead), *(lead + i for i in (*task.x, task.y))]
    return matrix[np.ix_(chosen, chosen)]


def _centring(mean: Array) -> Array:
    """K = (-mean; I): the centred moments of (x, y) carry the noise K^T E K."""
    return np.vstack([-mean, np.eye(len(mean))])


@lru_cache(maxsize=8)
def _draws(unit: bytes, basis: bytes) -> _Draws:
    size = isqrt(len(unit) // 8)
    m = min(_MOST_DRAWS, max(_LEAST_DRAWS, _DRAWN_COLUMNS // size))
    E = draw_noise(np.random.default_rng(_SEED), np.sqrt(np.frombuffer(unit).reshape(size, size)), m)
    K = np.frombuffer(basis).reshape(size, size - 1)
    centred = K.T @ E @ K
    norms = spectral_norms(centred[:, :-1, :-1])
    return _Draws(E, centred, float(np.quantile(norms, 1 - FAILURE)))


def _smallest(X: Array, n: int, draws: _Draws, spread: float, T: Array) -> float:
    e = spread * (draws.noise[:, 0] @ T.T)[:, 1:-1]
    noise = spread * draws.centred[:, :-1, :-1] - e[:, :, None] * e[:, None] / n
    return float(np.linalg.eigvalsh(X + noise)[:, 0].mean())


def _r_squared(task: RegressionTask, n: int, draws: Array, release: "_Release") -> float:
    mean = release.mean
    cross = task.xx @ task.b
    C = np.block([[task.xx, cross[:, None]], [cross, task.yy]])
    M = np.block([[np.ones((1, 1)), mean[None]], [mean[:, None], C + np.outer(mean, mean)]])
    fits = max(1, min(_MOST_FITS, _FITTED_COLUMNS // len(mean)))
    noises = [sign * E for E in draws[: (fits + 1) // 2] for sign in (1, -1)]  # in pairs: odd terms in E cancel
    exact = np.linalg.inv(release.T)
    found = [_fitted(n * exact @ M @ exact.T + E, n, release) for E in noises[:fits]]
    return float(np.mean([_explained(task, n, level - mean[-1] + float(b @ mean[:-1]), b) for level, b in found]))


@dataclass(frozen=True, slots=True, eq=False)
class _Release:
    """What the learner knows besides the moments."""

    noise: EntryNoise
    linear: Array  # for the columns of `noise`, variances of products with their intercept or presence
    omega: Array  # (q, q) Cov(v) at b = 0
    # (q + 2, q + 2) variances of published entries of (1, x, y) at rho = 1/2; for keyed columns about their means, as
    # if independent
    unit: Array
    spread: float
    T: Array  # (q + 2, q + 2) with (1, x, y) = T @ their published columns
    mean: Array  # (q + 1,) of (x, y); 0 if they are about it

    @classmethod
    def of(cls, terms: Terms, task: RegressionTask) -> Self:
        whose, spread, mean = _owners(terms, task), _spread(terms), np.append(task.mean, task.mean_y)
        lead, T = len(terms.parties) if terms.keyed else 1, _of(undoing(terms, task.law), task, 1)
        unit, basis = _of(unit_variances(terms), task, lead), T.T @ _centring(mean)
        noise = EntryNoise(unit * spread**2, np.vstack([np.eye(lead)[whose].T * basis[0], basis[1:]]))
        linear = noise.variance[[*range(lead), *whose], range(lead + len(whose))]
        omega = noise.covariance(np.append(np.zeros(len(task.b)), 1.0))
        if terms.keyed:
            unit = _about_means(unit, whose, np.linalg.solve(T, np.append(1.0, mean))[1:])
            mean, T[1:, 0] = np.zeros(len(mean)), 0.0
        return cls(noise, linear, omega, unit, spread, T, mean)


def _owners(terms: Terms, task: RegressionTask) -> NDArray[np.intp]:
    """(q + 1,) places of the parties of (x, y), all 0 where one intercept is theirs."""
    owner = np.repeat(np.arange(len(terms.parties)), [len(party.columns) for party in terms.parties])
    return owner[[*task.x, task.y]] * terms.keyed


def _about_means(unit: Array, whose: NDArray[np.intp], mean: Array) -> Array:
    """Variances of (E_ab - m_a E_ib - m_b E_aj + m_a m_b E_ij), i and j the presences of a and b, behind those of E_ia.

    Twice the second term, and no third, where b is a.
    """
    lead, square = len(unit) - len(whose), mean**2
    with_column, both = unit[whose, lead:], unit[np.ix_(whose, whose)]
    side = square[:, None] * with_column
    products = unit[lead:, lead:] + side + side.T + np.outer(square, square) * both
    products[np.diag_indices(len(whose))] += 2 * np.diag(side)
    linear = np.diag(with_column) + square * np.diag(both)
    return np.block([[np.zeros((1, 1)), linear[None]], [linear[:, None], products]])


def _fitted(published: Array, n: int, release: _Release) -> tuple[float, Array]:
    noise, T, variance = release.noise, release.T, release.unit * release.spread**2
    steps = _STEPS_OF_WIDE if len(T) > _WIDE else _STEPS
    M = search(EntryLikelihood.of(published, variance, n=n, basis=np.asarray(np.linalg.inv(T))), steps=steps)
    gram = T @ published @ T.T
    X = n * (M[1:, 1:] - np.outer(M[0, 1:], M[0, 1:]))
    slopes = Slopes.of(X[:-1, :-1], X[:-1, -1], X[-1, -1], omega=release.omega, exponent=exponent(len(X)))
    released, about_mean = gram[0, 1:] / n, np.append(np.zeros(len(gram) - 2), 1.0)
    g = gram[1:, -1] - gram[0, -1] * released
    error = sqrt(noise.form_variance(np.outer(about_mean, about_mean)))
    b = slopes.values * slopes.probability(g[:-1], least_label(g[-1], error, released[-1], n=n))
    return float(M[0, -1] - b @ M[0, 1:-1]), b


def _explained(task: RegressionTask, n: int, level: float, b: Array) -> float:
    """1 - ((1 + 1/n) (residual + (b - b0)^T xx (b - b0)) + level^2) / yy, `level` being the error of the mean."""
    gap = b - task.b
    return 1 - ((1 + 1 / n) * (task.residual + float(gap @ task.xx @ gap)) + level**2) / task.yy
