"""Covariances of coefficients, by mechanism and by what they are errors around (estimation.md, measurement_error).

A fit is b = H G_xy. With c = (-b, 1) the moment G_x. c of its own noise has some covariance Omega ("meat" below), and
Cov(b) = H Omega H. A new kind of release brings its own Omega and nothing else.
"""

from dataclasses import dataclass

import numpy as np

from commingle.shared.estimation.estimators import Errors
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.request import Coverage, IntervalFor
from commingle.shared.estimation.system import System


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """The quadratic forms of c = (-b, 1).

    Attributes:
        total: c^T G c.
        noise: c^T V c.
        signal: c^T S_hat c = c^T (G - k V) c, possibly negative.
        spread: (p_x,) V_xx b - v_xy, which is -V_x. c.
        direction: (p_x + 1,) c.
    """

    total: float
    noise: float
    signal: float
    spread: Array
    direction: Array


def residual(system: System, b: Array) -> Residual:
    """The quadratic forms of one fit."""
    total = system.yy - 2 * float(b @ system.xy) + float(b @ system.xx @ b)
    spread = system.V_xx @ b - system.v_xy
    noise = system.v_yy + float(b @ (spread - system.v_xy))
    return Residual(max(total, 0.0), noise, total - system.rows * noise, spread, np.append(-b, 1.0))


def meat(system: System, r: Residual, errors: Errors, interval_for: IntervalFor) -> Array:
    """Omega, (p_x, p_x): over the projection and the noise, or for the population of dgm also over its rows.

    rmgm, and dgm for the population:  G_xx tau2 + k Vc Vc^T,  tau2 = c^T G c / (k - p_x), Vc = V_x. c.
    dgm for the table:                 G_xx nu2 + (c^T S_hat c) V_xx + n Vc Vc^T,  nu2 = c^T V c.
    A plain regression on the release: G_xx tau2, its residual being uncorrelated with its terms.
    moments: the covariance of E_x. c, which is the same for both.
    """
    if system.entries is not None:
        return system.entries.covariance(r.direction)
    tau2 = r.total / system.degrees_of_freedom
    if errors == "plain":
        return system.xx * tau2
    attenuation = system.rows * np.outer(r.spread, r.spread)
    if errors == "noisy_regressors" and system.mechanism == "dgm" and interval_for == "table":
        return system.xx * r.noise + max(0.0, r.signal) * system.V_xx + attenuation
    return system.xx * tau2 + attenuation


def covariance(
    system: System, H: Array, r: Residual, errors: Errors, interval_for: IntervalFor
) -> tuple[Array, Coverage]:
    """Cov(b) in the system's units, (p_x, p_x), NaN where there is none, and what it is around.

    For the population rmgm adds (residual variance / n) (S_hat_xx / n)^-1. H stands in for S_hat_xx^-1: it has the same
    limit and exists where S_hat_xx is not positive definite.
    """
    unknown = np.full_like(H, np.nan)
    if errors == "none":
        return unknown, "none"
    omega = meat(system, r, errors, interval_for)
    cov = H @ omega @ H
    if errors == "plain":
        return cov, "release"
    if system.mechanism == "rmgm" and interval_for == "population":
        cov = cov + max(0.0, r.signal) / system.n * H
    elif system.mechanism == "moments" and interval_for == "population":
        # (c^T S_hat c + tr(S_xx^-1 Cov v)) / (n - p_x): b fits its own noise, which lowers the first term by the second
        cov = cov + max(0.0, r.signal + float(np.sum(H * omega))) / system.degrees_of_freedom * H
    return cov, interval_for
