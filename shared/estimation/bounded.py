"""What is believed of means and variances of columns that are encoded into [-1, 1], given noisy ones."""

import math

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from commingle.shared.estimation.prepared import Array

_LABEL_VARIANCE = 0.3  # of what a label of that mean can have at most: the mean of an exponential prior
_LEVELS = 3
_LEAST_BOUND = 0.02
_FAR = 8.0  # standard errors outside a bound beyond which a tail probability loses its digits
_LEAST_DEVIATION = 1e-12


def most_variance(mean: float) -> float:
    """1 - mean^2, the most that values in [-1, 1] can have (Bhatia and Davis 2000), or a little more near the ends."""
    return max(1 - mean**2, _LEAST_BOUND)


def variance_levels(x: float, error: float, bound: float) -> Array:
    """Three equally likely values of a label's variance between 0 and `bound` that was seen as x with normal error."""
    return posterior_levels(x - error**2 / (_LABEL_VARIANCE * bound), error, 0.0, bound, _LEVELS)


def posterior_mean(x: Array, s: Array | float, low: float, high: float) -> Array:
    """What is believed of a number between two bounds that was seen as x with normal error s, shaped as x.

    With a flat prior the posterior is N(x, s^2) cut off at the bounds; its mean has, for every truth between them, no
    larger mean squared error than x itself (Hartigan 2004, Uniform priors on convex sets improve risk). It is
    x + s (phi(a) - phi(b)) / (Phi(b) - Phi(a)), a = (low - x)/s and b = (high - x)/s.
    """
    s = np.maximum(s, _LEAST_DEVIATION)
    a, b = (low - x) / s, (high - x) / s
    right = a + b > 0  # mirrored, so that the probabilities are those of lower tails, which keep their digits
    a, b = np.where(right, -b, a), np.where(right, -a, b)
    tail = log_ndtr(b)
    densities = [np.exp(-(t**2) / 2 - tail) / math.sqrt(2 * math.pi) for t in (a, b)]
    share = -np.expm1(np.minimum(log_ndtr(a) - tail, -np.finfo(float).eps))
    shift = (densities[0] - densities[1]) / share
    return np.asarray(np.clip(x + s * np.where(right, -shift, shift), low, high))


def posterior_levels(x: float, s: float, low: float, high: float, count: int) -> Array:
    """`count` equally likely values of it: the posterior's quantiles at 1/(2 count), 3/(2 count), ..., (count,)."""
    s = max(s, _LEAST_DEVIATION)
    a, b = min((low - x) / s, _FAR), (high - x) / s
    sign = -1.0 if a > 0 else 1.0
    start, end = ndtr(sign * a), ndtr(sign * b)
    levels = start + (np.arange(count) + 0.5) / count * (end - start)
    return np.asarray(np.clip(x + s * sign * ndtri(levels), low, high))
