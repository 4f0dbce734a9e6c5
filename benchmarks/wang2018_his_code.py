"""Methods of Wang's Table 3 as the author's public code has them, where that differs from his paper.

Written again from the formulas of ObjPert.m, suffstats_perturb.m, adassp.m, adaops.m and exp_uci.m
(yuxiangw/optimal_dp_linear_regression at 7686b70). Row and label bounds are 1, delta is 1e-6 at every n. No proof
covers SSP and AdaOPS as they stand here, and AdaSSP has the constants of the paper: benchmark only.
"""

from collections.abc import Mapping
from math import exp, log, log1p, sqrt

import numpy as np
from numpy.random import Generator
from scipy.optimize import minimize_scalar

from benchmarks.wang2018_methods import Fit
from commingle.party_agent.private.regression.calibration import Privacy
from commingle.party_agent.private.regression.floating import minimise_in_ball, noise_scale
from commingle.party_agent.private.regression.posterior import positive_root
from commingle.party_agent.private.regression.problem import Floats, Sample
from commingle.party_agent.private.regression.sums import solve

_HIS_DELTA = 1e-6  # the paper's text: min(1e-6, 1/n^2)
_LOG_DELTA = log(6 / _HIS_DELTA)
_FAILURE = 0.05


def _his_ssp(sample: Sample, privacy: Privacy, draw: Generator) -> Floats:
    """X^T X + I; noise sqrt(ln(4/delta)) / epsilon, all d^2 entries of the noise independent."""
    s = sqrt(log(4 / _HIS_DELTA)) / privacy.epsilon
    gram = sample.x.T @ sample.x + np.eye(sample.d) + s * draw.standard_normal((sample.d, sample.d))
    return solve(gram, sample.x.T @ sample.y + s * draw.standard_normal(sample.d))


def _his_objpert(*, noise: bool = False, ridge: bool = False, halved: bool = False) -> Fit:
    """Objective perturbation as in the product, or with any of three things as his ObjPert.m has it.

    noise: b of deviation 2 sqrt(4 ln(2/delta) + 2 epsilon) / epsilon^2, 0.71 / epsilon times the product's.
    ridge: Lambda = 2 / epsilon^2, not 2 / epsilon.
    halved: argmin of ||R theta - v/2||, R^T R = H, R^T v = X^T y - b, not of ||R theta - v||: labels and b count half.
    """

    def fit(sample: Sample, privacy: Privacy, draw: Generator) -> Floats:
        epsilon = privacy.epsilon
        his = 2 * sqrt(4 * log(2 / _HIS_DELTA) + 2 * epsilon) / epsilon**2
        scale = his if noise else noise_scale(sample, privacy, radius=1.0)
        hessian = sample.x.T @ sample.x + 2 / epsilon ** (2 if ridge else 1) * np.eye(sample.d)
        linear = sample.x.T @ sample.y - scale * draw.standard_normal(sample.d)
        return minimise_in_ball(hessian, linear / (2 if halved else 1), 1.0)

    return fit


def symmetric_noise(d: int, draw: Generator) -> Floats:
    """(Z + Z^T) / 2 of d^2 standard normal entries: off the diagonal half the variance that the paper's text has."""
    noise = draw.standard_normal((d, d))
    return (noise + noise.T) / 2


def _floor(gram: Floats, draw: Generator, *, share: float) -> float:
    """max(0, lambda_min + sqrt(l) Z / share - l / share), l = ln(6/delta)."""
    least = float(np.linalg.eigvalsh(gram)[0])
    return max(0.0, least + sqrt(_LOG_DELTA) / share * draw.standard_normal() - _LOG_DELTA / share)


