"""Second and cross moments of bounded rows as the public second moment paper measures them; DP-PMTOLSE and DP-OLSE.

Source: Enhancing DP linear regression via public second-moment, 2025. Each moment is measured by itself, with equal
noise on and above the diagonal; replace_one. The product measures both at once
(`commingle.party_agent.private.regression.public_moment`).

DP-OLSE is its baseline, without a transform. The paper takes its clipping radii from the private rows' own second
moments, which is NOT PRIVATE; `radii_from_rows` does that, for benchmarks only.
"""

from dataclasses import dataclass
from math import inf, nextafter, sqrt

import numpy as np

from benchmarks.methods.in_parts import measure_upper
from commingle.party_agent.private.regression.measuring import Measure, multiplier_within, planned_loss
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample
from commingle.party_agent.private.regression.public_moment import ETA, PublicMoments, tail
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


@dataclass(frozen=True, slots=True)
class Radii:
    """Where rows and labels are clipped: `row_bound` and `label_bound` of the sample."""

    row: float
    label: float


def radii_from_rows(x: Floats, y: Floats, *, eta: float = ETA) -> Radii:
    """The paper's radii, from the rows' own second moments. NOT PRIVATE: benchmarks only."""
    trace = float(np.sum(x**2)) / len(x)
    return _radii(trace, float(np.mean(y**2)), x.shape, eta)


def radii_from_public(public: PublicMoments, n: int, *, eta: float = ETA) -> Radii:
    """The same from public second moments and the public number of private rows."""
    shape = (n, len(public.features))
    return _radii(float(np.trace(public.features)), public.label, shape, eta)


def _radii(trace: float, label: float, shape: tuple[int, ...], eta: float) -> Radii:
    """sqrt(Tr(Sigma) + d ln(2n/eta)) and sqrt(sigma^2 + ln(2n/eta))."""
    n, d = shape
    spread = tail(n, eta) - 1
    return Radii(sqrt(trace + d * spread), sqrt(label + spread))


def dp_olse(sample: Sample, rho: float, measure: Measure, *, distance: float = TIGHT) -> Estimate:
    """Coefficients (X^T X/n + G)^-1 (X^T y/n + g), G and g in the sample's own bounds.

    Privacy: replace_one; `loss_of_both(rho)`, provided that the sample's bounds were not taken from its rows.
    """
    moment = noisy_second_moment(sample, rho, measure, distance=distance)
    cross = noisy_cross_moment(sample, rho, measure)
    published = {"second_moment": moment.ravel().tolist(), "cross_moment": cross.tolist()}
    return Estimate(np.linalg.lstsq(moment, cross)[0].astype(np.float64), published)
