"""Projected noisy gradient descent (Bassily, Smith, Thakurta 2014; Song, Chaudhuri, Sarwate 2013)."""

from math import sqrt

import numpy as np
from numpy.random import Generator

from commingle.party_agent.private.regression.calibration import (
    Calibration,
    Privacy,
    gaussian_multiplier,
    require_calibration,
)
from commingle.party_agent.private.regression.measuring import FloatingPoint, planned_loss
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample
from commingle.shared.dp.accounting import Loss, Rho

STEPS = 50
SOUND = frozenset({Calibration.ZCDP, Calibration.ANALYTIC})
GUARANTEE = "Gaussian measurements of the whole gradient, one a step; rho-zCDP with the stated rho."


def noisysgd_loss(privacy: Privacy, *, steps: int = STEPS) -> Loss:
    """What `noisysgd` costs; public."""
    require_calibration(privacy, SOUND)
    return Loss(Rho(steps * planned_loss(gaussian_multiplier(privacy, steps)).units))


def noisysgd(
    sample: Sample, privacy: Privacy, generator: Generator, *, radius: float = 1.0, steps: int = STEPS
) -> Estimate:
    """The average of T steps theta <- project_R(theta - eta (X^T (X theta - y) + noise)), from 0.

    Every step reads every row: composition is then exact in zCDP, with no claim about subsampling, and the noise a
    step needs is that of mini-batches with their amplification, up to a constant.

    Privacy: add_remove or replace_one (sensitivity doubled); `noisysgd_loss(privacy)` by composition of T Gaussian
    mechanisms of sensitivity C (C R + Y), the largest gradient of one row in the ball. Floating-point noise.
    """
    loss = noisysgd_loss(privacy, steps=steps)
    row_gradient = sample.row_bound * (sample.row_bound * radius + sample.label_bound)
    sensitivity = row_gradient * (2 if privacy.replaces else 1)
    multiplier = gaussian_multiplier(privacy, steps)
    # eta = 2 R / (sqrt(T) G), G^2 >= E||gradient + noise||^2
    steepest = sqrt((sample.n * row_gradient) ** 2 + sample.d * (multiplier * sensitivity) ** 2)
    rate = 2 * radius / (sqrt(steps) * steepest)
    gram, cross, measure = sample.x.T @ sample.x, sample.x.T @ sample.y, FloatingPoint(generator)
    theta, total = np.zeros(sample.d), np.zeros(sample.d)
    for _ in range(steps):
        gradient = measure.measure(gram @ theta - cross, sensitivity=sensitivity, multiplier=multiplier)
        theta = _project(theta - rate * gradient, radius)
        total += theta
    return Estimate(total / steps, loss)


def _project(theta: Floats, radius: float) -> Floats:
    return theta / max(1.0, float(np.linalg.norm(theta)) / radius)
