"""Intervals for ratios of noisy sums: unbounded where they are unbounded (Fieller, 1954)."""

from math import inf, sqrt

import numpy as np

from commingle.shared.estimation.prepared import Array


def fieller(x: float, y: float, covariance: Array, z: float) -> tuple[float, float]:
    """The non-negative r with (x - r y)^2 <= z^2 Var(x - r y): from which to which, infinite where there is no end.

    Args:
        x: numerator.
        y: denominator, of a number that is not negative.
        covariance: (2, 2) of their errors.
        z: quantile of the normal law.
    """
    (vx, c), (_, vy) = (z * z * covariance).tolist()
    # a r^2 - 2 b r + d <= 0
    a, b, d = y * y - vy, x * y - c, x * x - vx
    spread = b * b - a * d
    if spread < 0:  # every r; none only where rounding says so
        return 0.0, inf
    roots = sorted(((b - sqrt(spread)) / a, (b + sqrt(spread)) / a)) if a else (d / (2 * b) if b else 0.0, inf)
    low, high = roots
    if a > 0 and y > 0:
        return max(low, 0.0), max(high, 0.0)
    return (0.0 if low > 0 or a == 0 else max(high, 0.0)), inf


def mapped(jacobian: Array, covariance: Array) -> Array:
    """J C J^T: the covariance of a smooth function of errors, to first order."""
    return np.asarray(jacobian @ covariance @ jacobian.T)
