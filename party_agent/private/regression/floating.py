"""The methods whose noise is floating point.

Objective perturbation (Kifer, Smith, Thakurta 2012, algorithm 1 with Gaussian noise); noisy gradient descent (Bassily,
Smith, Thakurta 2014 and Song, Chaudhuri, Sarwate 2013, projected); subsample and aggregate (Smith 2008 and Dwork, Smith
2010, with winsorised mean and quantile of Smith 2011); one sample of a ridge posterior, OPS and AdaOPS (Wang 2018, 3.2
and algorithm 1; docs/proofs/regression.md, 4): OPS takes lambda and gamma from public quantities (balanced variant;
Wang, Fienberg, Smola 2015), AdaOPS from private measurements of the rows.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import exp, isqrt, log, log1p, sqrt

import numpy as np
from numpy.random import Generator
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtri

from commingle.party_agent.private.regression.measuring import (
    FloatingPoint,
    Measure,
    Privacy,
    analytic_multiplier,
    gaussian_multiplier,
)
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample

STEPS = 50
_WIDENING = 4.0
_EXPONENT = 1 / 3 + 0.1
_FAILURE = 0.05
_EIGENVALUE_ERROR = 2.0**-23
"""Twice what an eigensolver may be off by, per column and C^2: 64 roundings of norms up to 2^23 C^2."""


def objpert(sample: Sample, privacy: Privacy, generator: Generator, *, radius: float = 1.0) -> Estimate:
    """Argmin over ||theta|| <= R of 1/2 ||y - X theta||^2 + Lambda/2 ||theta||^2 + b^T theta.

    Privacy: (epsilon, delta)-DP; add_remove with zeta = C (C R + Y), replace_one with twice that
    (docs/proofs/regression.md, 5). Floating-point noise; the minimiser is found to rounding.
    """
    ridge = 2 * sample.row_bound**2 / privacy.epsilon
    noise = noise_scale(sample, privacy, radius=radius) * generator.standard_normal(sample.d)
    linear = sample.x.T @ sample.y - noise
    hessian = sample.x.T @ sample.x + ridge * np.eye(sample.d)
    return Estimate(minimise_in_ball(hessian, linear, radius), {"ridge": ridge})


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


def noisysgd(
    sample: Sample, privacy: Privacy, generator: Generator, *, radius: float = 1.0, steps: int = STEPS
) -> Estimate:
    """The average of T steps theta <- project_R(theta - eta (X^T (X theta - y) + noise)), from 0.

    Every step reads every row: composition is then exact in zCDP, with no claim about subsampling, and the noise a
    step needs is that of mini-batches with their amplification, up to a constant.

    Privacy: add_remove or replace_one (sensitivity doubled); `gaussian_plan(privacy, T)` by composition of T
    Gaussian mechanisms of sensitivity C (C R + Y), the largest gradient of one row in the ball. Floating-point noise.
    """
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
        theta -= rate * gradient
        theta /= max(1.0, float(np.linalg.norm(theta)) / radius)  # project_R
        total += theta
    return Estimate(total / steps)


def subagg(
    sample: Sample, privacy: Privacy, generator: Generator, *, radius: float = 1.0, blocks: int | None = None
) -> Estimate:
    """Least squares on disjoint blocks, then a noisy widened-winsorised mean of every coordinate.

    Privacy: epsilon-DP under add_remove and replace_one alike: every row goes to a block of its own draw, so a
    neighbour changes one block's coefficients, cut to [-R, R]. The number of blocks is public; by default n over
    max(2 d, sqrt(n)). Floating-point noise.
    """
    n, d = sample.n, sample.d
    count = max(1, n // max(2 * d, isqrt(n), 1)) if blocks is None else blocks
    member = generator.integers(count, size=len(sample.y))
    fits = np.array([_least_squares(sample.x[member == b], sample.y[member == b]) for b in range(count)])
    cut = np.clip(fits, -radius, radius)
    share = privacy.epsilon / d
    theta = [_winsorised_mean(cut[:, j], share, radius, generator) for j in range(d)]
    return Estimate(np.array(theta))


def _least_squares(x: Floats, y: Floats) -> Floats:
    """Least squares of one block. Any function of it is as private, so a block that has no answer is 0."""
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


def ops(sample: Sample, privacy: Privacy, generator: Generator) -> Estimate:
    """A sample of the ridge posterior with lambda and gamma from public quantities.

    Privacy: add_remove as in the paper, replace_one by group privacy, given that there are no more than n rows: so the
    product has it under replace_one only.
    (epsilon, delta)-DP (docs/proofs/regression.md, 4.4). Floating-point noise.
    """
    asked = privacy.as_add_remove()
    ridge = ops_ridge(sample, asked)
    residual = coefficient_bound(sample, ridge) * sample.row_bound + sample.label_bound
    leverage = sample.row_bound**2 / ridge
    root = proved_root(residual=residual, leverage=leverage, tail=loss_tail(asked.delta), epsilon=asked.epsilon)
    theta = sample_posterior(sample, generator, ridge=ridge, inverse_variance=root**2)
    return Estimate(theta, {"ridge": ridge, "inverse_variance": root**2})


def ops_ridge(sample: Sample, asked: Privacy) -> float:
    epsilon, tail, d = asked.epsilon, log(2 / asked.delta), sample.d
    # C1 = (d/2 + sqrt(d ln(1/rho)) + ln(1/rho)) ln(2/delta) / min(eps/2, sqrt(eps/2))^2
    c1 = (d / 2 + sqrt(d * log(1 / _FAILURE)) + log(1 / _FAILURE)) * tail / min(epsilon / 2, sqrt(epsilon / 2)) ** 2
    balanced = (c1 * sample.row_bound**4 * sample.label_bound**2 * sample.n / 2) ** (1 / 3)
    return float(max(balanced, (1 + tail) * sample.row_bound**2 / epsilon))


def coefficient_bound(sample: Sample, ridge: float) -> float:
    """||theta_hat|| <= min(sqrt(n) Y / sqrt(2 lambda), n C Y / lambda)."""
    n, bound = sample.n, sample.label_bound
    return min(sqrt(n) * bound / sqrt(2 * ridge), n * sample.row_bound * bound / ridge)


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
    asked = privacy.as_add_remove()
    return adaptive_sample(sample, asked, generator, proved_constants(asked))


def adaptive_sample(sample: Sample, asked: Privacy, generator: Generator, constants: AdaopsConstants) -> Estimate:
    """AdaOPS; `asked` is an add_remove guarantee."""
    measure = FloatingPoint(generator)
    floor = noisy_floor(sample, measure, multiplier=constants.multiplier, tail=constants.tail)
    floor = max(0.0, floor - constants.reserve * floor_sensitivity(sample))
    level = chosen_level(sample, asked, constants, floor)  # u = lambda + lambda_min
    ridge = level - floor
    residual = _residual_bound(sample, measure, constants, ridge=ridge, level=level)
    root = constants.root(residual, level, sample.row_bound)
    theta = sample_posterior(sample, generator, ridge=ridge, inverse_variance=root**2)
    published = {"least_eigenvalue": floor, "ridge": ridge, "residual_bound": residual, "inverse_variance": root**2}
    return Estimate(theta, published)


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

    AdaOPS takes lambda_min from a measurement, so H may be singular if its noise is beyond its tail, which delta pays
    for. Whether that happens depends on rows, so it must not show as a failure: K is then a root of the nearest H that
    is not singular.
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
