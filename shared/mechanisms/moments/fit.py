"""How noisy moments are fitted: S_hat = S + E, E of known entry variances, from which nothing is to be subtracted.

See docs/design/estimation.md#noisy-moments, and for prediction docs/prediction.md#on-moments-releases: the slopes of
the posterior mode, as far as there is reason to believe in any. Moments over keyed subjects, of rmgm as well, come to
pairwise ones (docs/design/keyed.md).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from scipy.special import chdtrc, chdtri, expit

from commingle.shared.estimation.diagnostics import SIGNIFICANCE
from commingle.shared.estimation.entry_noise import Array, EntryNoise
from commingle.shared.estimation.method import (
    CONSTANT,
    FAILURE,
    Diagnostics,
    Errors,
    Estimator,
    FitMethod,
    IntervalFor,
    Residual,
    Signal,
    damped,
    inverse,
    linear,
)
from commingle.shared.estimation.pairwise import PairNoise
from commingle.shared.estimation.posterior import exponent, largest_log_odds, most_variance, variance_levels
from commingle.shared.estimation.system import Centred, System, centre

_BATCHES, _BATCH = 10, 20  # draws of the noise: batches bound the memory
_SEED = 0  # public, as the variances are: the same release gives everybody the same bound and fit
_DRAWS = 256
_LEAST = 1e-12
ENOUGH = 2.0  # times t; intervals were measured to cover 0.945 to 0.961 above 1.8 and to be too wide below


def measure(system: System) -> Signal:
    """The facts about one system of noisy moments.

    Their expectation has no noise left, so both roots are infinite. The F statistic is Wald's test that no feature is
    associated with the label in the private table, over its q degrees of freedom.
    """
    c = centre(system)
    q = len(c.g)
    if q == 0:
        return Signal(c, c.X, math.inf, math.inf, math.nan, math.nan, 0.0, 1.0)
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
        f_p_value=float(chdtrc(q, q * statistic)),
    )


def entries_of(system: System) -> EntryNoise:
    """The noise of a system of noisy moments. To ask for it in noisy rows is a fault of the caller."""
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

    By Monte Carlo from the public variances, to first order: the noise in X is K^T E K, K = (basis of the terms) T^T
    (docs/design/estimation.md#noisy-moments).
    """
    K = noise.basis[:, :-1] @ c.centring.T
    deviation = np.sqrt(noise.variance)
    return norm_quantile(deviation.tobytes(), K.tobytes(), len(deviation)) if K.size else 0.0


@lru_cache(maxsize=256)  # 200 decompositions: worth keeping between fits of the same features
def norm_quantile(deviation: bytes, basis: bytes, size: int) -> float:
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
    return np.asarray(np.abs(np.linalg.eigvalsh(symmetric)).max(axis=1))


def shrunken(system: System, signal: Signal) -> tuple[Array, Array]:
    """H and b: slopes P b_m at the means of the mode, b_m being its slopes and P the probability that there are any.

    The mode's prior is about that of slopes b ~ N(0, tau X^-1), tau = (residual of the label) / a. That makes the
    derivative of b by the cross moments P (X + Omega_0 / tau)^-1.
    """
    c = signal.centred
    if not entries_of(system).variance.any():
        H = c.with_intercept(inverse(c.X))
        return H, H @ system.xy
    mode, omega = centre(system.regularised()), null_covariance(system, c)
    found = Slopes.of(mode.X, mode.g, mode.yy, omega=omega, exponent=exponent(len(system.prepared.gram) - 1))
    error = math.sqrt(entries_of(system).form_variance(np.outer(c.about_mean, c.about_mean)))
    P = found.probability(c.g, least_label(c.yy, error, c.label_mean if system.intercept else None, n=system.n))
    H = c.with_intercept(P * inverse(mode.X + omega / found.tau))
    b = P * found.values
    return H, b if mode.means is None else np.append(mode.label_mean - b @ mode.means, b)


def least_label(moment: float, error: float, mean: float | None, *, n: int) -> float:
    """The label's centred moment against which losses count: the harmonic mean of what it may be.

    `moment` is the released one, `error` the standard deviation of its noise, and `mean` the label's mean if its values
    lie in [-1, 1].
    """
    bound = math.inf if mean is None else most_variance(mean)
    levels = np.maximum(variance_levels(moment / n, error / n, bound), _LEAST)
    return n * len(levels) / float(np.sum(1 / levels))


