"""From (epsilon, delta) to the noise of several Gaussian measurements (docs/design/estimation.md#calibration).

Sources: Dwork, Roth 2014 (classical), Balle, Wang 2018 (analytic: the product's), Bun, Steinke 2016 (zCDP).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, log, sqrt

from commingle.party_agent.private.regression.measuring import multiplier_within, planned_loss
from commingle.party_agent.private.regression.problem import Neighbours
from commingle.shared.dp.accounting import RHO_UNITS, ZERO, Loss
from commingle.shared.dp.calibration import check_delta, check_epsilon, rho_of_epsilon
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.gaussian import gaussian_rho

_MARGIN = 2.0**-40
"""More than the formulas of a method are off in floating point, relative to their largest term."""


class NoiseCalibration(StrEnum):
    """How (epsilon, delta) becomes noise; `published` is the paper's own constant, where it keeps its promise."""

    PUBLISHED = "published"
    CLASSICAL = "classical"
    ANALYTIC = "analytic"
    ZCDP = "zcdp"


GAUSSIAN = frozenset({NoiseCalibration.CLASSICAL, NoiseCalibration.ANALYTIC, NoiseCalibration.ZCDP})
"""Those of Gaussian measurements."""


@dataclass(frozen=True, slots=True)
class Privacy:
    """What is asked of a method: (epsilon, delta)-DP between neighbours, and how noise is derived from it.

    Raises:
        ParameterError: epsilon or delta outside its domain.
    """

    epsilon: float
    delta: float
    adjacency: Neighbours = Neighbours.REPLACE_ONE
    calibration: NoiseCalibration = NoiseCalibration.ANALYTIC

    def __post_init__(self) -> None:
        """Check the domains."""
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    @property
    def replaces(self) -> bool:
        """Whether neighbours differ in one row's values, and not by one row."""
        return self.adjacency is Neighbours.REPLACE_ONE

    def as_add_remove(self) -> "Privacy":
        """The add/remove guarantee that implies this one.

        Replacing is removing and adding: (e, d)-DP for each makes (2e, (1 + exp(e)) d)-DP, so e = epsilon/2 and
        d = delta / (1 + exp(e)) (Dwork, Roth 2014, theorem 2.2 for (epsilon, delta)); both a little less, which
        leaves room for the rounding here and in what is computed from them.
        """
        if not self.replaces:
            return self
        half, less = self.epsilon / 2, 1 - _MARGIN
        share = self.delta * exp(-half) / (1 + exp(-half))
        return replace(self, epsilon=half * less, delta=share * less, adjacency=Neighbours.ADD_REMOVE)


def require_calibration(privacy: Privacy, known: Collection[NoiseCalibration]) -> None:
    """Raise ParameterError unless the method knows the calibration."""
    if privacy.calibration not in known:
        raise ParameterError(
            f"this method has no calibration {privacy.calibration}", remedy=f"Use one of: {', '.join(sorted(known))}."
        )


def gaussian_multiplier(privacy: Privacy, parts: int) -> float:
    """Noise of each of `parts` Gaussian measurements in units of its sensitivity.

    classical  sqrt(2 ln(1.25 parts / delta)) parts / epsilon: (epsilon, delta)/parts each (Dwork, Roth, A.1).
    analytic   sqrt(parts / (2 rho)), rho of the Gaussian curve: they compose like one (Dong, Roth, Su 2022, cor. 3.3).
    zcdp       sqrt(parts / (2 rho(epsilon, delta))).

    Raises:
        ParameterError: classical with epsilon above `parts`, where its theorem says nothing; or none of `GAUSSIAN`.
    """
    require_calibration(privacy, GAUSSIAN)
    epsilon, delta = privacy.epsilon, privacy.delta
    match privacy.calibration:
        case NoiseCalibration.CLASSICAL:
            if epsilon > parts:
                raise ParameterError(
                    f"the classical calibration of {parts} measurements is proved for epsilon <= {parts} only",
                    remedy="Use calibration analytic or zcdp.",
                )
            return sqrt(2 * log(1.25 * parts / delta)) * parts / epsilon
        case NoiseCalibration.ANALYTIC:
            return multiplier_within(gaussian_rho(epsilon, delta) - parts / RHO_UNITS, parts)  # each part is rounded up
        case _:
            return multiplier_within(rho_of_epsilon(epsilon, delta), parts)


def gaussian_plan(privacy: Privacy, parts: int) -> Loss:
    """What those measurements cost: their rho, whatever epsilon was asked for; delta 0."""
    one = planned_loss(gaussian_multiplier(privacy, parts))
    return Loss(sum((one for _ in range(parts)), start=ZERO))


def analytic_multiplier(epsilon: float, delta: float) -> float:
    """The least noise of one measurement within (epsilon, delta), in units of its sensitivity, rounded up."""
    return multiplier_within(gaussian_rho(epsilon, delta))
