"""DP-PMTOLSE: least squares after the public moment transform (methods.md D)."""

from math import sqrt

import numpy as np

from commingle.party_agent.private.regression.calibration import Calibration, Privacy, require_calibration
from commingle.party_agent.private.regression.measuring import Measure
from commingle.party_agent.private.regression.pmt import (
    Distance,
    PublicMoments,
    measured_loss,
    noisy_cross_moment,
    noisy_second_moment,
)
from commingle.party_agent.private.regression.problem import Estimate, Sample
from commingle.shared.dp.accounting import Loss
from commingle.shared.dp.calibration import rho_of_epsilon
from commingle.shared.dp.errors import ParameterError

SOUND = frozenset({Calibration.ZCDP})
GUARANTEE = (
    "Gaussian measurements of a second moment and of a cross moment; 2 rho-zCDP under replace_one (Bun, Steinke 2016, "
    "lemmas 2.3 and 2.5)."
)


def share_of(privacy: Privacy) -> float:
    """The rho of each of the two measurements at (epsilon, delta).

    Raises:
        ParameterError: another calibration than zcdp, or another adjacency than replace_one.
    """
    require_calibration(privacy, SOUND)
    if not privacy.replaces:
        raise ParameterError("this method is proved under replace_one only", remedy="Use adjacency replace_one.")
    return rho_of_epsilon(privacy.epsilon, privacy.delta) / 2


def dp_pmtolse_loss(rho: float) -> Loss:
    """What `dp_pmtolse` costs, 2 rho; public."""
    return measured_loss(rho, 2)


def dp_pmtolse(
    sample: Sample, public: PublicMoments, rho: float, measure: Measure, *, distance: Distance = Distance.TIGHT
) -> Estimate:
    """Coefficients sigma_B Sigma_B^-1/2 (X~^T X~/n + G)^-1 (X~^T y~/n + g).

    Privacy: replace_one; `dp_pmtolse_loss(rho)`. `sample` is made by `pmt.transformed` with the same public moments;
    published moments are those of the transformed rows.
    """
    moment = noisy_second_moment(sample, rho, measure, distance)
    cross = noisy_cross_moment(sample, rho, measure)
    beta = sqrt(public.label) * public.root(-0.5) @ np.linalg.lstsq(moment, cross)[0]
    published = {"second_moment": moment.ravel().tolist(), "cross_moment": cross.tolist()}
    return Estimate(beta.astype(np.float64), dp_pmtolse_loss(rho), published)
