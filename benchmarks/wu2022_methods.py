"""The methods of Wu et al. 2022 as published, and Commingle's on the same rows.

Theirs: their noise, their choices of k, their four fits. Label last among the p columns; no intercept. Hessians are
divided by n and get lambda I, lambda = 1e-5. Ours fit an intercept.
"""

from collections.abc import Sequence
from math import log, sqrt

import numpy as np

from benchmarks.release_law import Array, dgm_gram, entry_variance, moments_release, rmgm_gram
from commingle.services.fit import FitRequest, PreparedMoments, fit_prepared
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.spec import ReleaseSpec

DELTA = 1e-5
RIDGE = 1e-5
GRID = (100, 300, 1000, 3000, 10000)
LABEL = "y"


def multiplier(epsilon: float) -> float:
    """Sigma = sqrt(2 ln(1.25/delta))/epsilon (Dwork, Roth 2014, theorem A.1), which the paper uses beyond epsilon 1."""
    return sqrt(2 * log(1.25 / DELTA)) / epsilon


def noise_variances(sizes: Sequence[int], epsilon: float) -> Array:
    """4 d_j sigma^2 for each of the d_j columns of party j, (p,): replace-one neighbours, attributes bounded by 1."""
    return np.concatenate([np.full(size, 4 * size * multiplier(epsilon) ** 2) for size in sizes])


def sketch_size(n: int) -> int:
    """The k of theorem 2."""
    return round(float(n ** (2 / 3)))


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


def published(S: Array, n: int, sizes: Sequence[int], epsilon: float, draw: np.random.Generator) -> dict[str, Array]:
    """Coefficients of every published private fit, of RMGM-OLS with the k of theorem 2 and of the grid."""
    noise = noise_variances(sizes, epsilon)
    G = dgm_gram(S, noise, n, draw)
    sketches = {"n^(2/3)": sketch_size(n), **{str(k): k for k in GRID}}
    fits = {"BGM-OLS": ols(G, n), "DGM-OLS": dgm_ols(G, noise, n)}
    return fits | {f"RMGM-OLS k={name}": ols(rmgm_gram(S, noise, k, draw), n) for name, k in sketches.items()}


def ours(spec: ReleaseSpec, moments: SecondMoments, estimators: Sequence[str]) -> dict[str, Array]:
    """Coefficients of Commingle's fits of one release, the intercept first, 0 where a fit has none."""
    prepared, found = PreparedMoments.of(moments, spec.terms.attributes), {}
    for name in estimators:
        fitted = fit_prepared(prepared, FitRequest(target=LABEL, estimator=name)).coefficients
        found[f"Commingle {name}"] = np.pad(fitted, (0, len(spec.terms.attributes) - len(fitted)))
    return found


def of_moments(
    S: Array, attributes: Sequence[Attribute], sizes: Sequence[int], epsilon: float, draw: np.random.Generator
) -> Array:
    """Coefficients of `shrunken` on one `moments` release of the same parties; S has the intercept first."""
    prepared = moments_release(S, entry_variance(attributes, sizes, epsilon=epsilon), attributes, draw)
    return fit_prepared(prepared, FitRequest(target=LABEL, estimator="shrunken")).coefficients


def eigenvalues(
    S: Array, n: int, sizes: Sequence[int], truth: Array, *, trials: int, draw: np.random.Generator
) -> dict[str, list[tuple[float, float]]]:
    """(smallest |eigenvalue| of the Hessian, ||w_hat - w||) of DGM-OLS and BGM-OLS, `trials` releases at epsilon 1."""
    noise = noise_variances(sizes, 1.0)
    points: dict[str, list[tuple[float, float]]] = {"DGM-OLS": [], "BGM-OLS": []}
    for _ in range(trials):
        G = dgm_gram(S, noise, n, draw)
        for name, H, found in (
            ("DGM-OLS", debiased_hessian(G, noise, n), dgm_ols(G, noise, n)),
            ("BGM-OLS", hessian(G, n), ols(G, n)),
        ):
            least, error = np.abs(np.linalg.eigvalsh(H)).min(), np.linalg.norm(found - truth)
            points[name].append((float(f"{least:.4g}"), float(f"{error:.4g}")))  # no more than a picture shows
    return points
