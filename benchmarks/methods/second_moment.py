"""Second and cross moments of bounded rows as the public second moment paper measures them, and its DP-PMTOLSE.

Source: Enhancing DP linear regression via public second-moment, 2025. Each moment is measured by itself, with equal
noise on and above the diagonal; replace_one. The product measures both at once
(`commingle.party_agent.private.regression.public_moment`).
"""

from math import inf, nextafter, sqrt

import numpy as np

from benchmarks.methods.in_parts import measure_upper
from commingle.party_agent.private.regression.measuring import Measure, multiplier_within, planned_loss
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample
from commingle.party_agent.private.regression.public_moment import PublicMoments
from commingle.shared.dp.accounting import Loss

TIGHT = nextafter(sqrt(2), inf)
"""||u u^T - v v^T||_F^2 = |u|^4 + |v|^4 - 2 (u.v)^2 <= 2 R^4."""
TRIANGLE = 2.0
"""As printed, by the triangle inequality: proved, and noisier."""


def measured_loss(rho: float, parts: int) -> Loss:
    """What `parts` measurements at `rho` each cost; public."""
    one = Loss(planned_loss(multiplier_within(rho)))
    return sum((one for _ in range(parts - 1)), start=one)


def noisy_second_moment(sample: Sample, rho: float, measure: Measure, *, distance: float = TIGHT) -> Floats:
    """X^T X / n + G, d x d, G symmetric with sd `distance` R^2 / (sqrt(2 rho) n).

    Privacy: replace_one; rho-zCDP (Bun, Steinke 2016, lemma 2.5).
    """
    sensitivity, s = distance * sample.row_bound**2, multiplier_within(rho)
    return measure_upper(sample.x.T @ sample.x, measure, sensitivity=sensitivity, multiplier=s) / sample.n


def noisy_cross_moment(sample: Sample, rho: float, measure: Measure) -> Floats:
    """X^T y / n + g, d, with sd 2 R L / (sqrt(2 rho) n): ||u y - v w|| <= 2 R L, attained by v = u, w = -y.

    Privacy: replace_one; rho-zCDP.
    """
    sensitivity = 2 * sample.row_bound * sample.label_bound
    total = measure.measure(sample.x.T @ sample.y, sensitivity=sensitivity, multiplier=multiplier_within(rho))
    return total / sample.n


def dp_pmtolse_loss(rho: float) -> Loss:
    """What `dp_pmtolse` costs, 2 rho; public."""
    return measured_loss(rho, 2)


def dp_pmtolse(
    sample: Sample, public: PublicMoments, rho: float, measure: Measure, *, distance: float = TIGHT
) -> Estimate:
    """Coefficients sigma_B Sigma_B^-1/2 (X~^T X~/n + G)^-1 (X~^T y~/n + g).

    Privacy: replace_one; `dp_pmtolse_loss(rho)`. `sample` is made by `transform` with the same public moments.
    """
    moment = noisy_second_moment(sample, rho, measure, distance=distance)
    cross = noisy_cross_moment(sample, rho, measure)
    beta = sqrt(public.label) * public.root(-0.5) @ np.linalg.lstsq(moment, cross)[0]
    return Estimate(beta.astype(np.float64), dp_pmtolse_loss(rho))
