"""How moments over keyed subjects are fitted, of rmgm as well: both come to pairwise moments (docs/design/keyed.md)."""

from dataclasses import dataclass

from commingle.shared.estimation.estimator import Errors
from commingle.shared.estimation.method import Residual
from commingle.shared.estimation.pair_noise import PairNoise
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.request import IntervalFor
from commingle.shared.estimation.system import System
from commingle.shared.mechanisms.moments.estimators import ESTIMATORS
from commingle.shared.mechanisms.moments.fit import MomentsFit
from commingle.shared.mechanisms.moments.signal import measure


@dataclass(frozen=True, slots=True)
class KeyedFit(MomentsFit):
    """Fits of n (C + m m^T), errors of which come from counts, means and sums alike."""

    def meat(self, system: System, r: Residual, errors: Errors, interval_for: IntervalFor) -> Array:  # noqa: ARG002 - as asked of all
        """Of noise; about the table also of whose rows gave way, which is as if they had not been drawn."""
        noise = _pair_noise(system)
        found = noise.covariance(r.direction)
        gave_way = noise.gave_way
        if interval_for == "population" or not gave_way:
            return found
        return found + gave_way * noise.sampling(r.direction)

    def population(self, system: System, r: Residual, H: Array, omega: Array) -> Array:  # noqa: ARG002 - as asked of all
        """Every pair has a sample of its own, so residuals alone do not say how much they vary."""
        return H @ _pair_noise(system).sampling(r.direction) @ H


KEYED = KeyedFit(ESTIMATORS, "ols", measure)


def _pair_noise(system: System) -> PairNoise:
    if not isinstance(system.entries, PairNoise):
        raise TypeError("these are no moments of keyed subjects")
    return system.entries
