"""The methods of Wu et al. 2022 as published: their noise, their choices of k, their four fits.

Label last among the p columns; no intercept. Hessians are divided by n and get lambda I, lambda = 1e-5.
"""

from collections.abc import Callable, Mapping, Sequence
from math import log, sqrt

import numpy as np

from benchmarks.release_law import Array

DELTA = 1e-5
RIDGE = 1e-5
GRID = (100, 300, 1000, 3000, 10000)


def multiplier(epsilon: float) -> float:
    """Sigma = sqrt(2 ln(1.25/delta))/epsilon (Dwork, Roth 2014, theorem A.1), which the paper uses beyond epsilon 1."""
    return sqrt(2 * log(1.25 / DELTA)) / epsilon


def noise_variances(sizes: Sequence[int], epsilon: float) -> Array:
    """4 d_j sigma^2 for each of the d_j columns of party j, (p,): replace-one neighbours, attributes bounded by 1."""
    return np.concatenate([np.full(size, 4 * size * multiplier(epsilon) ** 2) for size in sizes])


RULES: Mapping[str, Callable[[int, float], int]] = {
    "sqrt(n)/sigma": lambda n, epsilon: max(1, round(sqrt(n) / multiplier(epsilon))),
    "10 sqrt(n)/sigma": lambda n, epsilon: max(1, round(10 * sqrt(n) / multiplier(epsilon))),
    "n^(2/3)": lambda n, epsilon: round(n ** (2 / 3)),  # noqa: ARG005 - all rules have one signature
}


def hessian(G: Array, n: int) -> Array:
    """G_xx/n + lambda I, (p - 1, p - 1)."""
    return G[:-1, :-1] / n + RIDGE * np.eye(len(G) - 1)


def ols(G: Array, n: int) -> Array:
    """(G_xx/n + lambda I)^-1 G_xy/n: OLS on S itself, BGM-OLS on a dgm release, RMGM-OLS on an rmgm release."""
    return np.asarray(np.linalg.solve(hessian(G, n), G[:-1, -1] / n), dtype=np.float64)


def debiased_hessian(G: Array, noise: Array, n: int) -> Array:
    """G_xx/n - V_xx + lambda I: DGM-OLS's, whose eigenvalues may come arbitrarily close to 0."""
    return hessian(G, n) - np.diag(noise[:-1])


def dgm_ols(G: Array, noise: Array, n: int) -> Array:
    """(G_xx/n - V_xx + lambda I)^-1 G_xy/n."""
    return np.asarray(np.linalg.solve(debiased_hessian(G, noise, n), G[:-1, -1] / n), dtype=np.float64)
