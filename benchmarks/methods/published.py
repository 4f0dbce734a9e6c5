"""Constants as papers print them, which no user is offered: for reproducing what the papers report.

SSP and AdaSSP measure each sum by itself with an equal part of the budget: entries beside the diagonal of X^T X get as
much noise as those on it, and AdaSSP measures the least eigenvalue (Wang 2018, algorithm 2; Kalaja 2020, algorithm 3,
with classical noise). The product measures both sums at once (`commingle.party_agent.private.regression.sums`).
Published constants of SSP, AdaSSP and AdaOPS under-noise per part, those of OPS at epsilon near 1
(docs/proofs/regression.md, 3.4 and 4.6). add_remove or replace_one.
"""

from collections.abc import Callable, Mapping
from math import log, sqrt

import numpy as np
from numpy.random import Generator

from commingle.party_agent.private.regression.floating import (
    AdaopsConstants,
    adaptive_sample,
    coefficient_bound,
    noisy_floor,
    ops_ridge,
    positive_root,
    sample_posterior,
)
from commingle.party_agent.private.regression.measuring import (
    GAUSSIAN,
    Measure,
    NoiseCalibration,
    Privacy,
    gaussian_multiplier,
    planned_loss,
    require_calibration,
)
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample
from commingle.party_agent.private.regression.regress import METHODS, ExactMethod, FloatingMethod
from commingle.party_agent.private.regression.sums import solve
from commingle.shared.dp.accounting import ZERO, Loss

SSP_PARTS, ADASSP_PARTS = 2, 3
_PUBLISHED = frozenset({NoiseCalibration.PUBLISHED})
_FAILURE = 0.05
_NOTHING = "None where the constants are the paper's."


def published_multiplier(privacy: Privacy, parts: int) -> float:
    """sqrt(ln(2 parts / delta)) parts / epsilon: noise of each of `parts` measurements (Wang 2018).

    A part does not keep the (epsilon, delta)/parts that the paper's proof gives it (it delivers 2.65 times delta/3 at
    epsilon 1, delta 1e-6); all parts together do keep (epsilon, delta) wherever it was computed, because adding up
    epsilons is wasteful.
    """
    require_calibration(privacy, _PUBLISHED)
    return sqrt(log(2 * parts / privacy.delta)) * parts / privacy.epsilon


def multiplier(privacy: Privacy, parts: int) -> float:
    """Noise of each of `parts` measurements, as printed or by a proved calibration."""
    printed = privacy.calibration in _PUBLISHED
    return published_multiplier(privacy, parts) if printed else gaussian_multiplier(privacy, parts)


def gaussian_loss(privacy: Privacy, parts: int) -> Loss:
    one = planned_loss(multiplier(privacy, parts))
    return Loss(sum((one for _ in range(parts)), start=ZERO))


def gram_sensitivity(sample: Sample, privacy: Privacy) -> float:
    """||xx^T||_F <= C^2; ||xx^T - vv^T||_F^2 = |x|^4 + |v|^4 - 2 (x.v)^2 <= 2 C^4."""
    return sample.row_bound**2 * (sqrt(2) if privacy.replaces else 1.0)


def cross_sensitivity(sample: Sample, privacy: Privacy) -> float:
    """||x y|| <= C Y; ||x y - v w|| <= 2 C Y, attained by v = x, w = -y."""
    return sample.row_bound * sample.label_bound * (2.0 if privacy.replaces else 1.0)


def measure_upper(value: Floats, measure: Measure, *, sensitivity: float, multiplier: float) -> Floats:
    """A symmetric matrix with equal noise on and above the diagonal, mirrored."""
    upper = np.triu_indices(len(value))
    full = np.zeros_like(value)
    full[upper] = measure.measure(value[upper], sensitivity=sensitivity, multiplier=multiplier)
    return full + np.triu(full, 1).T


def noisy_gram(sample: Sample, privacy: Privacy, measure: Measure, *, multiplier: float) -> Floats:
    """X^T X + noise, d x d, symmetric."""
    sensitivity = gram_sensitivity(sample, privacy)
    return measure_upper(sample.x.T @ sample.x, measure, sensitivity=sensitivity, multiplier=multiplier)


def noisy_cross(sample: Sample, privacy: Privacy, measure: Measure, *, multiplier: float) -> Floats:
    """X^T y + noise, d."""
    cross = sample.x.T @ sample.y
    return measure.measure(cross, sensitivity=cross_sensitivity(sample, privacy), multiplier=multiplier)


def _ssp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    s = multiplier(privacy, SSP_PARTS)
    gram = noisy_gram(sample, privacy, measure, multiplier=s)
    return Estimate(solve(gram, noisy_cross(sample, privacy, measure, multiplier=s)))


