"""One posterior sample with data-dependent lambda and gamma (Wang 2018, algorithm 3)."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log, log1p, sqrt

import numpy as np
from numpy.random import Generator
from scipy.optimize import minimize_scalar
from scipy.special import ndtri

from commingle.party_agent.private.regression.adassp import floor_sensitivity, noisy_floor
from commingle.party_agent.private.regression.calibration import (
    Calibration,
    Privacy,
    analytic_multiplier,
    require_calibration,
)
from commingle.party_agent.private.regression.measuring import FloatingPoint
from commingle.party_agent.private.regression.posterior import (
    loss_tail,
    positive_root,
    proved_root,
    ridge_fit,
    sample_posterior,
)
from commingle.party_agent.private.regression.problem import Estimate, Sample
from commingle.shared.dp.accounting import Loss

SOUND = frozenset({Calibration.ANALYTIC})
GUARANTEE = (
    "(epsilon, delta)-DP by two analytic Gaussian measurements and the tail of a posterior sample's privacy loss."
)
_FAILURE = 0.05


@dataclass(frozen=True, slots=True)
class _Constants:
    """How a calibration spends the budget.

    Attributes:
        multiplier: noise of the two Gaussian measurements.
        tail: their noise stays below `tail` standard deviations.
        reserve: subtracted from the least eigenvalue, in units of its sensitivity.
        log_delta: the paper's ln(6/delta), for lambda, which is post-processing.
        least: lower bound of lambda + lambda_min in units of C^2.
        root: sqrt(gamma), from a bound on the residual, u = lambda + lambda_min, and C.
    """

    multiplier: float
    tail: float
    reserve: float
    log_delta: float
    least: float
    root: Callable[[float, float, float], float]


def adaops_loss(privacy: Privacy) -> Loss:
    """What `adaops` costs; public."""
    require_calibration(privacy, SOUND | {Calibration.PUBLISHED})
    return Loss.approximate(privacy.epsilon, privacy.delta)


def adaops(sample: Sample, privacy: Privacy, generator: Generator) -> Estimate:
    """A sample of the ridge posterior; lambda from a private least eigenvalue, gamma from a private residual bound.

    Privacy: add_remove as in the paper, replace_one by group privacy. analytic: (epsilon, delta)-DP
    (docs/proofs/regression.md, 4.5). published: benchmark only, its bound on the eigenvalue fails too often.
    Floating-point noise.
    """
    loss = adaops_loss(privacy)
    asked = privacy.as_add_remove()
    constants = _published(asked) if asked.calibration is Calibration.PUBLISHED else _proved(asked)
    measure = FloatingPoint(generator)
    floor = noisy_floor(sample, measure, multiplier=constants.multiplier, tail=constants.tail)
    floor = max(0.0, floor - constants.reserve * floor_sensitivity(sample))
    level = _level(sample, asked, constants, floor)  # u = lambda + lambda_min
    ridge = level - floor
    residual = _residual_bound(sample, measure, constants, ridge=ridge, level=level)
    root = constants.root(residual, level, sample.row_bound)
    theta = sample_posterior(sample, generator, ridge=ridge, inverse_variance=root**2)
    published = {"least_eigenvalue": floor, "ridge": ridge, "residual_bound": residual, "inverse_variance": root**2}
    return Estimate(theta, loss, published)


def _published(asked: Privacy) -> _Constants:
    epsilon, log_delta = asked.epsilon, log(6 / asked.delta)
    # (e^2/2) [1/ln(6/delta) + (1 + ln(6/delta))/ln(6/delta)] + e = epsilon/2
    part = positive_root((2 + log_delta) / (2 * log_delta), 1.0, epsilon / 2)

    def root(residual: float, level: float, bound: float) -> float:
        return sqrt(level * part**2 / (log_delta * (bound * residual) ** 2))

    return _Constants(
        multiplier=sqrt(log_delta) / (epsilon / 4),
        tail=sqrt(log_delta),
        reserve=0.0,
        log_delta=log_delta,
        least=(1 + log_delta) / (2 * epsilon),
        root=root,
    )


def _proved(asked: Privacy) -> _Constants:
    # delta in five parts: two measurements, their two tails, the posterior sample's tail
    epsilon, share = asked.epsilon, asked.delta / 5
    tail = loss_tail(share)

    def root(residual: float, level: float, bound: float) -> float:
        return proved_root(residual=residual, leverage=bound**2 / level, tail=tail, epsilon=epsilon / 2)

    return _Constants(
        multiplier=analytic_multiplier(epsilon / 4, share),
        tail=-float(ndtri(share)),
        reserve=1.0,
        log_delta=log(6 / asked.delta),
        least=2 * tail**2 / epsilon,  # mu t^2 / 2 takes half of epsilon/2
        root=root,
    )


def _level(sample: Sample, asked: Privacy, constants: _Constants, floor: float) -> float:
    """Lambda + lambda_min = argmin over u of C^4 C1 (1 + C^2/u)^(2 C2) / u + u, a convex function."""
    d, square, log_delta, quarter = sample.d, sample.row_bound**2, constants.log_delta, asked.epsilon / 4
    part = positive_root(1 / (2 * log_delta), 1.0, quarter)
    c1 = (d / 2 + sqrt(d * log(1 / _FAILURE)) + log(1 / _FAILURE)) * log_delta / part**2
    c2 = log_delta / quarter
    least = max(constants.least * square, floor)
    most = square * (exp(1) * c1 / (2 * c2) + 2 * c2)  # the value at u = 2 C2 C^2, and u alone is below the value

    def log_objective(log_level: float) -> float:
        level = exp(log_level)
        steep = log(square**2 * c1) + 2 * c2 * log1p(square / level) - log_level
        return float(np.logaddexp(steep, log_level))

    if most <= least:
        return least
    found = minimize_scalar(log_objective, bounds=(log(least), log(most)), method="bounded")
    return max(least, exp(float(found.x)))


def _residual_bound(
    sample: Sample, measure: FloatingPoint, constants: _Constants, *, ridge: float, level: float
) -> float:
    """A likely upper bound on Y + C ||theta_hat||, whose logarithm one row moves by ln(1 + C^2/u) at most."""
    theta = ridge_fit(sample, ridge)
    size = np.array([log(sample.label_bound + sample.row_bound * float(np.linalg.norm(theta)))])
    sensitivity = log1p(sample.row_bound**2 / level)
    noisy = measure.measure(size, sensitivity=sensitivity, multiplier=constants.multiplier)
    return exp(float(noisy[0]) + constants.multiplier * constants.tail * sensitivity)
