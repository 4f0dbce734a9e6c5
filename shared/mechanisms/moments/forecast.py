"""Moments: S + E with E of public entry variances (moments.md, Estimation).

Centred moments of (x, y), q features x and the label y, are n Sigma + K^T E K - e e^T / n exactly, with K = (-mean; I)
and e = E_0. the noise of the linear terms. Standard errors are those of the learner's `ols`, in closed form. What its
`shrunken` explains is averaged over a few draws of E: each is fitted as the learner does (its shares of t, s and j are
repeated because this package cannot import it), but with the one share that is best over all draws.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import isqrt, sqrt

import numpy as np

from commingle.shared.documents.spec import FRACTION_BITS
from commingle.shared.dp.calibration import calibrated_rho
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.mechanisms.moments.allocation import block_sensitivity
from commingle.shared.mechanisms.moments.block import entry_variances
from commingle.shared.planning.design import Array, Design, Share
from commingle.shared.planning.prediction import Prediction
from commingle.shared.planning.task import Task

_SHARES = (0.5, 0.7, 1.0, 1.4, 2.0)  # of t
_WHOLE = _SHARES.index(1.0)
_ENOUGH = 2.0  # times t
_FAILURE = 0.05
_Z95 = 1.6448536269514722
_MOST_DRAWS, _LEAST_DRAWS, _DRAWN_COLUMNS = 100, 6, 1600  # the noise of many columns varies little as a whole
_SEED = 0


@dataclass(frozen=True, slots=True)
class _Terms:
    """What the noise depends on besides rho."""

    parties: tuple[Share, ...]
    adjacency: Adjacency
    fraction_bits: int = FRACTION_BITS["moments"]


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


def predict(design: Design, task: Task) -> Prediction:
    """Expected figures of the learner's `ols` and `shrunken` on a release of this design.

    Cov(b) = (n xx)^-1 Cov(v) (n xx)^-1 with v the noise of g - X b, around the fit on the private table.
    """
    n, q = design.n, len(task.b)
    spread = 1 / sqrt(2 * calibrated_rho(design.calibration, epsilon=design.epsilon, delta=design.delta))
    index = [0, *(1 + i for i in (*task.x, task.y))]
    unit = _unit_variances(_Terms(design.shares, design.adjacency))[np.ix_(index, index)]
    mean = np.append(task.mean, task.mean_y)
    slopes, level = _covariances(unit * spread**2, mean, np.append(-task.b, 1.0))
    omega = _covariances(unit * spread**2, mean, np.append(np.zeros(q), 1.0))[0]
    g = n * task.xx @ task.b
    expected = 1 + float(g @ np.linalg.solve(omega, g)) / q
    draws = _draws(unit.tobytes(), mean.tobytes())
    r_squared, smallest = _shrunken(task, n, draws, spread, omega)
    return Prediction(
        covariance=task.inverse @ slopes @ task.inverse / n**2,
        level_variance=level / n**2,
        r_squared=r_squared,
        r_squared_constant=-(1 + unit[0, -1] * spread**2 / (n * task.yy)) / n,
        told_apart=expected > _mean_chi_squared_quantile(q),
        reliable=smallest > _ENOUGH * draws.bound * spread,
    )


@lru_cache(maxsize=8)  # epsilon and n leave it as it is: one for a whole plan
def _unit_variances(terms: _Terms) -> Array:
    """(p, p) variances of the entries at rho = 1/2, where sigma is the sensitivity."""
    moved = [block_sensitivity(terms, party, terms.adjacency) for party in terms.parties]
    return entry_variances(terms, [isqrt(max(m, 1) - 1) + 1 for m in moved])


def _covariances(variance: Array, mean: Array, c: Array) -> tuple[Array, float]:
    """Of v = K_x^T E u with u = K c, (q, q), and of the level E_0. u; what they share is small and left out.

    Cov(E u) has diagonal sum_l u_l^2 Var(E_kl) and u_k u_m Var(E_km) beside it.
    """
    u = np.append(-mean @ c, c)
    cov = np.outer(u, u) * variance
    np.fill_diagonal(cov, variance @ u**2)
    K = np.vstack([-mean, np.eye(len(mean))])[:, :-1]
    return K.T @ cov @ K, float(cov[0, 0])


@lru_cache(maxsize=8)
def _draws(unit: bytes, mean: bytes) -> _Draws:
    """At rho = 1/2, from the bytes of the variances over (1, x, y) and of the means of (x, y)."""
    means = np.frombuffer(mean)
    size = 1 + len(means)
    m = min(_MOST_DRAWS, max(_LEAST_DRAWS, _DRAWN_COLUMNS // size))
    upper = np.triu(np.random.default_rng(_SEED).standard_normal((m, size, size)))
    upper *= np.sqrt(np.frombuffer(unit).reshape(size, size))
    E = upper + np.triu(upper, 1).swapaxes(1, 2)
    K = np.vstack([-means, np.eye(len(means))])
    centred = K.T @ E @ K
    norms = np.abs(np.linalg.eigvalsh(centred[:, :-1, :-1])).max(axis=1)
    return _Draws(centred, E[:, 0, 1:], float(np.quantile(norms, 1 - _FAILURE)))


def _shrunken(task: Task, n: int, draws: _Draws, spread: float, omega: Array) -> tuple[float, float]:
    """Mean R^2 of s b_e + (1 - s) j b_r, and the mean least eigenvalue of X; omega is Cov(v) at b = 0."""
    e, t = spread * draws.linear, spread * draws.bound
    noise = spread * draws.centred - e[:, :, None] * e[:, None] / n
    g = n * task.xx @ task.b + noise[:, :-1, -1]
    eigenvalues, U = np.linalg.eigh(n * task.xx + noise[:, :-1, :-1])
    least = eigenvalues[:, :1]
    z = np.einsum("dij,di->dj", U, g)
    damped = [np.einsum("dij,dj->di", U, z / (eigenvalues + np.maximum(0, share * t - least))) for share in _SHARES]
    eager = min(damped, key=lambda b: _loss(task, n, e, b))
    F = np.sum(g * np.linalg.solve(omega, g.T).T, axis=1, keepdims=True) / g.shape[1]
    s = np.maximum(0, 1 - (_mean_chi_squared_quantile(g.shape[1]) / F) ** 2)
    j = np.maximum(0, 1 - (1 + sqrt(0.5 / g.shape[1])) / F)
    return 1 - _loss(task, n, e, s * eager + (1 - s) * j * damped[_WHOLE]) / task.yy, float(least.mean())


def _loss(task: Task, n: int, e: Array, b: Array) -> float:
    """Mean over draws of (1 + 1/n) (residual + (b - b0)^T xx (b - b0)) + ((e_y - e_x b) / n)^2."""
    gap = b - task.b
    slopes = task.residual + np.einsum("di,ij,dj->d", gap, task.xx, gap)
    level = (e[:, -1] - np.sum(e[:, :-1] * b, axis=1)) / n
    return float(np.mean((1 + 1 / n) * slopes + level**2))


def _mean_chi_squared_quantile(q: int) -> float:
    """The 0.95 quantile of chi^2_q / q: (1 - a + z sqrt(a))^3, a = 2/9q (Wilson, Hilferty 1931)."""
    a = 2 / (9 * q)
    return (1 - a + _Z95 * sqrt(a)) ** 3
