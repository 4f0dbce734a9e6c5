"""The posterior mode of a release's means and covariance: the one estimate that every regularised view reads.

M = S / n = F F^T with F = ((1, 0), (mean, L)) and covariance C = L L^T, which is positive definite whatever L. The mode
minimises, with R the correlations of C (docs/design/estimation.md#posterior-mode),

    loss(M) - a log|R| + sum (log C_jj - mu)^2 / 2 s^2 + sum mean_j^2 / 2 t^2 + sum [M_jj - 1]_+^2 / 2 w^2
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from commingle.shared.estimation.likelihood import EntryLikelihood, Likelihood, WishartLikelihood
from commingle.shared.estimation.prepared import Array, PreparedMoments

_VARIANCE, _SPREAD = 0.1, 2.0  # exp(mu) and s: of a column encoded into [-1, 1]
_MEAN_VARIANCE = 0.5  # t^2: the least with which no mean in [-1, 1] is expected to fare worse than as released
_OVERSHOOT = 0.1  # w: an encoded value's square is at most 1
_MEMORY = 20  # steps that L-BFGS remembers
_TOLERANCE = 1e-9
_MOST_STEPS = 120  # 40 suffice but where there are hardly more subjects than columns
_LEAST_SPREAD = 1e-9  # of the largest


def exponent(columns: int) -> float:
    """The a of the prior |R|^a, that of Lewandowski, Kurowicka and Joe (2009) with eta = 1 + a."""
    return 1 + 0.6 * columns


def regularised(prepared: PreparedMoments) -> PreparedMoments:
    """A release's moments at the posterior mode, as of n rows without noise; without noise those of the release."""
    if not prepared.V.any() and (prepared.entry_variance is None or not prepared.entry_variance.any()):
        return prepared
    M = posterior_mode(likelihood_of(prepared))
    nothing = np.zeros_like(M)
    entries = None if prepared.entry_variance is None else nothing
    return replace(prepared, gram=prepared.n * M, V=nothing, root=nothing, rows=prepared.n, entry_variance=entries)


def likelihood_of(prepared: PreparedMoments) -> Likelihood:
    """The likelihood of the private table's moments, given a noisy release.

    Published rows count as draws of a normal law, those of dgm too. Moments have independent normal noise of every
    entry in the published columns, B @ encoded ones.
    """
    if prepared.entry_variance is None:
        return WishartLikelihood.of(prepared.gram, prepared.V, rows=prepared.rows, n=prepared.n)
    B = np.linalg.inv(prepared.mixing).astype(np.float64)
    return EntryLikelihood.of(B @ prepared.gram @ B.T, prepared.entry_variance, n=prepared.n, basis=B)


@lru_cache(maxsize=16)  # a release is fitted many times
def posterior_mode(likelihood: Likelihood) -> Array:
    """M at the mode, (p, p), not to be written to."""
    return search(likelihood, steps=_MOST_STEPS)


