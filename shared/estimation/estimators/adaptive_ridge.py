"""Least squares damped no more than the noise requires, as AdaSSP does (Wang 2018), after the fact."""

import math

import numpy as np

from commingle.shared.estimation.linear_algebra import inverse, largest_eigenvalue
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.signal import Signal
from commingle.shared.estimation.system import Centred, System

FAILURE = 0.05


def operator(system: System, signal: Signal) -> Array:
    """H of (S_hat_xx + l I)^-1, the features centred, with the intercept it implies, which is not damped itself."""
    c = signal.centred
    return c.with_intercept(inverse(c.X + damping(system, signal) * np.eye(len(c.X)) - c.rows * c.V))


def damping(system: System, signal: Signal) -> float:  # noqa: ARG001 - all estimators have one signature
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
