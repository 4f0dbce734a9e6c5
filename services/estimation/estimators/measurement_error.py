"""Regression with known error variances (Fuller 1987, ch. 2): consistent, with finite moments."""

import numpy as np

from services.estimation.linear_algebra import inverse
from services.estimation.prepared import Array
from services.estimation.signal import Signal
from services.estimation.system import System


def operator(system: System, signal: Signal) -> Array:
    """H = (G_xx - a k V_xx)^-1, a = min(1, l - 1/k) - p_x/k: positive definite, because a < l."""
    k, p = system.rows, len(system.xy)
    a = min(1.0, signal.root - 1 / k) - p / k
    return inverse(system.xx - a * k * np.diag(system.noise_x))
