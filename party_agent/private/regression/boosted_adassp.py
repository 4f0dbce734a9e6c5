"""AdaSSP on its own residuals (Tang et al. 2023, Improved differentially private regression via gradient boosting)."""

from fractions import Fraction
from math import inf, nextafter, sqrt

import numpy as np

from commingle.party_agent.private.regression.adassp import PARTS, noisy_system
from commingle.party_agent.private.regression.calibration import Calibration, Privacy, gaussian_multiplier
from commingle.party_agent.private.regression.measuring import Measure, planned_loss
from commingle.party_agent.private.regression.moments import noisy_cross, solve
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample, power_of_two_above
from commingle.shared.dp.accounting import Loss, Rho
from commingle.shared.dp.fixed_point import SCALE, quantise

ROUNDS = 5
SOUND = frozenset({Calibration.CLASSICAL, Calibration.ANALYTIC, Calibration.ZCDP})
GUARANTEE = (
    "Gaussian measurements of the least eigenvalue of X^T X, of X^T X, and of X^T r for clipped residuals r, once a"
    " round; rho-zCDP with the stated rho (Bun, Steinke 2016, lemma 2.3)."
)
_COEFFICIENT_STEPS = 2.0**20
"""Coefficients are rounded to this many steps, so that a row's prediction is a sum of integers below 2^53."""


def boosted_adassp_loss(privacy: Privacy, *, rounds: int = ROUNDS) -> Loss:
    """What `boosted_adassp` costs; public."""
    s = gaussian_multiplier(privacy, PARTS)
    sums, round_ = planned_loss(s).units, planned_loss(_shared(s, rounds)).units
    return Loss(Rho((PARTS - 1) * sums + rounds * round_))


def boosted_adassp(
    sample: Sample, privacy: Privacy, measure: Measure, *, rounds: int = ROUNDS, clip: float | None = None
) -> Estimate:
    """T times from 0: theta + (X^T X + noise + lambda I)^-1 (X^T r + noise), r = y - X theta cut at [-clip, clip].

    clip is Y/T by default: T rounds reach the label bound, and their noise together is about the one noise of AdaSSP
    where lambda rules, and less elsewhere. The paper has 100 rounds and clips at 1 whatever the labels are. Rounds
    without end would lead to Huber's fit, which is least squares only where large residuals are even.

    Privacy: add_remove or replace_one; `boosted_adassp_loss(privacy)` by adaptive composition: the system and lambda
    are those of `adassp`, and the rounds share the third that is its X^T y (docs/proofs/regression.md, 8).
    (epsilon, delta)-DP holds for continuous noise under classical (epsilon <= 3), analytic and zcdp.
    """
    s = gaussian_multiplier(privacy, PARTS)
    system, published = noisy_system(sample, privacy, measure, multiplier=s)
    share, bound = _shared(s, rounds), sample.label_bound / rounds if clip is None else clip
    theta, crosses = np.zeros(sample.d), []
    for _ in range(rounds):
        cross = noisy_cross(residuals(sample, theta, bound=bound), privacy, measure, multiplier=share)
        theta = theta + solve(system, cross)
        crosses += cross.tolist()
    return Estimate(theta, boosted_adassp_loss(privacy, rounds=rounds), {**published, "cross": crosses})


def residuals(sample: Sample, theta: Floats, *, bound: float) -> Sample:
    """The same rows with labels y - x^T theta, cut at `bound`, on the grid of `problem.on_grid`.

    A row's residual depends on that row and theta only, to the last bit: with theta rounded, x^T theta is exact for
    rows on the grid, whatever the order of summation, and what follows is entry by entry.
    """
    step = power_of_two_above(float(np.abs(theta).max()) or 1.0) / _COEFFICIENT_STEPS
    left = sample.y - sample.x @ (np.rint(theta / step) * step)
    unit = power_of_two_above(bound)
    cut = quantise(np.clip(left, -bound, bound) / unit).astype(np.float64) * (unit / SCALE)
    return Sample(sample.x, cut, sample.row_bound, bound)


def _shared(multiplier: float, rounds: int) -> float:
    """The first float from sqrt(T) times the multiplier on with which T measurements cost no more than one did."""
    shared = multiplier * sqrt(rounds)
    while Fraction(shared) ** 2 < rounds * Fraction(multiplier) ** 2:
        shared = nextafter(shared, inf)
    return shared
