"""For prediction: the measurement-error fit where the release has signal, the damped fit or the mean where not."""

import math

import numpy as np
from scipy.special import fdtri

from services.estimation.estimators.adaptive_ridge import damped_inverse
from services.estimation.linear_algebra import inverse
from services.estimation.prepared import Array
from services.estimation.signal import Signal
from services.estimation.system import System


def operator(system: System, signal: Signal) -> Array:  # noqa: ARG001 - all estimators have one signature
    """Slopes s b_e + (1 - s) j b_r with the intercept they imply."""
    s, j = weights(signal)
    return signal.centred.with_intercept(s * _eager_inverse(signal) + (1 - s) * j * damped_inverse(signal))


def weights(signal: Signal) -> tuple[float, float]:
    """Of b_e, s = [1 - (F_.95/F)^2]_+; of b_r, j = [1 - (q-2) df / (q (df+2) F)]_+, at most 1; 1 without noise."""
    if math.isinf(signal.feature_root):
        return 1.0, 1.0
    q, degrees, F = len(signal.centred.g), signal.f_degrees, signal.f_statistic
    if F <= 0:
        return 0.0, 0.0
    s = 1 - (float(fdtri(q, degrees, 0.95)) / F) ** 2
    j = 1 - (q - 2) * degrees / (q * (degrees + 2) * F)
    return max(0.0, s), min(1.0, max(0.0, j))


def _eager_inverse(signal: Signal) -> Array:
    """(X - a (k-1) V_xx)^-1, a = max(0, min(1 - gamma, l_x (1 - 2 sqrt(gamma)))), gamma = (q+1)/(k-1)."""
    c = signal.centred
    gamma = (len(c.g) + 1) / c.rows
    a = max(0.0, min(1 - gamma, signal.feature_root * (1 - 2 * math.sqrt(gamma))))
    return inverse(c.X - a * c.rows * np.diag(c.noise))
