"""Least squares damped no more than the noise requires, as AdaSSP does (Wang 2018), after the fact."""

import math

import numpy as np

from services.estimation.linear_algebra import inverse, largest_eigenvalue
from services.estimation.prepared import Array
from services.estimation.signal import Signal
from services.estimation.system import Centred, System

FAILURE = 0.05


def operator(system: System, signal: Signal) -> Array:  # noqa: ARG001 - all estimators have one signature
    """H of the damped slopes with the intercept they imply; the intercept itself is not damped."""
    return signal.centred.with_intercept(damped_inverse(signal))


def damped_inverse(signal: Signal) -> Array:
    """(S_hat_xx + l I)^-1 of the centred features, (q, q)."""
    c = signal.centred
    return inverse(c.X + damping(signal) * np.eye(len(c.X)) - c.rows * c.V)


def damping(signal: Signal) -> float:
    """The l of H: max(0, t - lambda_min(S_hat_xx))."""
    return max(0.0, noise_bound(signal.centred) - signal.smallest)


def noise_bound(c: Centred) -> float:
    """The t of `damping`: with probability 0.95 noise alone, of equal variances, has no eigenvalue above it.

    For m rows of noise with covariance V and v = lambda_max(V), ||N|| <= sqrt(m v) + sqrt(tr V) + sqrt(2 ln(1/0.05) v)
    with that probability (Gordon 1985; Davidson and Szarek 2001); t is the square of that less m v.
    """
    top = largest_eigenvalue(c.V)
    norm = math.sqrt(c.rows * top) + math.sqrt(np.trace(c.V)) + math.sqrt(2 * math.log(1 / FAILURE) * top)
    return norm**2 - c.rows * top
