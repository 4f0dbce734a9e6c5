"""Covariances of coefficients, by mechanism and by what they are errors around (estimation.md, measurement_error).

A fit is b = H G_xy. With c = (-b, 1) the moment G_x. c of its own noise has some covariance Omega ("meat" below), and
Cov(b) = H Omega H. A new kind of release brings its own Omega and nothing else.
"""

from dataclasses import dataclass

import numpy as np

from services.estimation.estimators import Errors
from services.estimation.prepared import Array
from services.estimation.request import Coverage, IntervalFor
from services.estimation.system import System


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """The quadratic forms of c = (-b, 1).

    Attributes:
        total: c^T G c.
        noise: c^T V c.
        signal: c^T S_hat c = c^T (G - k V) c, possibly negative.
        spread: (p_x,) V_xx b.
    """

    total: float
    noise: float
    signal: float
    spread: Array


def residual(system: System, b: Array) -> Residual:
    """The quadratic forms of one fit."""
    total = system.yy - 2 * float(b @ system.xy) + float(b @ system.xx @ b)
    spread = system.noise_x * b
    noise = system.noise_y + float(b @ spread)
    return Residual(max(total, 0.0), noise, total - system.rows * noise, spread)


def meat(system: System, r: Residual, errors: Errors, interval_for: IntervalFor) -> Array:
    """Omega, (p_x, p_x): over the projection and the noise, or for the population of dgm also over its rows.

    rmgm, and dgm for the population:  G_xx tau2 + k Vb Vb^T,  tau2 = c^T G c / (k - p_x).
    dgm for the table:                 G_xx nu2 + (c^T S_hat c) V_xx + n Vb Vb^T,  nu2 = v_y + b^T V_xx b.
    A plain regression on the release: G_xx tau2, its residual being uncorrelated with its terms.
    """
    tau2 = r.total / system.degrees_of_freedom
    if errors == "plain":
        return system.xx * tau2
    attenuation = system.rows * np.outer(r.spread, r.spread)
    if errors == "noisy_regressors" and system.mechanism == "dgm" and interval_for == "table":
        return system.xx * r.noise + max(0.0, r.signal) * np.diag(system.noise_x) + attenuation
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
    cov = H @ meat(system, r, errors, interval_for) @ H
    if errors == "plain":
        return cov, "release"
    if system.mechanism == "rmgm" and interval_for == "population":
        cov = cov + max(0.0, r.signal) / system.n * H
    return cov, interval_for