@dataclass(frozen=True, slots=True, eq=False)
class Slopes:
    """Slopes of the mode, and the evidence of a released g ~ N(X b, Omega_0): b ~ N(0, tau X^-1) against b = 0."""

    values: Array  # (q,) b_m
    tau: float  # variance of a slope on a feature of moment 1
    basis: Array  # (q, q) T with T^T Omega_0 T = I and T^T X T = diag(strength)
    strength: Array  # (q,) expected square of z = T^T g over tau
    left: Array  # (q,) tau strength / (1 + tau strength), the part of z that shrinkage leaves

    @classmethod
    def of(cls, X: Array, g: Array, yy: float, *, omega: Array, exponent: float) -> Self:
        """For the mode's centred moments, (q, q), (q,) and a number, Omega_0, (q, q), and the prior's exponent a."""
        from scipy.linalg import eigh  # noqa: PLC0415 - loads slowly, and no other estimator of moments needs it

        values = np.asarray(np.linalg.solve(X, g))
        tau = (yy - float(values @ g)) / exponent
        strength, basis = eigh(X, omega)
        strength = np.maximum(strength, _LEAST * strength.max())
        return cls(values, tau, basis, strength, tau * strength / (1 + tau * strength))

    def probability(self, g: Array, label: float) -> float:
        """P = o B / (1 + o B), o the largest prior odds with which a table without signal loses little enough."""
        return float(expit(self.log_bayes(self.basis.T @ g) + self.log_odds(label)))

    def log_odds(self, label: float) -> float:
        """The log odds of signal, before g is seen: `largest_log_odds` over z ~ N(0, I), the law without signal.

        `label` is the label's centred moment.
        """
        z = _unrelated(len(self.left))
        return largest_log_odds(self.log_bayes(z), (self.left * z) ** 2 @ (1 / self.strength) / label)

    def log_bayes(self, z: Array) -> Array:
        """The logarithm of B, (sum left z^2 - sum log(1 + tau strength)) / 2 of z, (..., q)."""
        return np.asarray((z**2 @ self.left - np.log1p(self.tau * self.strength).sum()) / 2)


@lru_cache(maxsize=64)
def _unrelated(q: int) -> Array:
    return np.random.default_rng(_SEED).standard_normal((_DRAWS, q))


def ols(system: System, signal: Signal) -> Array:  # noqa: ARG001 - all estimators have one signature
    """H = S_hat_xx^-1."""
    return inverse(system.xx)


ESTIMATORS: dict[str, Estimator] = {
    "ols": Estimator(linear(ols), "noisy_regressors"),
    "shrunken": Estimator(shrunken, "none"),
    "adaptive_ridge": damped(
        lambda system, signal: noise_bound(entries_of(system), signal.centred), "noisy_regressors"
    ),
    "constant": CONSTANT,
}


@dataclass(frozen=True, slots=True)
class MomentsFit(FitMethod):
    """Fits of S_hat, from which nothing is to be subtracted."""

    def meat(self, system: System, r: Residual, errors: Errors, interval_for: IntervalFor) -> Array:  # noqa: ARG002 - as asked of all
        # The covariance of E_x. c, which is the same for table and population.
        return entries_of(system).covariance(r.direction)

    def population(self, system: System, r: Residual, H: Array, omega: Array) -> Array:
        # (c^T S_hat c + tr(H Omega)) / (n - p_x) H: b fits its own noise, which lowers the first by the second.
        return max(0.0, r.signal + float(np.sum(H * omega))) / system.degrees_of_freedom * H

    def sampling(self, *, rows: int, n: int, interval_for: IntervalFor) -> float:  # noqa: ARG002 - as asked of all
        return 1 / n if interval_for == "population" else 0.0

    def noise_level(self, system: System, signal: Signal) -> float:
        return noise_bound(entries_of(system), signal.centred)

    def label_moment(self, system: System, c: Centred) -> float:  # noqa: ARG002 - as asked of all
        return c.yy

    def loss_variance(self, system: System, c: Centred, r: Residual, *, ratio: float, cross: float) -> float:  # noqa: ARG002 - as asked of all
        d = c.about_mean
        return entries_of(system).form_variance(np.outer(r.direction, r.direction) - ratio * np.outer(d, d))

    def cautions(
        self,
        system: System,
        signal: Signal,
        estimator: str,
        diagnostics: Diagnostics,
        *,
        determined: bool,
    ) -> Iterator[str]:
        chosen, ratio = self.estimators[estimator], diagnostics.signal_to_noise
        if not determined:
            still = self._still(system, signal)
            named = f" Hardly any person differs from the others in {', '.join(still)}." if still else ""
            yield (
                "The noise outweighs the features in some direction: these coefficients mean nothing and get no "
                f"standard errors.{named} Name fewer features, or use adaptive_ridge or shrunken."
            )
        elif chosen.uses_features and chosen.errors != "none" and ratio is not None and ratio < ENOUGH:
            yield (
                f"Some combination of the features varies only {min(ratio, ENOUGH - 0.01):.3g} times as much as the "
                f"noise may (signal_to_noise; {ENOUGH:g} is enough): coefficients are unstable and any standard errors "
                "rough. "
                "Name fewer features, or use shrunken to predict."
            )

    def _still(self, system: System, signal: Signal) -> list[str]:
        # Terms that vary less than the noise may.
        varies = np.diag(signal.centred.X)
        noise = np.broadcast_to(self.noise_in_each(system, signal), varies.shape)
        return [t for t, of, by in zip(system.terms[-len(varies) :], varies, noise, strict=True) if of < by]

    def noise_in_each(self, system: System, signal: Signal) -> Array | float:
        """How much each feature may vary by noise alone, (q,) or one number for all."""
        return self.noise_level(system, signal)


