"""DP-PMTSE: a second moment after the public moment transform."""

from dataclasses import dataclass

from benchmarks.methods.second_moment import TIGHT, measured_loss, noisy_second_moment
from commingle.party_agent.private.regression.measuring import Measure
from commingle.party_agent.private.regression.problem import Floats, Sample
from commingle.party_agent.private.regression.public_moment import PublicMoments
from commingle.shared.dp.accounting import Loss

GUARANTEE = "One Gaussian measurement of a second moment; rho-zCDP under replace_one (Bun, Steinke 2016, lemma 2.5)."


@dataclass(frozen=True, slots=True)
class SecondMomentEstimate:
    """What is published.

    Attributes:
        transformed: d x d, of the transformed rows; near the identity where public and private rows are alike.
        original: Sigma_B^1/2 transformed Sigma_B^1/2, in the units of the rows.
        loss: what the run cost.
    """

    transformed: Floats
    original: Floats
    loss: Loss


def dp_pmtse_loss(rho: float) -> Loss:
    """What `dp_pmtse` costs; public."""
    return measured_loss(rho, 1)


def dp_pmtse(
    sample: Sample, public: PublicMoments, rho: float, measure: Measure, *, distance: float = TIGHT
) -> SecondMomentEstimate:
    """The mean of x~ x~^T plus symmetric noise of sd sqrt(2) d (1 + ln(2n/eta)) / (sqrt(2 rho) n).

    The paper's triangle inequality has 2 for sqrt(2): `second_moment.TRIANGLE`.

    Privacy: replace_one; `dp_pmtse_loss(rho)`. `sample` is made by `transform` with the same public moments.
    """
    moment = noisy_second_moment(sample, rho, measure, distance=distance)
    back = public.root(0.5)
    return SecondMomentEstimate(moment, back @ moment @ back, dp_pmtse_loss(rho))