def _his_adassp(sample: Sample, privacy: Privacy, draw: Generator) -> Floats:
    """X^T X + I in place of X^T X, and half the variance off the diagonal."""
    d, s = sample.d, sqrt(_LOG_DELTA) / (privacy.epsilon / 3)
    gram = sample.x.T @ sample.x + np.eye(d)
    floor = _floor(gram, draw, share=privacy.epsilon / 3)
    ridge = max(0.0, s * sqrt(d * log(2 * d**2 / _FAILURE)) - floor)
    cross = sample.x.T @ sample.y + s * draw.standard_normal(d)
    return solve(gram + s * symmetric_noise(d, draw) + ridge * np.eye(d), cross)


def _his_adaops(sample: Sample, privacy: Privacy, draw: Generator) -> Floats:
    """X^T X + I, other epsilon-bar and lambda_min + lambda, a cap on the Lipschitz constant, gamma with a term of OPS.

    u = lambda + floor, L = min(exp(noisy ln(1 + |theta|)), 1 + sqrt(2 sqrt(n) / u)), and sqrt(gamma) is the positive
    root of L^2 g^2 / (2 (u + 1)) + L sqrt(l/u) g = epsilon/2 - (1 + l) / (2u), l = ln(6/delta).
    """
    epsilon, d = privacy.epsilon, sample.d
    gram, cross = sample.x.T @ sample.x + np.eye(d), sample.x.T @ sample.y
    floor = _floor(gram, draw, share=epsilon / 4)
    level = _his_level(d, epsilon, floor)
    hessian = gram + (level - floor) * np.eye(d)
    theta = np.linalg.solve(hessian, cross)
    step = log1p(1 / level) / (epsilon / 4)
    size = log(1 + float(np.linalg.norm(theta))) + step * (sqrt(_LOG_DELTA) * draw.standard_normal() + _LOG_DELTA)
    lipschitz = min(exp(min(size, 700.0)), 1 + sqrt(2 * sqrt(sample.n) / level))  # exp(710) is no number
    left = epsilon / 2 - (1 + _LOG_DELTA) / (2 * level)
    root = positive_root(lipschitz**2 / (2 * (level + 1)), lipschitz * sqrt(_LOG_DELTA / level), left)
    noise = np.linalg.solve(np.linalg.cholesky(hessian).T, draw.standard_normal(d))
    return (theta + noise / root).astype(np.float64)


def _his_level(d: int, epsilon: float, floor: float) -> float:
    """The u >= max(floor, 2 (1 + l) / epsilon) that is least in C1 (1 + 1/u)^(2 C2) / u + u, convex.

    C1 and C2 as in the paper, but for epsilon-bar, which solves (l/2) e^2 + e = epsilon/4, not e^2 / (2 l) + e.
    """
    part = positive_root(_LOG_DELTA / 2, 1.0, epsilon / 4)
    c1 = (d / 2 + sqrt(d * log(1 / _FAILURE)) + log(1 / _FAILURE)) * _LOG_DELTA / part**2
    c2 = _LOG_DELTA / (epsilon / 4)
    least = max(2 * (1 + _LOG_DELTA) / epsilon, floor)
    most = exp(1) * c1 / (2 * c2) + 2 * c2  # the value at u = 2 C2

    def log_objective(log_level: float) -> float:
        steep = log(c1) + 2 * c2 * log1p(exp(-log_level)) - log_level
        return float(np.logaddexp(steep, log_level))

    if most <= least:
        return least
    found = minimize_scalar(log_objective, bounds=(log(least), log(most)), method="bounded")
    return max(least, exp(float(found.x)))


HIS_CODE: Mapping[str, Fit] = {
    "AdaOPS, his code": _his_adaops,
    "AdaSSP, his code": _his_adassp,
    "ObjPert, his code": _his_objpert(noise=True, ridge=True, halved=True),
    "ObjPert, his noise": _his_objpert(noise=True),
    "ObjPert, his ridge": _his_objpert(ridge=True),
    "ObjPert, halved": _his_objpert(halved=True),
    "SSP, his code": _his_ssp,
}
HEADLINE = ("AdaOPS", "AdaSSP")
"""The paper's own two methods."""
