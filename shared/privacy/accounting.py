"""Zero-concentrated differential privacy as exact integers (design: protocol.md section 5).

A loss rho is kept as an integer multiple of 2^-64, rounded up, so that sums over releases and parties are exact and
never too small.
"""

from dataclasses import dataclass
from math import isqrt

from shared.privacy.calibration import epsilon_of_rho
from shared.privacy.errors import ParameterError

RHO_UNITS = 1 << 64
SIGMA_LIMIT = 1 << 48
"""No noise scale above it: sums of noise and data stay far from the end of 64 bits."""


@dataclass(frozen=True, slots=True, order=True)
class Rho:
    """A zCDP loss of `units` * 2^-64."""

    units: int

    def __add__(self, other: "Rho") -> "Rho":
        return Rho(self.units + other.units)

    def __sub__(self, other: "Rho") -> "Rho":
        return Rho(self.units - other.units)

    def __float__(self) -> float:
        return self.units / RHO_UNITS

    def epsilon(self, delta: float) -> float:
        """The (epsilon, delta) view of this loss (Canonne, Kamath, Steinke 2020)."""
        return epsilon_of_rho(float(self), delta)


ZERO = Rho(0)


def gaussian_loss(*, squared_sensitivity: int, sigma: int) -> Rho:
    """Rho = Delta^2 / (2 sigma^2) of the discrete Gaussian mechanism, rounded up (CKS 2020, theorem 14).

    Raises:
        ParameterError: a negative sensitivity or no noise.
    """
    if squared_sensitivity < 0 or sigma < 1:
        raise ParameterError(f"no loss for sensitivity^2 {squared_sensitivity}, sigma {sigma}", remedy="Report this.")
    return Rho(-(-squared_sensitivity * RHO_UNITS // (2 * sigma * sigma)))


def least_sigma(*, squared_sensitivity: int, rho: Rho) -> int:
    """The least integer s with Delta^2 <= 2 rho s^2.

    Raises:
        ParameterError: rho is not positive.
    """
    if rho.units <= 0:
        raise ParameterError("the privacy loss is too small to calibrate noise", remedy="Raise epsilon.")
    least_square = -(-squared_sensitivity * RHO_UNITS // (2 * rho.units))
    return isqrt(max(least_square - 1, 0)) + 1