def search(likelihood: Likelihood, *, steps: int) -> Array:
    """M, (p, p), after at most so many steps of L-BFGS from a rough mode; ten leave little to gain."""
    from scipy.optimize import minimize  # noqa: PLC0415 - loads slowly, and only regularised views need it

    objective = Objective.of(likelihood)
    found = minimize(
        objective,
        np.zeros(objective.size),
        jac=True,
        method="L-BFGS-B",
        options={"maxcor": _MEMORY, "ftol": _TOLERANCE, "gtol": 0.0, "maxiter": steps, "maxfun": 2 * steps},
    )
    F = objective.factor(found.x)
    mode: Array = F @ F.T
    mode.flags.writeable = False
    return mode


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """What is minimised, as a function of the lower triangle T of F = start T, its diagonal as logarithms.

    Attributes:
        start: (p, p) a first F.
        below: rows and columns of the entries of T that are free: all but that of the intercept.
        unit: of each free entry, about one over the root of its curvature.
    """

    likelihood: Likelihood
    start: Array
    below: tuple[NDArray[np.intp], NDArray[np.intp]]
    unit: Array

    @classmethod
    def of(cls, likelihood: Likelihood) -> "Objective":
        """Beginning at `first_factor`."""
        start, unit = first_factor(likelihood)
        rows, columns = np.tril_indices(len(start))
        below = (rows[1:].astype(np.intp), columns[1:].astype(np.intp))
        return cls(likelihood, start, below, unit[below])

    @property
    def size(self) -> int:
        """Free numbers."""
        return len(self.unit)

    def factor(self, x: Array) -> Array:
        """F, (p, p)."""
        return self.start @ self._triangle(x)

    def __call__(self, x: Array) -> tuple[float, Array]:
        """Its value and derivative, as x."""
        T = self._triangle(x)
        F = self.start @ T
        value, Q = self.likelihood.loss(F @ F.T)
        prior, slope = _prior(F)
        gradient = self.start.T @ (2 * Q @ F + slope)
        diagonal = np.einsum("ii->i", gradient)
        diagonal *= np.diag(T)
        diagonal -= 2 * exponent(len(T) - 1)
        # - a log|C| is linear in the logarithms: its part at `start` is a constant
        logarithms = float(np.log(np.diag(T)).sum())
        return value + prior - 2 * exponent(len(T) - 1) * logarithms, gradient[self.below] * self.unit

    def _triangle(self, x: Array) -> Array:
        T = np.zeros_like(self.start)
        T[self.below] = x * self.unit
        np.fill_diagonal(T, np.exp(np.diag(T)))
        return T


def _prior(F: Array) -> tuple[float, Array]:
    """Minus the logarithm of the prior but for the term in log|C|, and its derivative by F, (p, p)."""
    mean, L = F[1:, 0], F[1:, 1:]
    variance = np.sum(L * L, axis=1)
    log = np.log(variance)
    a, off = exponent(len(mean)), (log - math.log(_VARIANCE)) / _SPREAD**2
    over = np.maximum(0.0, variance + mean**2 - 1) / _OVERSHOOT**2
    value = a * log.sum() + _SPREAD**2 * (off @ off) / 2 + (mean @ mean) / (2 * _MEAN_VARIANCE)
    slope = np.zeros_like(F)
    slope[1:, 1:] = 2 * ((a + off) / variance + over)[:, None] * L
    slope[1:, 0] = mean / _MEAN_VARIANCE + 2 * over * mean
    return float(value + _OVERSHOOT**2 * (over @ over) / 2), slope


def first_factor(likelihood: Likelihood) -> tuple[Array, Array]:
    """The F of a rough mode, (p, p), and units of T, (p, p), that make the curvature there about 1.

    Where all entries have noise e after scaling and variances have no prior of their own, every eigenvalue c of the
    rough covariance becomes the root r of r (r - c) = 2 a e^2 =: 1, and the curvature along T_kl is a (1 + r_k r_l).
    """
    means, a = likelihood.rough[0, 1:], exponent(len(likelihood.rough) - 1)
    spread = np.maximum(likelihood.spread, _LEAST_SPREAD * likelihood.spread.max())
    mean = np.clip(means, -1, 1) / (1 + spread[0, 1:] ** 2 / _MEAN_VARIANCE)
    log = np.log(spread[1:, 1:] * math.sqrt(2 * a))
    scale = np.exp(log.mean(axis=1) - log.mean() / 2)  # scale_k scale_l is about the noise of entry kl
    C = likelihood.rough[1:, 1:] - np.outer(means, means)
    values, vectors = np.linalg.eigh(C / np.outer(scale, scale))
    lifted = np.hypot(values, 2)
    roots = np.where(values > 0, (values + lifted) / 2, 2 / (lifted - np.minimum(values, 0)))
    F, unit = np.zeros_like(spread), np.ones_like(spread)
    within = np.minimum(scale, math.sqrt(_VARIANCE))  # where noise is all there is, the prior knows the variance
    F[0, 0], F[1:, 0], F[1:, 1:] = 1.0, mean, within[:, None] * vectors * np.sqrt(roots)
    weight = 1 / spread[0, 1:] ** 2 + mean**2 @ (1 / spread[1:, 1:] ** 2)
    unit[1:, 0] = 1 / np.sqrt(1 + weight @ F[1:, 1:] ** 2)
    unit[1:, 1:] = 1 / np.sqrt(a * (1 + np.outer(roots, roots)))
    return F, unit
