"""DP-OLSE: the baseline of the public second moment paper, without a transform.

The paper takes its clipping radii from the private rows' own second moments, which is NOT PRIVATE. `radii_from_rows`
does that, for benchmarks only.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from benchmarks.methods.second_moment import TIGHT, measured_loss, noisy_cross_moment, noisy_second_moment
from commingle.party_agent.private.regression.measuring import Measure
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample
from commingle.party_agent.private.regression.public_moment import ETA, PublicMoments, tail
from commingle.shared.dp.accounting import Loss

GUARANTEE = (
    "Gaussian measurements of a second moment and of a cross moment; 2 rho-zCDP under replace_one if the clipping "
    "radii come from public numbers, no guarantee if they come from the rows."
)


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


def dp_olse_loss(rho: float) -> Loss:
    """What `dp_olse` costs, 2 rho; public."""
    return measured_loss(rho, 2)


def dp_olse(sample: Sample, rho: float, measure: Measure, *, distance: float = TIGHT) -> Estimate:
    """Coefficients (X^T X/n + G)^-1 (X^T y/n + g), G and g in the sample's own bounds.

    Privacy: replace_one; `dp_olse_loss(rho)`, provided that the sample's bounds were not taken from its rows.
    """
    moment = noisy_second_moment(sample, rho, measure, distance=distance)
    cross = noisy_cross_moment(sample, rho, measure)
    published = {"second_moment": moment.ravel().tolist(), "cross_moment": cross.tolist()}
    return Estimate(np.linalg.lstsq(moment, cross)[0].astype(np.float64), dp_olse_loss(rho), published)
