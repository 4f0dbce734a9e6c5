"""For prediction: the slopes of the posterior mode, as far as there is reason to believe in any.

See docs/prediction.md#on-moments-releases.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from scipy.special import expit

from commingle.shared.estimation.bounded import most_variance, variance_levels
from commingle.shared.estimation.estimator import Signal, inverse
from commingle.shared.estimation.odds import largest_log_odds
from commingle.shared.estimation.posterior import exponent
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.system import System, centre
from commingle.shared.mechanisms.moments.signal import entries_of, null_covariance

_DRAWS = 256
_SEED = 0  # public: the same release gives the same fit to everybody
_LEAST = 1e-12


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
    found = Slopes.of(mode.X, mode.g, mode.yy, omega=omega, exponent=exponent(system.columns))
    error = math.sqrt(entries_of(system).form_variance(np.outer(c.about_mean, c.about_mean)))
    P = found.probability(c.g, least_label(c.yy, error, c.label_mean if system.intercept else None, n=system.n))
    H = c.with_intercept(P * inverse(mode.X + omega / found.tau))
    b = P * found.values
    return H, b if mode.means is None else np.append(mode.label_mean - b @ mode.means, b)


def least_label(moment: float, error: float, mean: float | None, *, n: int) -> float:
    """The label's centred moment that counts where losses are compared with it: the harmonic mean of what it may be.

    Given a released one and the standard deviation of its noise, and the label's mean, where its values lie in [-1, 1].
    """
    bound = math.inf if mean is None else most_variance(mean)
    levels = np.maximum(variance_levels(moment / n, error / n, bound), _LEAST)
    return n * len(levels) / float(np.sum(1 / levels))


@dataclass(frozen=True, slots=True, eq=False)
class Slopes:
    """Slopes of the mode, and what a released g ~ N(X b, Omega_0) says for b ~ N(0, tau X^-1) and against b = 0.

    Attributes:
        values: (q,) b_m.
        tau: variance of a slope on a feature of moment 1.
        basis: (q, q) T with T^T Omega_0 T = I and T^T X T = diag(strength).
        strength: (q,) expected square of z = T^T g over tau.
        left: (q,) tau strength / (1 + tau strength), what is left of z.
    """

    values: Array
    tau: float
    basis: Array
    strength: Array
    left: Array

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
        """Of signal, before g is seen: `largest_log_odds` over z ~ N(0, I), what there is without signal.

        `label` is the label's centred moment.
        """
        z = _unrelated(len(self.left))
        return largest_log_odds(self.log_bayes(z), (self.left * z) ** 2 @ (1 / self.strength) / label)

    def log_bayes(self, z: Array) -> Array:
        """The logarithm of B, (sum left z^2 - sum log(1 + tau strength)) / 2 of z, (..., q)."""
        return np.asarray((z**2 @ self.left - np.log1p(self.tau * self.strength).sum()) / 2)


@lru_cache(maxsize=64)
def _unrelated(q: int) -> Array:
    """z, (draws, q)."""
    return np.random.default_rng(_SEED).standard_normal((_DRAWS, q))
