"""Regression with known error variances (Fuller 1987, ch. 2): consistent, with finite moments."""

from commingle.shared.estimation.linear_algebra import inverse
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.signal import Signal
from commingle.shared.estimation.system import System


def operator(system: System, signal: Signal) -> Array:
    """H = (G_xx - a k V_xx)^-1: positive definite, because a < l."""
    return inverse(system.xx - subtracted(system, signal) * system.rows * system.V_xx)


def subtracted(system: System, signal: Signal) -> float:
    """The a of estimation.md, min(1, l - 1/k) - p_x/k."""
    k, p = system.rows, len(system.xy)
    return min(1.0, signal.root - 1 / k) - p / k
