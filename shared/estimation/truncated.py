"""A number observed with normal error that is known to lie between two bounds: what is believed of it then.

With a flat prior between the bounds and an observation x ~ N(truth, s^2) the posterior is N(x, s^2) cut off at the
bounds. Its mean has, for every truth between them, no larger mean squared error than x itself (Hartigan 2004, Uniform
priors on convex sets improve risk).
"""

import math

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from commingle.shared.estimation.prepared import Array

_FAR = 8.0  # standard errors outside a bound beyond which a tail probability loses its digits
_LEAST_DEVIATION = 1e-12


def posterior_mean(x: Array, s: Array | float, low: float, high: float) -> Array:
    """Shaped as x: x + s (phi(a) - phi(b)) / (Phi(b) - Phi(a)), a = (low - x)/s and b = (high - x)/s."""
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
    """`count` equally likely values: the posterior's quantiles at 1/(2 count), 3/(2 count), ..., (count,)."""
    s = max(s, _LEAST_DEVIATION)
    a, b = min((low - x) / s, _FAR), (high - x) / s
    sign = -1.0 if a > 0 else 1.0
    start, end = ndtr(sign * a), ndtr(sign * b)
    levels = start + (np.arange(count) + 0.5) / count * (end - start)
    return np.asarray(np.clip(x + s * sign * ndtri(levels), low, high))
