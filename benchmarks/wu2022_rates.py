"""The rates of theorems 1 and 2 of Wu et al. 2022: how errors fall with n, as far as n has to go until they do.

The design of `wu2022_synthetic` with w fixed and S = n E[a a^T]: at these n the rows' own chance is nothing beside the
noise. DGM-OLS is to fall like n^(-1/2), RMGM-OLS with k = n^(2/3) like n^(-1/3), both but for logarithms and factors of
sigma and d.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log
from typing import Any

import numpy as np

from benchmarks.moments_noise import entry_variance, noisy_moments
from benchmarks.release_law import Array, dgm_gram, rmgm_gram
from benchmarks.reporting import heading, row
from benchmarks.wu2022_methods import DELTA, dgm_ols, noise_variances, ols
from benchmarks.wu2022_synthetic import FEATURES, SIZES, attributes_of, make_table, shares_of
from commingle.services.fit import FitRequest, PreparedMoments, fit_prepared

LARGE = tuple(10**power for power in range(5, 13))
EXPONENTS = {"DGM-OLS": -1 / 2, "RMGM-OLS k=n^(2/3)": -1 / 3}
_METHODS = ("DGM-OLS", "RMGM-OLS k=n^(2/3)", "RMGM-OLS best k", "Commingle moments")
_KS = tuple(round(10 ** (power / 2)) for power in range(4, 17))  # 100 to 10^8


def expected_moments(weights: Array) -> Array:
    """E[a a^T] of features U(-1, 1) and their label, (11, 11)."""
    cross = weights / 3
    return np.block([[np.eye(FEATURES) / 3, cross[:, None]], [cross[None], np.array([[weights @ cross]])]])


def errors_at(n: int, weights: Array, epsilon: float, draw: np.random.Generator) -> dict[str, float]:
    """||w_hat - w|| of one release by every method."""
    S, noise = n * expected_moments(weights), noise_variances(SIZES, epsilon)
    fits = {"DGM-OLS": dgm_ols(dgm_gram(S, noise, n, draw), noise, n)}
    for k in {round(n ** (2 / 3)), *_KS}:
        fits[f"k={k}"] = ols(rmgm_gram(S, noise, k, draw), n)
    fits["RMGM-OLS k=n^(2/3)"] = fits[f"k={round(n ** (2 / 3))}"]
    whole = np.zeros((FEATURES + 2, FEATURES + 2))
    whole[0, 0], whole[1:, 1:] = n, S
    release = noisy_moments(whole, entry_variance(shares_of(), epsilon=epsilon, delta=DELTA), attributes_of(), draw)
    fit = fit_prepared(PreparedMoments.of(release, attributes_of()), FitRequest(target="y", estimator="shrunken"))
    fits["Commingle moments"] = fit.coefficients[1:]
    return {name: float(np.linalg.norm(found - weights)) for name, found in fits.items()}


def rates(sizes: Sequence[int], epsilon: float, *, trials: int) -> list[dict[str, Any]]:
    """Median errors over n; the best k is the one with the least median."""
    cells = []
    for n in sizes:
        found: dict[str, list[float]] = {}
        for trial in range(trials):
            draw = np.random.default_rng([n % 2**32, trial, 8])
            weights = make_table(1, np.random.default_rng([trial, 9])).weights
            for name, error in errors_at(n, weights, epsilon, draw).items():
                found.setdefault(name, []).append(error)
        medians = {name: float(np.median(errors)) for name, errors in found.items()}
        best = min((name for name in medians if name in {f"k={k}" for k in _KS}), key=medians.__getitem__)
        medians["RMGM-OLS best k"] = medians[best]
        kept = {name: medians[name] for name in _METHODS}
        cells.append({"n": n, "best_k": int(best.removeprefix("k=")), "median": kept, "epsilon": epsilon})
    return cells


def markdown(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Errors, and in brackets the exponent since the n before."""
    lines = heading("n", *_METHODS, "best k")
    slopes: dict[str, list[str]] = {name: ["", *_exponents(cells, name)] for name in _METHODS}
    for place, cell in enumerate(cells):
        found = [f"{cell['median'][m]:.3g}{slopes[m][place]}" for m in _METHODS]
        lines.append(row(f"{cell['n']:.0e}".replace("e+", "e"), *found, f"{cell['best_k']:,}"))
    return lines


def _exponents(cells: Sequence[dict[str, Any]], method: str) -> list[str]:
    pairs = [(c["n"], c["median"][method]) for c in cells]
    return [f" ({log(b / a) / log(m / n):.2f})" for (n, a), (m, b) in pairwise(pairs)]
