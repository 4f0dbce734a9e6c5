"""The two sums that every method on sufficient statistics measures, and how far one row can move them."""

from math import sqrt

import numpy as np

from commingle.party_agent.private.regression.calibration import Privacy
from commingle.party_agent.private.regression.measuring import Measure
from commingle.party_agent.private.regression.problem import Floats, Sample


def gram_sensitivity(sample: Sample, privacy: Privacy) -> float:
    """||xx^T||_F <= C^2; ||xx^T - vv^T||_F^2 = |x|^4 + |v|^4 - 2 (x.v)^2 <= 2 C^4."""
    return sample.row_bound**2 * (sqrt(2) if privacy.replaces else 1.0)


def cross_sensitivity(sample: Sample, privacy: Privacy) -> float:
    """||x y|| <= C Y; ||x y - v w|| <= 2 C Y, attained by v = x, w = -y."""
    return sample.row_bound * sample.label_bound * (2.0 if privacy.replaces else 1.0)


def noisy_gram(sample: Sample, privacy: Privacy, measure: Measure, *, multiplier: float) -> Floats:
    """X^T X + noise, d x d, symmetric."""
    gram = sample.x.T @ sample.x
    return measure.measure(gram, sensitivity=gram_sensitivity(sample, privacy), multiplier=multiplier, symmetric=True)


def noisy_cross(sample: Sample, privacy: Privacy, measure: Measure, *, multiplier: float) -> Floats:
    """X^T y + noise, d."""
    cross = sample.x.T @ sample.y
    return measure.measure(cross, sensitivity=cross_sensitivity(sample, privacy), multiplier=multiplier)


def solve(system: Floats, right: Floats) -> Floats:
    """system^-1 right; the least-norm solution where the noise made the system singular. Post-processing."""
    return np.linalg.lstsq(system, right)[0].astype(np.float64)
