"""Moments: S + E with E of public entry variances (docs/design/estimation.md#noisy-moments).

Centred moments of (x, y), q features x and the label y, are n Sigma + K^T E K - e e^T / n exactly, with K = (-mean; I)
and e the noise of the linear terms, row 0 of E. Standard errors are those of the learner's `ols`, in closed form. What
its `shrunken` explains is averaged over a few draws of E: each is fitted as the learner does, but with the one share of
t that is best over all draws.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import isqrt, sqrt

import numpy as np

from commingle.shared.dp.gaussian import calibrated_rho
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.estimation.estimator import FAILURE
from commingle.shared.estimation.system import EntryNoise
from commingle.shared.mechanisms.moments.allocation import block_sensitivity
from commingle.shared.mechanisms.moments.block import NoisyMoments, entry_variances
from commingle.shared.mechanisms.moments.estimators import SHARES, wald_quantile, weights
from commingle.shared.mechanisms.moments.fit import ENOUGH
from commingle.shared.mechanisms.moments.signal import draw_noise, spectral_norms
from commingle.shared.planning.design import Array, PartyDesign, ReleaseDesign
from commingle.shared.planning.prediction import Planner, Prediction
from commingle.shared.planning.task import RegressionTask

_WHOLE = SHARES.index(1.0)
_MOST_DRAWS, _LEAST_DRAWS, _DRAWN_COLUMNS = 100, 6, 1600  # the noise of many columns varies little as a whole
_SEED = 0


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the noise depends on besides rho."""

    parties: tuple[PartyDesign, ...]
    adjacency: Adjacency
    fraction_bits: int = NoisyMoments.fraction_bits


@dataclass(frozen=True, slots=True, eq=False)
class _Draws:
    """Some draws of the noise in centred moments.

    Attributes:
        centred: (m, q + 1, q + 1) K^T E K.
        linear: (m, q + 1) e.
        bound: t, the 0.95 quantile of the spectral norm of the features' part of `centred`.
    """

    centred: Array
    linear: Array
    bound: float


class MomentsPlanner(Planner):
    """Predicts `ols` and `shrunken` on noisy moments."""

    def predict(self, design: ReleaseDesign, task: RegressionTask) -> Prediction:
        """Expected figures of the learner's `ols` and `shrunken` on a release of this design.

        Cov(b) = (n xx)^-1 Cov(v) (n xx)^-1 with v the noise of g - X b, around the fit on the private table.
        """
        n, q = design.n, len(task.b)
        spread = 1 / sqrt(2 * calibrated_rho(design.calibration, epsilon=design.epsilon, delta=design.delta))
        index = [0, *(1 + i for i in (*task.x, task.y))]
        unit = _unit_variances(_Terms(design.shares, design.adjacency))[np.ix_(index, index)]
        mean = np.append(task.mean, task.mean_y)
        noise = EntryNoise(unit * spread**2, _centring(mean))
        c = np.append(-task.b, 1.0)
        slopes, omega = noise.covariance(c), noise.covariance(np.append(np.zeros(q), 1.0))
        level = float(noise.variance[0] @ (noise.basis @ c) ** 2)  # what it shares with the slopes is small: left out
        g = n * task.xx @ task.b
        expected = 1 + float(g @ np.linalg.solve(omega, g)) / q
        draws = _draws(unit.tobytes(), mean.tobytes())
        r_squared, smallest = _shrunken(task, n, draws, spread, omega)
        return Prediction(
            covariance=task.inverse @ slopes @ task.inverse / n**2,
            level_variance=level / n**2,
            r_squared=r_squared,
            r_squared_constant=-(1 + unit[0, -1] * spread**2 / (n * task.yy)) / n,
            told_apart=expected > wald_quantile(q),
            reliable=smallest > ENOUGH * draws.bound * spread,
        )


NOISY_MOMENTS = MomentsPlanner()


@lru_cache(maxsize=8)  # epsilon and n leave it as it is: one for a whole plan
def _unit_variances(terms: _Terms) -> Array:
    """(p, p) variances of the entries at rho = 1/2, where sigma is the sensitivity."""
    moved = [block_sensitivity(terms, party, terms.adjacency) for party in terms.parties]
    return entry_variances(terms, [isqrt(max(m, 1) - 1) + 1 for m in moved])


def _centring(mean: Array) -> Array:
    """K = (-mean; I): the centred moments of (x, y) carry the noise K^T E K."""
    return np.vstack([-mean, np.eye(len(mean))])


@lru_cache(maxsize=8)
def _draws(unit: bytes, mean: bytes) -> _Draws:
    """At rho = 1/2, from the bytes of the variances over (1, x, y) and of the means of (x, y)."""
    means = np.frombuffer(mean)
    size = 1 + len(means)
    m = min(_MOST_DRAWS, max(_LEAST_DRAWS, _DRAWN_COLUMNS // size))
    E = draw_noise(np.random.default_rng(_SEED), np.sqrt(np.frombuffer(unit).reshape(size, size)), m)
    K = _centring(means)
    centred = K.T @ E @ K
    norms = spectral_norms(centred[:, :-1, :-1])
    return _Draws(centred, E[:, 0, 1:], float(np.quantile(norms, 1 - FAILURE)))


def _shrunken(task: RegressionTask, n: int, draws: _Draws, spread: float, omega: Array) -> tuple[float, float]:
    """Mean R^2 of s b_e + (1 - s) j b_r, and the mean least eigenvalue of X; omega is Cov(v) at b = 0."""
    e, t = spread * draws.linear, spread * draws.bound
    noise = spread * draws.centred - e[:, :, None] * e[:, None] / n
    g = n * task.xx @ task.b + noise[:, :-1, -1]
    eigenvalues, U = np.linalg.eigh(n * task.xx + noise[:, :-1, :-1])
    least = eigenvalues[:, :1]
    z = (g[:, None] @ U)[:, 0]
    damped = [(U @ (z / (eigenvalues + np.maximum(0, share * t - least)))[..., None])[..., 0] for share in SHARES]
    eager = min(damped, key=lambda b: _loss(task, n, e, b))
    F = np.sum(g * np.linalg.solve(omega, g.T).T, axis=1, keepdims=True) / g.shape[1]
    s, j = weights(F, g.shape[1])
    return 1 - _loss(task, n, e, s * eager + (1 - s) * j * damped[_WHOLE]) / task.yy, float(least.mean())


def _loss(task: RegressionTask, n: int, e: Array, b: Array) -> float:
    """Mean over draws of (1 + 1/n) (residual + (b - b0)^T xx (b - b0)) + ((e_y - e_x b) / n)^2."""
    gap = b - task.b
    slopes = task.residual + np.sum(gap @ task.xx * gap, axis=1)
    level = (e[:, -1] - np.sum(e[:, :-1] * b, axis=1)) / n
    return float(np.mean((1 + 1 / n) * slopes + level**2))
