"""X^T X and X^T y with noise: one Gaussian measurement of both together (docs/proofs/regression.md, 2.2 and 3)."""

from fractions import Fraction
from math import log, sqrt

import numpy as np

from commingle.party_agent.private.regression.calibration import Privacy, gaussian_multiplier, gaussian_plan
from commingle.party_agent.private.regression.measuring import Measure, Parts
from commingle.party_agent.private.regression.problem import Floats, Sample
from commingle.shared.dp.accounting import Loss

WIDER = Fraction(9, 4)
"""What a measurement of the sums costs under replace_one, over what it costs under add_remove, in rho."""
_FAILURE = 0.05


def sums_loss(privacy: Privacy) -> Loss:
    """What both sums cost together; public."""
    return gaussian_plan(privacy, 1)


def sums_sensitivity(row_bound: float, *, replaces: bool) -> float:
    """Of X^T X and (C/Y) X^T y together: sqrt(2) C^2 if a row is there or not, 3 C^2 / sqrt(2) if it is replaced.

    For |x|, |v| <= C at an angle t >= 0 in cosine, and labels Y and -Y, C^2 2 (1 - t^2) + 2 (1 + t) of squares is
    largest at t = 1/2: 9/2, where measuring one beside the other would have to pay for 2 + 4.
    """
    return row_bound**2 * (3 / sqrt(2) if replaces else sqrt(2))


def begin_sums(sample: Sample, privacy: Privacy, measure: Measure, *, rounds: int = 1) -> Parts:
    """A measurement of X^T X, weight 1, and of `rounds` cross sums of `cross_weight`."""
    return measure.begin(
        sensitivity=sums_sensitivity(sample.row_bound, replaces=privacy.replaces),
        multiplier=gaussian_multiplier(privacy, 1),
        entries=sample.d * (sample.d + rounds),
    )


def cross_weight(row_bound: float, label_bound: float, *, rounds: int = 1) -> float:
    """C^2 / (T Y^2), with which T sums X^T r of labels |r| <= Y count as one of (C/Y) X^T y does."""
    return (row_bound / label_bound) ** 2 / rounds


def noisy_sums(sample: Sample, privacy: Privacy, measure: Measure) -> tuple[Floats, Floats]:
    """X^T X + noise, d x d, symmetric, and X^T y + noise, d.

    The noise has sd = s D on the diagonal of X^T X, s the multiplier and D the sensitivity, sd / sqrt(2) beside it, and
    sd Y / C in X^T y.

    Privacy: add_remove or replace_one; `sums_loss(privacy)`.
    """
    parts = begin_sums(sample, privacy, measure)
    gram = parts.part(sample.x.T @ sample.x, symmetric=True)
    weight = cross_weight(sample.row_bound, sample.label_bound)
    return gram, parts.part(sample.x.T @ sample.y, weight=weight)


def gram_noise(sample: Sample, privacy: Privacy) -> float:
    """Standard deviation of the noise on the diagonal of X^T X."""
    return gaussian_multiplier(privacy, 1) * sums_sensitivity(sample.row_bound, replaces=privacy.replaces)


def norm_bound(d: int) -> float:
    """sqrt(2 d) + sqrt(2 ln 20): what the noise's largest eigenvalue exceeds 5 % of the time at most, in its sd.

    Of a symmetric d x d matrix with variance 1 on the diagonal and 1/2 beside it: its mean is at most sqrt(2 d)
    (Slepian), and it moves by no more than the matrix does, in Frobenius norm (Davidson, Szarek 2001, II.11).
    """
    return sqrt(2 * d) + sqrt(2 * log(1 / _FAILURE))


def solve(system: Floats, right: Floats) -> Floats:
    """system^-1 right; the least-norm solution where the noise made the system singular. Post-processing."""
    return np.linalg.lstsq(system, right)[0].astype(np.float64)
