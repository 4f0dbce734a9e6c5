"""Covariances of coefficients, and what they are errors around (docs/design/estimation.md#covariance).

A fit is b = H G_xy. With c = (-b, 1) the moment G_x. c of its own noise has some covariance Omega ("meat" below), and
Cov(b) = H Omega H. A mechanism brings its own Omega (`method.FitMethod`).
"""

import numpy as np

from commingle.shared.estimation.cutting import allowance
from commingle.shared.estimation.estimator import Errors
from commingle.shared.estimation.method import FitMethod, Residual
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.request import Coverage, IntervalFor
from commingle.shared.estimation.system import System, centre


def covariance(
    method: FitMethod, system: System, H: Array, r: Residual, *, errors: Errors, interval_for: IntervalFor
) -> tuple[Array, Coverage]:
    """Cov(b) in the system's units, (p_x, p_x), NaN where there is none, and what it is around.

    For the population rmgm adds (residual variance / n) (S_hat_xx / n)^-1. H stands in for S_hat_xx^-1: it has the same
    limit and exists where S_hat_xx is not positive definite. Keyed subjects have a sampling of their own. What
    cutting may bend is counted where first stages say what it took.
    """
    if errors == "none":
        return np.full_like(H, np.nan), "none"
    omega = method.meat(system, r, errors, interval_for)
    cov = H @ omega @ H
    if errors == "plain":
        return cov, "release"
    if interval_for == "population":
        cov = cov + method.population(system, r, H, omega)
    return cov + _bent(system, H), interval_for


def _bent(system: System, H: Array) -> Array:
    """By what cutting may bend; of centred moments without their noise."""
    if system.lost is None:
        return np.zeros_like(H)
    c, first = centre(system), int(system.intercept)
    noise = c.rows * np.append(np.diag(c.V), system.v_yy)
    spread = np.append(np.zeros(first), np.maximum(np.append(np.diag(c.X), c.yy) - noise, 0))
    return allowance(system.lost, spread, H)
