"""Objective perturbation (Kifer, Smith, Thakurta 2012, algorithm 1, Gaussian noise)."""

from math import log, sqrt

import numpy as np
from numpy.random import Generator
from scipy.optimize import brentq

from commingle.party_agent.private.regression.calibration import Calibration, Privacy, require_calibration
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample
from commingle.shared.dp.accounting import Loss

SOUND = frozenset({Calibration.PUBLISHED})
GUARANTEE = "(epsilon, delta)-DP by a random linear term in a strongly convex objective."


def objpert_loss(privacy: Privacy) -> Loss:
    """What `objpert` costs; public."""
    require_calibration(privacy, SOUND)
    return Loss.approximate(privacy.epsilon, privacy.delta)


def objpert(sample: Sample, privacy: Privacy, generator: Generator, *, radius: float = 1.0) -> Estimate:
    """Argmin over ||theta|| <= R of 1/2 ||y - X theta||^2 + Lambda/2 ||theta||^2 + b^T theta.

    Privacy: (epsilon, delta)-DP; add_remove with zeta = C (C R + Y), replace_one with twice that
    (docs/proofs/regression.md, 5). Floating-point noise; the minimiser is found to rounding.
    """
    loss = objpert_loss(privacy)
    ridge = 2 * sample.row_bound**2 / privacy.epsilon
    noise = noise_scale(sample, privacy, radius=radius) * generator.standard_normal(sample.d)
    linear = sample.x.T @ sample.y - noise
    hessian = sample.x.T @ sample.x + ridge * np.eye(sample.d)
    return Estimate(minimise_in_ball(hessian, linear, radius), loss, {"ridge": ridge})


def noise_scale(sample: Sample, privacy: Privacy, *, radius: float) -> float:
    """The standard deviation of b: zeta sqrt(8 ln(2/delta) + 4 epsilon) / epsilon."""
    zeta = sample.row_bound * (sample.row_bound * radius + sample.label_bound) * (2 if privacy.replaces else 1)
    return zeta * sqrt(8 * log(2 / privacy.delta) + 4 * privacy.epsilon) / privacy.epsilon


def minimise_in_ball(hessian: Floats, linear: Floats, radius: float) -> Floats:
    """Argmin of 1/2 theta^T H theta - c^T theta over ||theta|| <= R: (H + nu I)^-1 c with the least nu >= 0."""
    values, vectors = np.linalg.eigh(hessian)
    rotated = vectors.T @ linear

    def excess(shift: float) -> float:
        return float(np.linalg.norm(rotated / (values + shift))) - radius

    # ||c|| / (lambda_min + nu) <= R at the right end
    shift = 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, float(np.linalg.norm(linear)) / radius))
    return (vectors @ (rotated / (values + shift))).astype(np.float64)
