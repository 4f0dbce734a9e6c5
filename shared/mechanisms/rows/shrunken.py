"""For prediction: as much of the measurement-error fit as there is reason to believe (docs/proofs/prediction.md).

In the basis in which noise and moments are both diagonal every direction of the features gets its own factor: the
inverse of the attenuation there, times the part that a normal prior leaves, times the probability that there is any
signal. With signal either all directions share it or one feature alone has it. The probability of signal is o B / (1 +
o B), B the Bayes factor and o the prior odds. They are as large as the expected loss allows for a label that has
nothing to do with the features. The means of label and features are pulled from the released ones towards the centre of
their public bounds.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import chdtri, expit, ndtri

from commingle.shared.errors import SingularError
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.method import Signal, inverse
from commingle.shared.estimation.posterior import largest_log_odds, most_variance, posterior_mean, variance_levels
from commingle.shared.estimation.system import Centred, System

R_SQUARED = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])  # equally likely in between
TILT = 0.5  # prior variance of a slope along a direction ~ (signal there)^(TILT - 1): 0 is the g-prior, 1 is ridge
ALONE = 0.3  # probability that only one feature matters, if any
_LEAST_SHARE = 1e-3
_MOST = 0.999
_DRAWS = 128
_STEPS = np.gradient(np.append(0.0, R_SQUARED))[1:]
# prior belief about columns encoded into [-1, 1], whose variance is 1/3 when uniform: mean of an exponential law
FEATURE_VARIANCE = 0.15
_LEAST = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Directions:
    """The basis T, (q, q), with T^T X T = I and T^T (m V_xx) T = diag(noise)."""

    basis: Array
    noise: Array  # (q,) share of noise in the release's moment; expected at most 1
    share: Array  # (q,) the believed 1 - noise, the share of signal; positive
    # (q,) T^T g. Given X, z ~ N(zeta, tau^2 I) with tau^2 the variance of a published label given its features.
    z: Array
    features: Array  # (q, q), a unit row for each feature: the direction of zeta if it alone has a slope

    def price(self, rows: int) -> Array:
        """(q,): a factor f of z loses f^2 z^2 price - 2 f z zeta; noise/m is what the noisy means add."""
        return self.share + self.noise / rows


@dataclass(frozen=True, slots=True, eq=False)
class Label:
    """J equally likely variances of a published label, (J,), and how much of each is signal, (J,)."""

    total: Array
    signal: Array


@dataclass(frozen=True, slots=True, eq=False)
class _Family:
    """M priors of zeta, one for each pair of R^2 and variance of the label, or M for each of q features.

    The logarithm of prior times likelihood, over the likelihood without signal, is
    base - against yy + precision (sum z^2 kept), the square being that along the feature's row if it is alone.
    """

    kept: Array  # (M, q) h/(1+h), the part of z that is kept
    # base, against, precision: (M, 1), or (M, q) of features alone; precision is 1 / (2 tau^2)
    base: Array
    against: Array
    precision: Array

    @classmethod
    def of(cls, explained: Array, shape: Array, total: Array, log_prior: Array, *, rows: int, alone: bool) -> "_Family":
        """The h of `shape`, (q,), where `explained` (M, 1) of a label's variance is, by all of it or by each alone.

        sum h_i / share_i = m explained / (1 - attenuated), attenuated = explained sum shape_i. The likelihood is
        -1/2 [sum log(1 + h) + m log(1 - attenuated) + (yy - sum z^2 kept) / tau^2 - yy / total].
        """
        unexplained = 1 - np.minimum(explained * (shape if alone else shape.sum()), _MOST)
        h = rows * explained / unexplained * shape
        scale = np.log1p(h) if alone else np.log1p(h).sum(axis=1, keepdims=True)
        precision = 0.5 / (total * unexplained)
        base = log_prior - (scale + rows * np.log(unexplained)) / 2
        return cls(h / (1 + h), base, precision - 0.5 / total, precision)


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """What is believed if there is signal, of m rows: all directions share it, or one feature alone has it."""

    directions: Directions
    rows: int
    label: Label
    together: _Family
    alone: _Family

    @classmethod
    def of(cls, d: Directions, rows: int, label: Label) -> "Belief":
        """For these directions, m degrees of freedom and variances of the label."""
        share = np.maximum(d.share, _LEAST_SHARE)
        shape = d.share * (d.share / d.noise) ** TILT
        shape /= np.sum(shape / share)
        single = 1 / (d.features**2 @ (1 / share))
        explained = np.outer(R_SQUARED, label.signal / label.total).reshape(-1, 1)
        total = np.tile(label.total, len(R_SQUARED))[:, None]
        log_prior = np.log(np.repeat(_STEPS / _STEPS.sum(), len(label.total)) / len(label.total))[:, None]
        together = _Family.of(explained, shape, total, log_prior + math.log(1 - ALONE), rows=rows, alone=False)
        log_prior = log_prior + math.log(ALONE / len(single))
        return cls(d, rows, label, together, _Family.of(explained, single, total, log_prior, rows=rows, alone=True))

    def given(self, z: Array, yy: Array) -> tuple[Array, Array, Array]:
        """For N pairs z, (N, q), and yy: log Bayes factors, (N,), and what is left of z if there is signal.

        That is (left + features^T diag(left_alone) features) z with both (N, q).
        """
        yy = yy[:, None, None]
        shared = (z**2 @ self.together.kept.T)[..., None]
        single = ((z @ self.directions.features.T) ** 2)[:, None] * self.alone.kept
        log, log_alone = (
            f.base - f.against * yy + f.precision * explained
            for f, explained in ((self.together, shared), (self.alone, single))
        )  # (N, M, 1) and (N, M, q)
        most = np.maximum(log.max(axis=(1, 2)), log_alone.max(axis=(1, 2)))[:, None, None]
        odds, odds_alone = np.exp(log - most), np.exp(log_alone - most)
        sums = odds.sum(axis=(1, 2)) + odds_alone.sum(axis=(1, 2))
        left = odds[..., 0] @ self.together.kept / sums[:, None]
        left_alone = np.einsum("nmq,mq->nq", odds_alone, self.alone.kept) / sums[:, None]
        return np.log(sums) + most[:, 0, 0], left, left_alone


def shrinkage(belief: Belief, yy: float) -> Array:
    """The factor of the release's z, (q, q), given its yy: E[zeta | z] = (this) z."""
    d = belief.directions
    yy = max(yy, float(d.z @ d.z))
    [log_bayes], [left], [left_alone] = belief.given(d.z[None], np.array([yy]))
    signal = expit(log_bayes + prior_log_odds(belief))
    return np.asarray(signal * (np.diag(left) + d.features.T * left_alone @ d.features))


