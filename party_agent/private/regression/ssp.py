"""Sufficient-statistics perturbation (Wang 2018, algorithm 1; Vu, Slavkovic 2009; Foulds et al. 2016)."""

from commingle.party_agent.private.regression.calibration import (
    Calibration,
    Privacy,
    gaussian_multiplier,
    gaussian_plan,
)
from commingle.party_agent.private.regression.measuring import Measure
from commingle.party_agent.private.regression.moments import noisy_cross, noisy_gram, solve
from commingle.party_agent.private.regression.problem import Estimate, Sample
from commingle.shared.dp.accounting import Loss

PARTS = 2
SOUND = frozenset({Calibration.CLASSICAL, Calibration.ANALYTIC, Calibration.ZCDP})
GUARANTEE = "Two Gaussian measurements of X^T X and X^T y; rho-zCDP with the stated rho (Bun, Steinke 2016, lemma 2.5)."


def ssp_loss(privacy: Privacy) -> Loss:
    """What `ssp` costs; public."""
    return gaussian_plan(privacy, PARTS)


def ssp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    """(X^T X + C^2 s Z)^-1 (X^T y + C Y s z).

    Privacy: add_remove or replace_one; `ssp_loss(privacy)` by composition of two Gaussian mechanisms whose
    sensitivities are those of `moments`. (epsilon, delta)-DP holds for continuous noise under classical (epsilon <= 2),
    analytic and zcdp; not under published.
    """
    s = gaussian_multiplier(privacy, PARTS)
    gram = noisy_gram(sample, privacy, measure, multiplier=s)
    cross = noisy_cross(sample, privacy, measure, multiplier=s)
    published = {"gram": gram.ravel().tolist(), "cross": cross.tolist()}
    return Estimate(solve(gram, cross), ssp_loss(privacy), published)