def _adassp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    """(X^T X + noise + lambda I)^-1 (X^T y + noise), lambda = max(0, sd sqrt(d ln(2 d^2 / 0.05)) - floor)."""
    s, d, printed = multiplier(privacy, ADASSP_PARTS), sample.d, privacy.calibration in _PUBLISHED
    tail = log(2 * ADASSP_PARTS / privacy.delta) if printed else 2 * log(1.25 * ADASSP_PARTS / privacy.delta)
    floor = noisy_floor(sample, measure, multiplier=s, tail=sqrt(tail))
    ridge = max(0.0, s * gram_sensitivity(sample, privacy) * sqrt(d * log(2 * d**2 / _FAILURE)) - floor)
    system = noisy_gram(sample, privacy, measure, multiplier=s) + ridge * np.eye(d)
    return Estimate(solve(system, noisy_cross(sample, privacy, measure, multiplier=s)))


def _approximate_loss(privacy: Privacy) -> Loss:
    require_calibration(privacy, _PUBLISHED)
    return Loss.approximate(privacy.epsilon, privacy.delta)


def _ops(sample: Sample, privacy: Privacy, generator: Generator) -> Estimate:
    asked = privacy.as_add_remove()
    ridge = ops_ridge(sample, asked)
    theta = sample_posterior(sample, generator, ridge=ridge, inverse_variance=published_root(sample, asked, ridge) ** 2)
    return Estimate(theta)


def published_root(sample: Sample, asked: Privacy, ridge: float) -> float:
    """Sqrt(gamma) of OPS."""
    tail, square = log(2 / asked.delta), sample.row_bound**2
    lipschitz = sample.row_bound * (coefficient_bound(sample, ridge) * sample.row_bound + sample.label_bound)
    # g^2 L^2/(lambda + C^2) + g L sqrt(ln(2/delta)/lambda) = epsilon - (1 + ln(2/delta)) C^2/(2 lambda)
    return positive_root(
        lipschitz**2 / (ridge + square),
        lipschitz * sqrt(tail / ridge),
        asked.epsilon - (1 + tail) * square / (2 * ridge),
    )


def _adaops(sample: Sample, privacy: Privacy, generator: Generator) -> Estimate:
    asked = privacy.as_add_remove()
    return adaptive_sample(sample, asked, generator, published_constants(asked))


def published_constants(asked: Privacy) -> AdaopsConstants:
    """Constants of AdaOPS, whose bound on the eigenvalue fails too often."""
    epsilon, log_delta = asked.epsilon, log(6 / asked.delta)
    # (e^2/2) [1/ln(6/delta) + (1 + ln(6/delta))/ln(6/delta)] + e = epsilon/2
    part = positive_root((2 + log_delta) / (2 * log_delta), 1.0, epsilon / 2)

    def root(residual: float, level: float, bound: float) -> float:
        return sqrt(level * part**2 / (log_delta * (bound * residual) ** 2))

    return AdaopsConstants(
        multiplier=sqrt(log_delta) / (epsilon / 4),
        tail=sqrt(log_delta),
        reserve=0.0,
        log_delta=log_delta,
        least=(1 + log_delta) / (2 * epsilon),
        root=root,
    )


def _sums_in_parts(calibrations: frozenset[NoiseCalibration]) -> dict[str, ExactMethod]:
    def loss_of(parts: int) -> Callable[[Privacy], Loss]:
        def loss(privacy: Privacy) -> Loss:
            require_calibration(privacy, calibrations)
            return gaussian_loss(privacy, parts)

        return loss

    return {
        "ssp": ExactMethod("ssp", calibrations, _NOTHING, loss_of(SSP_PARTS), None, _ssp),
        "adassp": ExactMethod("adassp", calibrations, _NOTHING, loss_of(ADASSP_PARTS), None, _adassp),
    }


IN_PARTS: Mapping[str, ExactMethod] = _sums_in_parts(GAUSSIAN | _PUBLISHED)
"""By name, as `regress.METHODS`; under any calibration."""
AS_PUBLISHED: Mapping[str, ExactMethod | FloatingMethod] = {
    **_sums_in_parts(_PUBLISHED),
    "ops": FloatingMethod("ops", _PUBLISHED, _NOTHING, _approximate_loss, None, _ops),
    "adaops": FloatingMethod("adaops", _PUBLISHED, _NOTHING, _approximate_loss, None, _adaops),
}
"""The same with the papers' constants."""


def method_with(name: str, calibration: NoiseCalibration) -> ExactMethod | FloatingMethod:
    """A method as its paper prints it, where asked for and the product has it otherwise; the product's else."""
    printed = calibration is NoiseCalibration.PUBLISHED and name in AS_PUBLISHED
    return (AS_PUBLISHED if printed else METHODS)[name]