def prior_log_odds(belief: Belief) -> float:
    """The largest o whose fit, on average over releases without signal, is at most NULL_LOSS worse than the mean.

    There z_i ~ N(0, tau^2) with a residual tau^2 chi^2 of m - q degrees, tau^2 the label's variance, and a fit that
    leaves P zeta of z loses P^2 sum zeta_i^2 / price_i / (m s) of R^2. The mean is taken over fixed draws.
    """
    d, label = belief.directions, belief.label
    normal, rest = _unrelated(len(d.z), belief.rows)
    levels = []
    for total, signal in zip(label.total, label.signal, strict=True):
        z = math.sqrt(total) * normal
        log_bayes, left, left_alone = belief.given(z, (z**2).sum(axis=1) + total * rest)
        zeta = left * z + (left_alone * (z @ d.features.T)) @ d.features
        levels.append((log_bayes, zeta**2 @ (1 / d.price(belief.rows)) / belief.rows / signal))
    log_bayes, lost = np.concatenate(levels, axis=1)
    return largest_log_odds(log_bayes, lost)


@lru_cache(maxsize=64)
def _unrelated(q: int, rows: int) -> tuple[Array, Array]:
    """z, (draws, q), and residuals, (draws,), of labels of variance 1 that have nothing to do with q features.

    Spread evenly: the few draws that look like signal make the loss, and 64 pseudo-random ones put it off by half.
    """
    from scipy.stats.qmc import Sobol  # noqa: PLC0415 - imports all of scipy.stats

    uniform = Sobol(q + 1, rng=np.random.default_rng(0)).random(_DRAWS)
    return np.asarray(ndtri(uniform[:, :-1])), np.asarray(chdtri(max(rows - q, 1), uniform[:, -1]))


