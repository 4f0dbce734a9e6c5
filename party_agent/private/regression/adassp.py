"""Adaptive sufficient-statistics perturbation (Wang 2018, algorithm 2; Kalaja 2020 for the fixed noise)."""

from math import log, sqrt

import numpy as np

from commingle.party_agent.private.regression.calibration import (
    Calibration,
    Privacy,
    gaussian_multiplier,
    gaussian_plan,
)
from commingle.party_agent.private.regression.measuring import Measure
from commingle.party_agent.private.regression.moments import gram_sensitivity, noisy_cross, noisy_gram, solve
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample
from commingle.shared.dp.accounting import Loss

PARTS = 3
SOUND = frozenset({Calibration.CLASSICAL, Calibration.ANALYTIC, Calibration.ZCDP})
GUARANTEE = (
    "Three Gaussian measurements, of the least eigenvalue of X^T X, of X^T X and of X^T y; rho-zCDP with the stated"
    " rho (Bun, Steinke 2016, lemma 2.5)."
)
_FAILURE = 0.05
_EIGENVALUE_ERROR = 2.0**-23
"""Twice what an eigensolver may be off by, per column and C^2: 64 roundings of norms up to 2^23 C^2."""


def adassp_loss(privacy: Privacy) -> Loss:
    """What `adassp` costs; public."""
    return gaussian_plan(privacy, PARTS)


def adassp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    """(X^T X + noise + lambda I)^-1 (X^T y + noise), lambda by a private least eigenvalue.

    Privacy: add_remove or replace_one; `adassp_loss(privacy)` by composition. lambda is post-processing, so the tail
    t below concerns usefulness only. (epsilon, delta)-DP holds for continuous noise under classical (epsilon <= 3),
    analytic and zcdp; not under published.
    """
    s = gaussian_multiplier(privacy, PARTS)
    system, published = noisy_system(sample, privacy, measure, multiplier=s)
    cross = noisy_cross(sample, privacy, measure, multiplier=s)
    return Estimate(solve(system, cross), adassp_loss(privacy), {**published, "cross": cross.tolist()})


def noisy_system(
    sample: Sample, privacy: Privacy, measure: Measure, *, multiplier: float
) -> tuple[Floats, dict[str, float | list[float]]]:
    """X^T X + noise + lambda I, d x d, and what it is made of; two measurements."""
    floor = noisy_floor(sample, measure, multiplier=multiplier, tail=_tail(privacy))
    # lambda = max(0, sd sqrt(d ln(2 d^2 / rho)) - floor), sd the noise of an entry of X^T X
    spread = multiplier * gram_sensitivity(sample, privacy) * sqrt(sample.d * log(2 * sample.d**2 / _FAILURE))
    ridge = max(0.0, spread - floor)
    gram = noisy_gram(sample, privacy, measure, multiplier=multiplier)
    published: dict[str, float | list[float]] = {
        "gram": gram.ravel().tolist(),
        "least_eigenvalue": floor,
        "ridge": ridge,
    }
    return gram + ridge * np.eye(sample.d), published


def noisy_floor(sample: Sample, measure: Measure, *, multiplier: float, tail: float) -> float:
    """max(0, lambda_min + D s (Z - t)), D its sensitivity: a likely lower bound on the least eigenvalue of X^T X."""
    sensitivity = floor_sensitivity(sample)
    least: Floats = np.linalg.eigvalsh(sample.x.T @ sample.x)[:1].astype(np.float64)
    noisy = measure.measure(least, sensitivity=sensitivity, multiplier=multiplier)
    return max(0.0, float(noisy[0]) - multiplier * tail * sensitivity)


def floor_sensitivity(sample: Sample) -> float:
    """How far one row moves the least eigenvalue as computed, under either adjacency: C^2 and twice its error.

    By Weyl it is at most the spectral norm of xx^T - vv^T, whose eigenvalues lie between -|v|^2 and |x|^2.
    """
    return sample.row_bound**2 * (1 + sample.d * _EIGENVALUE_ERROR)


def _tail(privacy: Privacy) -> float:
    if privacy.calibration is Calibration.PUBLISHED:
        return sqrt(log(2 * PARTS / privacy.delta))
    return sqrt(2 * log(1.25 * PARTS / privacy.delta))
