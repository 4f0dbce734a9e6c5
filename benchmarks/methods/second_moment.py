"""Second and cross moments of bounded rows as the public second moment paper measures them; DP-PMTOLSE and DP-OLSE.

Source: Enhancing DP linear regression via public second-moment, 2025. Each moment is measured by itself, with equal
noise on and above the diagonal; replace_one. The product measures both at once
(`commingle.party_agent.private.regression.sums`).

DP-OLSE is its baseline, without a transform, of rows that are `clipped`.
"""

from math import inf, nextafter, sqrt

import numpy as np

from benchmarks.methods.published import measure_upper
from commingle.party_agent.private.regression.measuring import Measure, multiplier_within, planned_loss
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample, clip_sample
from commingle.party_agent.private.regression.sums import ETA, PublicMoments, tail
from commingle.shared.dp.accounting import Loss

TIGHT = nextafter(sqrt(2), inf)
"""||u u^T - v v^T||_F^2 = |u|^4 + |v|^4 - 2 (u.v)^2 <= 2 R^4."""
TRIANGLE = 2.0
"""As printed, by the triangle inequality: proved, and noisier."""


def loss_of_both(rho: float) -> Loss:
    """What a measurement of each moment at `rho` costs, 2 rho; public."""
    one = Loss(planned_loss(multiplier_within(rho)))
    return one + one


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


def dp_pmtolse(
    sample: Sample, public: PublicMoments, rho: float, measure: Measure, *, distance: float = TIGHT
) -> Estimate:
    """Coefficients sigma_B Sigma_B^-1/2 (X~^T X~/n + G)^-1 (X~^T y~/n + g).

    Privacy: replace_one; `loss_of_both(rho)`. `sample` is made by `transform` with the same public moments.
    """
    moment = noisy_second_moment(sample, rho, measure, distance=distance)
    cross = noisy_cross_moment(sample, rho, measure)
    beta = sqrt(public.label) * public.root(-0.5) @ np.linalg.lstsq(moment, cross)[0]
    return Estimate(beta.astype(np.float64))


def clipped(x: Floats, y: Floats, moments: PublicMoments, *, eta: float = ETA) -> Sample:
    """Rows and labels cut at sqrt(Tr(Sigma) + d ln(2n/eta)) and sqrt(sigma^2 + ln(2n/eta)).

    The paper takes Sigma and sigma^2 from these rows themselves, which is NOT PRIVATE: benchmarks only.
    """
    spread = tail(len(y), eta) - 1
    row_bound = sqrt(float(np.trace(moments.features)) + x.shape[1] * spread)
    return clip_sample(x, y, row_bound=row_bound, label_bound=sqrt(moments.label + spread))


def dp_olse(sample: Sample, rho: float, measure: Measure, *, distance: float = TIGHT) -> Estimate:
    """Coefficients (X^T X/n + G)^-1 (X^T y/n + g), G and g in the sample's own bounds.

    Privacy: replace_one; `loss_of_both(rho)`, provided that the sample's bounds were not taken from its rows.
    """
    moment = noisy_second_moment(sample, rho, measure, distance=distance)
    cross = noisy_cross_moment(sample, rho, measure)
    published = {"second_moment": moment.ravel().tolist(), "cross_moment": cross.tolist()}
    return Estimate(np.linalg.lstsq(moment, cross)[0].astype(np.float64), published)
