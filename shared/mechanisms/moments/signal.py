"""How much signal noisy moments have about one regression, and how much noise."""

import math
from functools import lru_cache

import numpy as np
from scipy.special import chdtrc, chdtri

from commingle.shared.estimation.diagnostics import SIGNIFICANCE
from commingle.shared.estimation.entry_noise import EntryNoise
from commingle.shared.estimation.estimator import FAILURE, Signal, inverse
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.system import Centred, System, centre

_BATCHES, _BATCH = 10, 20  # draws of the noise: batches bound the memory
_SEED = 0  # public, as the variances are: the same release gives the same bound to everybody


def measure(system: System) -> Signal:
    """The facts about one system of noisy moments.

    No noise is left in their expectation, so both roots are infinite. The F statistic is Wald's test that no feature is
    associated with the label in the private table, over its q degrees of freedom.
    """
    c = centre(system)
    q = len(c.g)
    if q == 0:
        return Signal(c, c.X, math.inf, math.inf, math.nan, math.nan, 0.0, system.degrees_of_freedom, 1.0)
    eigenvalues = np.linalg.eigvalsh(c.X)
    statistic = _wald(system, c)
    return Signal(
        centred=c,
        inverse=inverse(c.X),
        root=math.inf,
        feature_root=math.inf,
        smallest=float(eigenvalues[0]),
        largest=float(eigenvalues[-1]),
        f_statistic=statistic,
        f_degrees=system.degrees_of_freedom,
        f_p_value=float(chdtrc(q, q * statistic)),
    )


def entries_of(system: System) -> EntryNoise:
    """The noise of a system of noisy moments; it is a fault of the caller to ask for that of rows."""
    if system.entries is None:
        raise ValueError("only moments come with the variances of their entries")
    return system.entries


def _wald(system: System, c: Centred) -> float:
    """g^T Omega_0^-1 g / q, Omega_0 the covariance of the noise in the centred g where all slopes are 0."""
    if not entries_of(system).variance.any():
        return math.inf
    return float(c.g @ np.linalg.solve(null_covariance(system, c), c.g)) / len(c.g)


def null_covariance(system: System, c: Centred) -> Array:
    """Omega_0, (q, q): the covariance of the noise in the centred g where all slopes are 0."""
    return np.asarray(c.centring @ entries_of(system).covariance(c.about_mean) @ c.centring.T)


def wald_quantile(q: int) -> float:
    """F_.95, the quantile of chi^2_q / q."""
    return float(chdtri(q, SIGNIFICANCE)) / q


def noise_bound(noise: EntryNoise, c: Centred) -> float:
    """With probability 0.95 the noise in the centred X has no eigenvalue beyond +-t.

    See docs/design/estimation.md#noisy-moments.

    By Monte Carlo from the public variances, to first order: the noise in X is K^T E K, K = (basis of the terms) T^T.
    """
    K = noise.basis[:, :-1] @ c.centring.T
    deviation = np.sqrt(noise.variance)
    return _norm_quantile(deviation.tobytes(), K.tobytes(), len(deviation)) if K.size else 0.0


@lru_cache(maxsize=256)  # 200 decompositions: worth keeping between fits of the same features
def _norm_quantile(deviation: bytes, basis: bytes, size: int) -> float:
    """0.95 quantile of the spectral norm of K^T E K, from the bytes of sqrt(Var(E)), (m, m), and K, (m, q)."""
    spread = np.frombuffer(deviation).reshape(size, size)
    K = np.frombuffer(basis).reshape(size, -1)
    random = np.random.default_rng(_SEED)
    norms = [spectral_norms(K.T @ draw_noise(random, spread, _BATCH) @ K) for _ in range(_BATCHES)]
    return float(np.quantile(norms, 1 - FAILURE))


def draw_noise(random: np.random.Generator, deviation: Array, count: int) -> Array:
    """Draws of E, (count, m, m), symmetric, from the standard deviations of its entries (m, m)."""
    upper = np.triu(deviation * random.standard_normal((count, *deviation.shape)))
    return np.asarray(upper + np.triu(upper, 1).swapaxes(1, 2))


def spectral_norms(symmetric: Array) -> Array:
    """Of each of (count, q, q)."""
    return np.asarray(np.abs(np.linalg.eigvalsh(symmetric)).max(axis=1))
