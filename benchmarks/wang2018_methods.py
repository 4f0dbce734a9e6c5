"""The methods of Wang's Table 3, add/remove neighbours, published constants, and what his code does differently.

The pre-processing reads private rows (means, deviations, the largest label): benchmark only. The published constants of
SSP, AdaSSP and AdaOPS under-noise per part, those of OPS at epsilon near 1: docs/proofs/regression.md, 3.4 and 4.6.
"""

from collections.abc import Callable, Mapping, Sequence
from math import log, sqrt

import numpy as np
from numpy.random import Generator

from benchmarks.methods import mapping
from benchmarks.methods.published import method_with
from benchmarks.wang2018_data import FOLDS, Table
from commingle.party_agent.private.regression.calibration import NoiseCalibration, Privacy
from commingle.party_agent.private.regression.floating import minimise_in_ball, noise_scale
from commingle.party_agent.private.regression.measuring import FloatingPoint
from commingle.party_agent.private.regression.methods import ExactMethod
from commingle.party_agent.private.regression.posterior import ridge_fit
from commingle.party_agent.private.regression.problem import Floats, Neighbours, Sample, clip_sample
from commingle.party_agent.private.regression.sufficient import solve

Fit = Callable[[Sample, Privacy, Generator], Floats]
_HIS_DELTA = 1e-6  # at every n; the paper's text: min(1e-6, 1/n^2)


def published(epsilon: float, delta: float) -> Privacy:
    """As in the paper."""
    return Privacy(epsilon, delta, Neighbours.ADD_REMOVE, NoiseCalibration.PUBLISHED)


def product_fit(name: str) -> Fit:
    """The coefficients of a method of the product, or as its paper prints it, with floating-point noise."""

    def fit(sample: Sample, privacy: Privacy, draw: Generator) -> Floats:
        method = method_with(name, privacy.calibration)
        if isinstance(method, ExactMethod):
            return method.run(sample, privacy, FloatingPoint(draw)).coefficients
        return method.run(sample, privacy, draw).coefficients

    return fit


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


FIXED: Mapping[str, Fit] = {
    "trivial": lambda sample, _privacy, _draw: np.zeros(sample.d),
    "non_private": lambda sample, _privacy, _draw: ridge_fit(sample, 1.0),
}
PRIVATE: Mapping[str, Fit] = {name: product_fit(name.lower()) for name in ("ObjPert", "OPS", "SSP", "AdaOPS", "AdaSSP")}
HIS_CODE: Mapping[str, Fit] = {
    "ObjPert, his code": _his_objpert(noise=True, ridge=True, halved=True),
    "ObjPert, his noise": _his_objpert(noise=True),
    "ObjPert, his ridge": _his_objpert(ridge=True),
    "ObjPert, halved": _his_objpert(halved=True),
    "SSP, his code": _his_ssp,
}


def mapped_errors(
    table: Table, epsilon: float, fits: Mapping[str, Fit], *, runs: int, folds: Sequence[int] = range(FOLDS)
) -> dict[str, Floats]:
    """Test MSE, runs x folds, after z-scoring columns, dividing rows by their norms, and centring and scaling y."""
    how = mapping.Mapping.PER_ROW
    scales = mapping.scales_from_rows(table.x, table.y, mapping=how, intercept=False)
    mapped = mapping.map_rows(table.x, table.y, mapping=how, scales=scales, intercept=False)
    privacy = published(epsilon, table.delta)
    found = {name: np.empty((1 if name in FIXED else runs, len(folds))) for name in fits}
    for place, fold in enumerate(folds):
        test = table.fold == fold
        sample = clip_sample(mapped.x[~test], mapped.y[~test], row_bound=1.0, label_bound=1.0)
        for name, errors in found.items():
            for run in range(len(errors)):
                theta = fits[name](sample, privacy, np.random.default_rng([run, fold]))
                errors[run, place] = np.mean((mapped.y[test] - mapped.x[test] @ theta) ** 2)
    return found
