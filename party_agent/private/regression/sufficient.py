"""SSP, AdaSSP and boosted AdaSSP: least squares from noisy sums X^T X and X^T y.

Sources: Vu, Slavkovic 2009; Foulds et al. 2016; Wang 2018, algorithm 2 is AdaSSP (Kalaja 2020 for the fixed
noise); Tang et al. 2023, Improved differentially private regression via gradient boosting.
"""

from fractions import Fraction
from math import inf, log, nextafter, sqrt

import numpy as np

from commingle.party_agent.private.regression.calibration import (
    Privacy,
    gaussian_multiplier,
    gaussian_plan,
)
from commingle.party_agent.private.regression.measuring import Measure, planned_loss
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample, power_of_two_above
from commingle.shared.dp.accounting import Loss, Rho
from commingle.shared.dp.fixed_point import SCALE, quantise

SSP_PARTS = 2
SSP_GUARANTEE = (
    "Two Gaussian measurements of X^T X and X^T y; rho-zCDP with the stated rho (Bun, Steinke 2016, lemma 2.5)."
)


def ssp_loss(privacy: Privacy) -> Loss:
    """What `ssp` costs; public."""
    return gaussian_plan(privacy, SSP_PARTS)


def ssp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    """(X^T X + C^2 s Z)^-1 (X^T y + C Y s z).

    Privacy: add_remove or replace_one; `ssp_loss(privacy)` by composition of two Gaussian mechanisms whose
    sensitivities are those of `moments`. (epsilon, delta)-DP holds for continuous noise under classical (epsilon <= 2),
    analytic and zcdp.
    """
    s = gaussian_multiplier(privacy, SSP_PARTS)
    gram = noisy_gram(sample, privacy, measure, multiplier=s)
    cross = noisy_cross(sample, privacy, measure, multiplier=s)
    published = {"gram": gram.ravel().tolist(), "cross": cross.tolist()}
    return Estimate(solve(gram, cross), ssp_loss(privacy), published)


ADASSP_PARTS = 3
ADASSP_GUARANTEE = (
    "Three Gaussian measurements, of the least eigenvalue of X^T X, of X^T X and of X^T y; rho-zCDP with the stated"
    " rho (Bun, Steinke 2016, lemma 2.5)."
)
_FAILURE = 0.05
_EIGENVALUE_ERROR = 2.0**-23
"""Twice what an eigensolver may be off by, per column and C^2: 64 roundings of norms up to 2^23 C^2."""


def adassp_loss(privacy: Privacy) -> Loss:
    """What `adassp` costs; public."""
    return gaussian_plan(privacy, ADASSP_PARTS)


def adassp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    """(X^T X + noise + lambda I)^-1 (X^T y + noise), lambda by a private least eigenvalue.

    Privacy: add_remove or replace_one; `adassp_loss(privacy)` by composition. lambda is post-processing, so the tail
    t below concerns usefulness only. (epsilon, delta)-DP holds for continuous noise under classical (epsilon <= 3),
    analytic and zcdp.
    """
    s = gaussian_multiplier(privacy, ADASSP_PARTS)
    system, published = noisy_system(sample, privacy, measure, multiplier=s, tail=_tail(privacy))
    cross = noisy_cross(sample, privacy, measure, multiplier=s)
    return Estimate(solve(system, cross), adassp_loss(privacy), {**published, "cross": cross.tolist()})


def noisy_system(
    sample: Sample, privacy: Privacy, measure: Measure, *, multiplier: float, tail: float
) -> tuple[Floats, dict[str, float | list[float]]]:
    """X^T X + noise + lambda I, d x d, and what it is made of; two measurements."""
    floor = noisy_floor(sample, measure, multiplier=multiplier, tail=tail)
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
    return sqrt(2 * log(1.25 * ADASSP_PARTS / privacy.delta))


ROUNDS = 5
BOOSTED_GUARANTEE = (
    "Gaussian measurements of the least eigenvalue of X^T X, of X^T X, and of X^T r for clipped residuals r, once a"
    " round; rho-zCDP with the stated rho (Bun, Steinke 2016, lemma 2.3)."
)
_COEFFICIENT_STEPS = 2.0**20
"""Coefficients are rounded to this many steps, so that a row's prediction is a sum of integers below 2^53."""


def boosted_adassp_loss(privacy: Privacy, *, rounds: int = ROUNDS) -> Loss:
    """What `boosted_adassp` costs; public."""
    s = gaussian_multiplier(privacy, ADASSP_PARTS)
    sums, round_ = planned_loss(s).units, planned_loss(_round_multiplier(s, rounds)).units
    return Loss(Rho((ADASSP_PARTS - 1) * sums + rounds * round_))


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
    s = gaussian_multiplier(privacy, ADASSP_PARTS)
    system, published = noisy_system(sample, privacy, measure, multiplier=s, tail=_tail(privacy))
    share, bound = _round_multiplier(s, rounds), sample.label_bound / rounds if clip is None else clip
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


def _round_multiplier(multiplier: float, rounds: int) -> float:
    """The first float from sqrt(T) times the multiplier on with which T measurements cost no more than one did."""
    shared = multiplier * sqrt(rounds)
    while Fraction(shared) ** 2 < rounds * Fraction(multiplier) ** 2:
        shared = nextafter(shared, inf)
    return shared


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