NOISY_MOMENTS = MomentsFit(ESTIMATORS, "ols", measure)


@dataclass(frozen=True, slots=True)
class KeyedFit(MomentsFit):
    """Fits of n (C + m m^T), errors of which come from counts, means and sums alike."""

    def meat(self, system: System, r: Residual, errors: Errors, interval_for: IntervalFor) -> Array:  # noqa: ARG002 - as asked of all
        # Of noise; about the table also of subjects whose rows gave way: they count as not drawn.
        noise = _pair_noise(system)
        found = noise.covariance(r.direction)
        gave_way = noise.gave_way
        if interval_for == "population" or not gave_way:
            return found
        return found + gave_way * noise.sampling(r.direction)

    def population(self, system: System, r: Residual, H: Array, omega: Array) -> Array:  # noqa: ARG002 - as asked of all
        # Every pair has a sample of its own, so residuals alone do not say how much they vary.
        return H @ _pair_noise(system).sampling(r.direction) @ H

    def noise_level(self, system: System, signal: Signal) -> float:
        # Errors of rows grow with the columns that they are between: small columns are as well known as large ones.
        noise = _pair_noise(system)
        if not signal.smallest > 0 or not noise.pairs.noise.of_normal_rows:  # NaN without features
            return noise_bound(noise, signal.centred)
        return signal.smallest * relative_bound(noise, signal.centred)

    def noise_in_each(self, system: System, signal: Signal) -> Array | float:
        noise, c = _pair_noise(system), signal.centred
        if not noise.pairs.noise.of_normal_rows:
            return noise_bound(noise, c)
        draws = np.concatenate(list(_drawn(noise, noise.basis[:, :-1] @ c.centring.T)))
        return np.asarray(np.quantile(np.abs(np.diagonal(draws, axis1=1, axis2=2)), 1 - FAILURE, axis=0))


KEYED = KeyedFit(ESTIMATORS, "ols", measure)


def relative_bound(noise: PairNoise, c: Centred) -> float:
    """With probability 0.95 noise of rows changes no combination of the features by more than this part of its moment.

    By Monte Carlo: the 0.95 quantile of the spectral norm of F^-1 K^T E K F^-T with X = F F^T, K as in `noise_bound`.
    """
    K = noise.basis[:, :-1] @ c.centring.T @ np.linalg.inv(np.linalg.cholesky(c.X)).T
    return float(np.quantile(list(map(spectral_norms, _drawn(noise, K))), 1 - FAILURE))


def _drawn(noise: PairNoise, K: Array) -> Iterator[Array]:
    """Batches (count, q, q) of draws of K^T E K for noise of rows."""
    random = np.random.default_rng(_SEED)
    for _ in range(_BATCHES):
        yield K.T @ noise.drawn_rows(random, _BATCH) @ K


def _pair_noise(system: System) -> PairNoise:
    if not isinstance(system.entries, PairNoise):
        raise TypeError("these are not moments of keyed data sets")
    return system.entries