def shrunken(system: System, signal: Signal) -> Array:
    """H of T diag(w / (share + noise/m)) T^T and the intercept at the means that are believed."""
    c = signal.centred
    if not c.V.any():
        return c.with_intercept(inverse(c.X))
    d = directions(system, c)
    label, means = believed_means(c)
    left = shrinkage(Belief.of(d, c.rows, label_variance(system, c, label * c.label_mean)), c.yy)
    slopes = d.basis / d.price(c.rows) @ left @ d.basis.T
    if c.means is None:
        return slopes
    # b = slopes (G_xy - G_1y c.means), b_0 = label G_1y / G_11 - means^T b
    all_slopes = np.column_stack([-slopes @ c.means, slopes])
    first = -means @ all_slopes
    first[0] += label / c.weight
    return np.vstack([first, all_slopes])


def believed_means(c: Centred) -> tuple[float, Array]:
    """The believed mean of the label over the released one, and the features' means, (q,); none without intercept.

    A mean of k noisy rows is off by N(0, (X_jj/m) / G_11); encoded, it lies in [-1, 1].
    """
    if c.means is None:
        return 1.0, np.empty(0)
    moments = np.append(c.yy, np.diag(c.X))
    released = np.append(c.label_mean, c.means)
    believed = posterior_mean(released, np.sqrt(moments / c.rows / c.weight), -1.0, 1.0)
    return float(believed[0] / released[0]) if released[0] else 1.0, believed[1:]


def directions(system: System, c: Centred) -> Directions:
    """The basis, and how much of every direction is signal.

    1 - noise is off by about sqrt(2/m). Its prior is exponential about the signal of features of variance
    FEATURE_VARIANCE, which shifts a normal posterior by -s^2 / mean, cut off to [0, 1].
    """
    from scipy.linalg import eigh  # noqa: PLC0415 - loads slowly, and no other estimator needs it

    try:
        noise, basis = eigh(c.rows * c.V, c.X)
    except np.linalg.LinAlgError:
        raise SingularError("the moments cannot be inverted", remedy="Name fewer features.") from None
    noise = np.maximum(noise, _LEAST)
    v = np.diag(c.V)
    expected = FEATURE_VARIANCE * system.n / system.rows * float(np.mean(1 / v[v > 0]))
    share = posterior_mean(1 - noise - 2 / c.rows / expected, math.sqrt(2 / c.rows), 0.0, 1.0)
    share = np.maximum(share, _LEAST)
    alone = (share[:, None] * (basis.T @ c.X)).T  # T^-1 = T^T X
    alone /= np.linalg.norm(alone, axis=1, keepdims=True)
    return Directions(basis, noise, share, basis.T @ (c.g - c.rows * c.v), alone)


def label_variance(system: System, c: Centred, mean: float) -> Label:
    """Possible variances of a published label, given its mean.

    yy/m = v_y + s with s = (n/k) Var(y), off by sqrt(2/m) of itself. Encoded into [-1, 1], Var(y) is bounded; without
    an intercept the units are others and it is not.
    """
    bound = most_variance(mean) * system.n / system.rows if system.intercept else math.inf
    total = c.yy / c.rows
    error = math.sqrt(2 / c.rows) * max(total, system.v_yy)
    signal = np.maximum(variance_levels(total - system.v_yy, error, bound), _LEAST * system.v_yy)
    return Label(system.v_yy + signal, signal)
