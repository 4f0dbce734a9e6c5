"""Objective perturbation, noisy gradient descent, and subsample and aggregate: other methods with floating-point noise.

Sources: Kifer, Smith, Thakurta 2012, algorithm 1 with Gaussian noise; Bassily, Smith, Thakurta 2014 and Song,
Chaudhuri, Sarwate 2013, projected; Smith 2008 and Dwork, Smith 2010, with winsorised mean and quantile of Smith 2011.
"""

from contextlib import suppress
from math import isqrt, log, sqrt

import numpy as np
from numpy.random import Generator
from scipy.optimize import brentq

from commingle.party_agent.private.regression.measuring import (
    FloatingPoint,
    NoiseCalibration,
    Privacy,
    gaussian_multiplier,
    gaussian_plan,
    require_calibration,
    stated_loss,
)
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample
from commingle.shared.dp.accounting import Loss

OBJPERT_SOUND = frozenset({NoiseCalibration.PUBLISHED})
OBJPERT_GUARANTEE = "(epsilon, delta)-DP by a random linear term in a strongly convex objective."


def objpert(sample: Sample, privacy: Privacy, generator: Generator, *, radius: float = 1.0) -> Estimate:
    """Argmin over ||theta|| <= R of 1/2 ||y - X theta||^2 + Lambda/2 ||theta||^2 + b^T theta.

    Privacy: (epsilon, delta)-DP; add_remove with zeta = C (C R + Y), replace_one with twice that
    (docs/proofs/regression.md, 5). Floating-point noise; the minimiser is found to rounding.
    """
    loss = stated_loss(privacy, known=OBJPERT_SOUND)
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

    # ||c|| / (lambda_min + nu) <= R at the right end, but perhaps for rounding: no row may make the search fail
    end = float(np.linalg.norm(linear)) / radius
    inside = excess(0.0) <= 0
    shift = 0.0 if inside else end if excess(end) >= 0 else float(brentq(excess, 0.0, end, disp=False))
    return (vectors @ (rotated / (values + shift))).astype(np.float64)


STEPS = 50
NOISYSGD_SOUND = frozenset({NoiseCalibration.ZCDP, NoiseCalibration.ANALYTIC})
NOISYSGD_GUARANTEE = "Gaussian measurements of the whole gradient, one a step; a Gaussian loss of the stated rho."


def noisysgd_loss(privacy: Privacy, *, steps: int = STEPS) -> Loss:
    """What `noisysgd` costs; public."""
    require_calibration(privacy, NOISYSGD_SOUND)
    return gaussian_plan(privacy, steps)


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


SUBAGG_SOUND = frozenset({NoiseCalibration.PUBLISHED})
SUBAGG_GUARANTEE = (
    "epsilon-DP: one row is in one block, and each coordinate spends epsilon/d on the blocks' coefficients."
)
_WIDENING = 4.0
_EXPONENT = 1 / 3 + 0.1


def subagg_loss(privacy: Privacy) -> Loss:
    """What `subagg` costs: epsilon, and nothing of delta; public."""
    require_calibration(privacy, SUBAGG_SOUND)
    return Loss.approximate(privacy.epsilon)


def subagg(
    sample: Sample, privacy: Privacy, generator: Generator, *, radius: float = 1.0, blocks: int | None = None
) -> Estimate:
    """Least squares on disjoint blocks, then a noisy widened-winsorised mean of every coordinate.

    Privacy: epsilon-DP under add_remove and replace_one alike: every row goes to a block of its own draw, so a
    neighbour changes one block's coefficients, cut to [-R, R]. The number of blocks is public; by default n over
    max(2 d, sqrt(n)). Floating-point noise.
    """
    loss = subagg_loss(privacy)
    n, d = sample.n, sample.d
    count = max(1, n // max(2 * d, isqrt(n), 1)) if blocks is None else blocks
    member = generator.integers(count, size=len(sample.y))
    fits = np.array([_least_squares(sample.x[member == b], sample.y[member == b]) for b in range(count)])
    cut = np.clip(fits, -radius, radius)
    share = privacy.epsilon / d
    theta = [_winsorised_mean(cut[:, j], share, radius, generator) for j in range(d)]
    return Estimate(np.array(theta), loss)


def _least_squares(x: Floats, y: Floats) -> Floats:
    """Of one block; any function of it is as private, so a block that has no answer is 0."""
    with suppress(np.linalg.LinAlgError):
        return np.linalg.lstsq(x, y)[0].astype(np.float64) if len(y) else np.zeros(x.shape[1])
    return np.zeros(x.shape[1])


def _winsorised_mean(values: Floats, epsilon: float, radius: float, generator: Generator) -> float:
    """Smith 2011, algorithm 1: epsilon/4 for each quartile, epsilon/2 for the mean over the widened range."""
    k = len(values)
    low, high = (noisy_quantile(values, q, epsilon / 4, radius, generator) for q in (0.25, 0.75))
    centre, reach = (low + high) / 2, _WIDENING * k**_EXPONENT * abs(high - low)
    floor, ceiling = max(-radius, centre - reach), min(radius, centre + reach)
    # one value moves the mean by (ceiling - floor) / k
    scale = 2 * (ceiling - floor) / (epsilon * k)
    return float(np.clip(values, floor, ceiling).mean() + generator.laplace(scale=scale))


def noisy_quantile(values: Floats, quantile: float, epsilon: float, radius: float, generator: Generator) -> float:
    """The exponential mechanism on [-R, R] (Smith 2011, algorithm 2): epsilon-DP if one value changes.

    Density exp(-epsilon/2 |rank - q k|): one value moves the rank of any point by one at most.
    """
    edges = np.concatenate([[-radius], np.sort(values), [radius]])
    widths = np.diff(edges)
    rank = np.arange(len(widths))
    open_ones = widths > 0
    logs = np.log(widths[open_ones]) - epsilon / 2 * np.abs(rank[open_ones] - quantile * len(values))
    weights = np.exp(logs - logs.max())
    chosen = generator.choice(rank[open_ones], p=weights / weights.sum())
    return float(generator.uniform(edges[chosen], edges[chosen + 1]))
