"""One sample of a ridge posterior: OPS and AdaOPS (Wang 2018, 3.2 and algorithm 1; docs/proofs/regression.md, 4).

OPS takes lambda and gamma from public quantities (balanced variant; Wang, Fienberg, Smola 2015), AdaOPS from private
measurements of the rows.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import exp, log, log1p, sqrt

import numpy as np
from numpy.random import Generator
from scipy.optimize import minimize_scalar
from scipy.special import ndtri

from commingle.party_agent.private.regression.measuring import (
    FloatingPoint,
    Measure,
    NoiseCalibration,
    Privacy,
    analytic_multiplier,
    stated_loss,
)
from commingle.party_agent.private.regression.problem import Estimate, Floats, Published, Sample

OPS_SOUND = frozenset({NoiseCalibration.CLASSICAL})
OPS_GUARANTEE = "(epsilon, delta)-DP by a bound on the tail of the privacy loss of a Gaussian posterior sample."
_FAILURE = 0.05
_EIGENVALUE_ERROR = 2.0**-23
"""Twice what an eigensolver may be off by, per column and C^2: 64 roundings of norms up to 2^23 C^2."""


def ops(sample: Sample, privacy: Privacy, generator: Generator) -> Estimate:
    """A sample of the ridge posterior with lambda and gamma from public quantities.

    Privacy: add_remove as in the paper, replace_one by group privacy, given that there are no more than n rows: so the
    product has it under replace_one only.
    (epsilon, delta)-DP (docs/proofs/regression.md, 4.4). Floating-point noise.
    """
    loss = stated_loss(privacy, known=OPS_SOUND)
    asked = privacy.as_add_remove()
    ridge = ops_ridge(sample, asked)
    residual = coefficient_bound(sample, ridge) * sample.row_bound + sample.label_bound
    leverage = sample.row_bound**2 / ridge
    root = proved_root(residual=residual, leverage=leverage, tail=loss_tail(asked.delta), epsilon=asked.epsilon)
    theta = sample_posterior(sample, generator, ridge=ridge, inverse_variance=root**2)
    return Estimate(theta, loss, {"ridge": ridge, "inverse_variance": root**2})


def ops_ridge(sample: Sample, asked: Privacy) -> float:
    """Lambda of OPS, from public quantities."""
    epsilon, tail, d = asked.epsilon, log(2 / asked.delta), sample.d
    # C1 = (d/2 + sqrt(d ln(1/rho)) + ln(1/rho)) ln(2/delta) / min(eps/2, sqrt(eps/2))^2
    c1 = (d / 2 + sqrt(d * log(1 / _FAILURE)) + log(1 / _FAILURE)) * tail / min(epsilon / 2, sqrt(epsilon / 2)) ** 2
    balanced = (c1 * sample.row_bound**4 * sample.label_bound**2 * sample.n / 2) ** (1 / 3)
    return float(max(balanced, (1 + tail) * sample.row_bound**2 / epsilon))


def coefficient_bound(sample: Sample, ridge: float) -> float:
    """||theta_hat|| <= min(sqrt(n) Y / sqrt(2 lambda), n C Y / lambda)."""
    n, bound = sample.n, sample.label_bound
    return min(sqrt(n) * bound / sqrt(2 * ridge), n * sample.row_bound * bound / ridge)


ADAOPS_SOUND = frozenset({NoiseCalibration.ANALYTIC})
ADAOPS_GUARANTEE = (
    "(epsilon, delta)-DP by two analytic Gaussian measurements and the tail of a posterior sample's privacy loss."
)


@dataclass(frozen=True, slots=True)
class AdaopsConstants:
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


def adaops(sample: Sample, privacy: Privacy, generator: Generator) -> Estimate:
    """A sample of the ridge posterior; lambda from a private least eigenvalue, gamma from a private residual bound.

    Privacy: add_remove as in the paper, replace_one by group privacy; (epsilon, delta)-DP
    (docs/proofs/regression.md, 4.5). Floating-point noise.
    """
    loss, asked = stated_loss(privacy, known=ADAOPS_SOUND), privacy.as_add_remove()
    theta, published = adaptive_sample(sample, asked, generator, proved_constants(asked))
    return Estimate(theta, loss, published)


def adaptive_sample(
    sample: Sample, asked: Privacy, generator: Generator, constants: AdaopsConstants
) -> tuple[Floats, Published]:
    """Theta of AdaOPS and what is published beside it; `asked` is an add_remove guarantee."""
    measure = FloatingPoint(generator)
    floor = noisy_floor(sample, measure, multiplier=constants.multiplier, tail=constants.tail)
    floor = max(0.0, floor - constants.reserve * floor_sensitivity(sample))
    level = chosen_level(sample, asked, constants, floor)  # u = lambda + lambda_min
    ridge = level - floor
    residual = _residual_bound(sample, measure, constants, ridge=ridge, level=level)
    root = constants.root(residual, level, sample.row_bound)
    theta = sample_posterior(sample, generator, ridge=ridge, inverse_variance=root**2)
    published = {"least_eigenvalue": floor, "ridge": ridge, "residual_bound": residual, "inverse_variance": root**2}
    return theta, published


def proved_constants(asked: Privacy) -> AdaopsConstants:
    # delta in five parts: two measurements, their two tails, the posterior sample's tail
    epsilon, share = asked.epsilon, asked.delta / 5
    tail = loss_tail(share)

    def root(residual: float, level: float, bound: float) -> float:
        return proved_root(residual=residual, leverage=bound**2 / level, tail=tail, epsilon=epsilon / 2)

    return AdaopsConstants(
        multiplier=analytic_multiplier(epsilon / 4, share),
        tail=-float(ndtri(share)),
        reserve=1.0,
        log_delta=log(6 / asked.delta),
        least=2 * tail**2 / epsilon,  # mu t^2 / 2 takes half of epsilon/2
        root=root,
    )


def noisy_floor(sample: Sample, measure: Measure, *, multiplier: float, tail: float) -> float:
    """max(0, lambda_min + D s (Z - t)), D its sensitivity: a likely lower bound on the least eigenvalue of X^T X."""
    sensitivity = floor_sensitivity(sample)
    least: Floats = np.linalg.eigvalsh(sample.x.T @ sample.x)[:1].astype(np.float64)
    noisy = measure.measure(least, sensitivity=sensitivity, multiplier=multiplier)
    return max(0.0, float(noisy[0]) - multiplier * tail * sensitivity)


def floor_sensitivity(sample: Sample) -> float:
    """How far one row moves the least eigenvalue as computed, under either adjacency: C^2 and twice its error.

    By Weyl it is at most the spectral norm of xx^T - vv^T, whose eigenvalues lie between -|v|^2 and |x|^2.
    """
    return sample.row_bound**2 * (1 + sample.d * _EIGENVALUE_ERROR)


def chosen_level(sample: Sample, asked: Privacy, constants: AdaopsConstants, floor: float) -> float:
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
    sample: Sample, measure: FloatingPoint, constants: AdaopsConstants, *, ridge: float, level: float
) -> float:
    """A likely upper bound on Y + C ||theta_hat||, whose logarithm one row moves by ln(1 + C^2/u) at most."""
    theta = ridge_fit(sample, ridge)
    size = np.array([log(sample.label_bound + sample.row_bound * float(np.linalg.norm(theta)))])
    sensitivity = log1p(sample.row_bound**2 / level)
    noisy = measure.measure(size, sensitivity=sensitivity, multiplier=constants.multiplier)
    return exp(float(noisy[0]) + constants.multiplier * constants.tail * sensitivity)


def ridge_fit(sample: Sample, ridge: float) -> Floats:
    """(X^T X + lambda I)^-1 X^T y; private rows, not to be published."""
    return _solve(_hessian(sample, ridge), sample.x.T @ sample.y)


def sample_posterior(sample: Sample, generator: Generator, *, ridge: float, inverse_variance: float) -> Floats:
    """Theta from density proportional to exp(-gamma/2 (||y - X theta||^2 + lambda ||theta||^2)).

    That is N(theta_hat, (gamma H)^-1), H = X^T X + lambda I = K K^T: theta_hat + K^-T z / sqrt(gamma).
    """
    noise = _solve(_root(_hessian(sample, ridge)).T, generator.standard_normal(sample.d))
    return (ridge_fit(sample, ridge) + noise / sqrt(inverse_variance)).astype(np.float64)


def _hessian(sample: Sample, ridge: float) -> Floats:
    return sample.x.T @ sample.x + ridge * np.eye(sample.d)


def _root(hessian: Floats) -> Floats:
    """K with K K^T = H.

    AdaOPS takes lambda_min from a measurement, so that H may be singular where its noise is beyond its tail, which
    delta pays for. Whether that happens depends on rows, so it must not show as a failure: K is then a root of the
    nearest H that is not.
    """
    with suppress(np.linalg.LinAlgError):
        return np.asarray(np.linalg.cholesky(hessian), np.float64)
    values, vectors = np.linalg.eigh(hessian)
    least = np.finfo(np.float64).eps * max(1.0, float(values[-1]))
    return np.asarray(vectors * np.sqrt(np.maximum(values, least)), np.float64)


def _solve(system: Floats, right: Floats) -> Floats:
    with suppress(np.linalg.LinAlgError):
        return np.asarray(np.linalg.solve(system, right), np.float64)
    return np.asarray(np.linalg.lstsq(system, right)[0], np.float64)


def positive_root(square: float, linear: float, constant: float) -> float:
    """The positive root of a g^2 + b g = c for a, b >= 0 and c > 0: 2c / (b + sqrt(b^2 + 4ac))."""
    return 2 * constant / (linear + sqrt(linear**2 + 4 * square * constant))


def loss_tail(delta: float) -> float:
    """The t of `proved_root`: P(|Z| > t) <= delta, and t >= 1, which covers ln(1 + mu) in the loss of a removed row."""
    return max(1.0, -float(ndtri(delta / 2)))


def proved_root(*, residual: float, leverage: float, tail: float, epsilon: float) -> float:
    """Sqrt(gamma) that keeps the privacy loss of one posterior sample within epsilon.

    gamma R^2 mu / 2 + sqrt(gamma mu) R t + mu t^2 / 2 = epsilon, with |y - x^T theta_hat| <= R for the data at hand,
    mu >= C^2 / (lambda + lambda_min) for either neighbour and t = loss_tail(delta) (docs/proofs/regression.md, 4.3).
    Needs mu t^2 < 2 epsilon.
    """
    step = residual * sqrt(leverage)
    return positive_root(step**2 / 2, step * tail, epsilon - leverage * tail**2 / 2)
