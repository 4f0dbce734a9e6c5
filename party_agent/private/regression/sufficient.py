"""SSP, AdaSSP and boosted AdaSSP: least squares from noisy sums X^T X and X^T y.

Sources: Vu, Slavkovic 2009; Foulds et al. 2016; Wang 2018, algorithm 2 is AdaSSP; Tang et al. 2023, Improved
differentially private regression via gradient boosting. The papers measure each sum by itself, with a part of the
budget, and AdaSSP the least eigenvalue too; here it is one measurement, and lambda comes from it.
"""

import numpy as np

from commingle.party_agent.private.regression.calibration import Privacy
from commingle.party_agent.private.regression.measuring import Measure
from commingle.party_agent.private.regression.problem import Estimate, Floats, Published, Sample, power_of_two_above
from commingle.party_agent.private.regression.sums import (
    begin_sums,
    cross_weight,
    gram_noise,
    noisy_sums,
    norm_bound,
    solve,
    sums_loss,
)
from commingle.shared.dp.fixed_point import SCALE, quantise

SSP_GUARANTEE = (
    "One Gaussian measurement of X^T X and X^T y together; a Gaussian loss of the stated rho (Dong, Roth, Su 2022)."
)


def ssp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    """(X^T X + noise)^-1 (X^T y + noise).

    Privacy: add_remove or replace_one; `sums_loss(privacy)`.
    """
    gram, cross = noisy_sums(sample, privacy, measure)
    published = {"gram": gram.ravel().tolist(), "cross": cross.tolist()}
    return Estimate(solve(gram, cross), sums_loss(privacy), published)


ADASSP_GUARANTEE = SSP_GUARANTEE


def adassp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    """(X^T X + noise + lambda I)^-1 (X^T y + noise), lambda by the least eigenvalue of X^T X + noise.

    Privacy: add_remove or replace_one; `sums_loss(privacy)`. lambda is post-processing.
    """
    gram, cross = noisy_sums(sample, privacy, measure)
    ridge = ridge_of(gram, gram_noise(sample, privacy))
    published: Published = {"gram": gram.ravel().tolist(), "ridge": ridge, "cross": cross.tolist()}
    return Estimate(solve(gram + ridge * np.eye(sample.d), cross), sums_loss(privacy), published)


def ridge_of(gram: Floats, sd: float) -> float:
    """Lambda = max(0, B - max(0, lambda_min)), lambda_min of the noisy matrix, B what its noise likely stays below."""
    least = float(np.linalg.eigvalsh(gram)[0])
    return max(0.0, sd * norm_bound(len(gram)) - max(0.0, least))


ROUNDS = 5
BOOSTED_GUARANTEE = (
    "One Gaussian measurement of X^T X and, in rounds, of X^T r for clipped residuals r; a Gaussian loss"
    " of the stated rho (Dong, Roth, Su 2022)."
)
_COEFFICIENT_STEPS = 2.0**20
"""Coefficients are rounded to this many steps, so that a row's prediction is a sum of integers below 2^53."""


def boosted_adassp(
    sample: Sample, privacy: Privacy, measure: Measure, *, rounds: int = ROUNDS, clip: float | None = None
) -> Estimate:
    """T times from 0: theta + (X^T X + noise + lambda I)^-1 (X^T r + noise), r = y - X theta cut at [-clip, clip].

    clip is Y/T by default: T rounds reach the label bound, and their noise together is about the one noise of AdaSSP
    where lambda rules, and less elsewhere. The paper has 100 rounds and clips at 1 whatever the labels are. Rounds
    without end would lead to Huber's fit, which is least squares only where large residuals are even.

    Privacy: add_remove or replace_one; `sums_loss(privacy)`: the rounds count together as X^T y does in `adassp`
    (docs/proofs/regression.md, 8).
    """
    bound = sample.label_bound / rounds if clip is None else clip
    parts = begin_sums(sample, privacy, measure, rounds=rounds)
    gram = parts.part(sample.x.T @ sample.x, symmetric=True)
    ridge = ridge_of(gram, gram_noise(sample, privacy))
    weight = cross_weight(sample.row_bound, bound, rounds=rounds)
    theta, crosses = np.zeros(sample.d), []
    for _ in range(rounds):
        left = residuals(sample, theta, bound=bound)
        cross = parts.part(left.x.T @ left.y, weight=weight)
        theta = theta + solve(gram + ridge * np.eye(sample.d), cross)
        crosses += cross.tolist()
    published: Published = {"gram": gram.ravel().tolist(), "ridge": ridge, "cross": crosses}
    return Estimate(theta, sums_loss(privacy), published)


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
