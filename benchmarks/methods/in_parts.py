"""SSP and AdaSSP as their papers measure: each sum by itself with an equal part of the budget.

Entries beside the diagonal of X^T X get as much noise as those on it, and AdaSSP measures the least eigenvalue (Wang
2018, algorithm 2; Kalaja 2020, algorithm 3, with classical noise). The product measures both sums at once
(`commingle.party_agent.private.regression.sums`). add_remove or replace_one.
"""

from collections.abc import Mapping
from math import log, sqrt
from types import MappingProxyType

import numpy as np

from commingle.party_agent.private.regression.floating import noisy_floor
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
from commingle.party_agent.private.regression.regress import ExactMethod
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
    """What they cost."""
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


def _ssp_loss(privacy: Privacy) -> Loss:
    return gaussian_loss(privacy, SSP_PARTS)


def _ssp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    s = multiplier(privacy, SSP_PARTS)
    gram = noisy_gram(sample, privacy, measure, multiplier=s)
    return Estimate(solve(gram, noisy_cross(sample, privacy, measure, multiplier=s)))


def _adassp_loss(privacy: Privacy) -> Loss:
    return gaussian_loss(privacy, ADASSP_PARTS)


def _adassp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    """(X^T X + noise + lambda I)^-1 (X^T y + noise), lambda = max(0, sd sqrt(d ln(2 d^2 / 0.05)) - floor)."""
    s, d, printed = multiplier(privacy, ADASSP_PARTS), sample.d, privacy.calibration in _PUBLISHED
    tail = log(2 * ADASSP_PARTS / privacy.delta) if printed else 2 * log(1.25 * ADASSP_PARTS / privacy.delta)
    floor = noisy_floor(sample, measure, multiplier=s, tail=sqrt(tail))
    ridge = max(0.0, s * gram_sensitivity(sample, privacy) * sqrt(d * log(2 * d**2 / _FAILURE)) - floor)
    system = noisy_gram(sample, privacy, measure, multiplier=s) + ridge * np.eye(d)
    return Estimate(solve(system, noisy_cross(sample, privacy, measure, multiplier=s)))


IN_PARTS: Mapping[str, ExactMethod] = MappingProxyType(
    {
        "ssp": ExactMethod("ssp", GAUSSIAN | _PUBLISHED, _NOTHING, _ssp_loss, None, _ssp),
        "adassp": ExactMethod("adassp", GAUSSIAN | _PUBLISHED, _NOTHING, _adassp_loss, None, _adassp),
    }
)
"""By name, as `regress.METHODS`; under any calibration."""
