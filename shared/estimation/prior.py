"""What is believed beforehand: of means and variances of columns encoded into [-1, 1], and the odds of signal.

The odds are as large as what is lost without any signal allows (docs/proofs/prediction.md).
"""

import math

import numpy as np
from scipy.special import expit, log_ndtr, ndtr, ndtri

from commingle.shared.estimation.entry_noise import Array

_LABEL_VARIANCE = 0.3  # of what a label of that mean can have at most: the mean of an exponential prior
_LEVELS = 3
_LEAST_BOUND = 0.02
_FAR = 8.0  # standard errors outside a bound beyond which a tail probability loses its digits
_LEAST_DEVIATION = 1e-12
NULL_LOSS = 0.024  # of R^2, on average over releases of a table without signal
MOST_ODDS = 9.0  # no signal is never given less than a tenth
_LEAST_LOG_ODDS = -20.0


def most_variance(mean: float) -> float:
    """1 - mean^2, the most that values in [-1, 1] can have (Bhatia and Davis 2000), or a little more near the ends."""
    return max(1 - mean**2, _LEAST_BOUND)


def variance_levels(x: float, error: float, bound: float) -> Array:
    """Three equally likely values of a label's variance between 0 and `bound` that was seen as x with normal error."""
    return posterior_levels(x - error**2 / (_LABEL_VARIANCE * bound), error, 0.0, bound, _LEVELS)


def posterior_mean(x: Array, s: Array | float, low: float, high: float) -> Array:
    """What is believed of a number between two bounds that was seen as x with normal error s, shaped as x.

    With a flat prior the posterior is N(x, s^2) cut off at the bounds; its mean has, for every truth between them, no
    larger mean squared error than x itself (Hartigan 2004, Uniform priors on convex sets improve risk). It is x + s
    (phi(a) - phi(b)) / (Phi(b) - Phi(a)), a = (low - x)/s and b = (high - x)/s.
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


def largest_log_odds(log_bayes: Array, lost: Array) -> float:
    """The largest log odds o, up to those of MOST_ODDS, whose fits lose at most NULL_LOSS without signal.

    Given are, for fits of releases without signal, logarithms of their Bayes factors for signal, and the R^2 that each
    would lose if signal were certain, both of one shape. A fit that is multiplied by P loses P^2 of that, P = 1 / (1 +
    1 / (o B)).
    """
    from scipy.optimize import brentq  # noqa: PLC0415 - loads slowly, and no other estimator needs it

    def excess(log_odds: float) -> float:
        return float(np.mean(expit(log_bayes + log_odds) ** 2 * lost)) - NULL_LOSS

    most = math.log(MOST_ODDS)
    if excess(most) <= 0:
        return most
    if excess(_LEAST_LOG_ODDS) >= 0:
        return _LEAST_LOG_ODDS
    return float(brentq(excess, _LEAST_LOG_ODDS, most, xtol=1e-3))
