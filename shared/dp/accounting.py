"""Zero-concentrated differential privacy as exact integers (docs/design/privacy.md#accounting).

A loss rho is kept as an integer multiple of 2^-64, rounded up, so that sums over releases and parties are exact and
never too small.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf, isqrt, nextafter
from sys import float_info

from commingle.shared.dp.calibration import check_epsilon, epsilon_of_rho, rho_of_epsilon
from commingle.shared.dp.errors import ParameterError

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

    @property
    def rounded_up(self) -> float:
        """The least float that is not below it."""
        nearest = float(self)
        return nearest if nearest * RHO_UNITS >= self.units else nextafter(nearest, inf)

    def epsilon(self, delta: float) -> float:
        """The (epsilon, delta) view of this loss (Canonne, Kamath, Steinke 2020)."""
        return epsilon_of_rho(float(self), delta)


ZERO = Rho(0)


@dataclass(frozen=True, slots=True)
class Loss:
    """A delta-approximate rho-zCDP loss (Bun, Steinke 2016, definition 8.1). Losses add componentwise (lemma 8.2).

    `delta` is a float; sums are rounded up.
    """

    rho: Rho
    delta: float = 0.0

    def __add__(self, other: "Loss") -> "Loss":
        both = self.delta > 0 and other.delta > 0
        delta = nextafter(self.delta + other.delta, inf) if both else self.delta + other.delta
        return Loss(self.rho + other.rho, delta)

    def epsilon(self, delta: float) -> float:
        """The (epsilon, delta) view, delta the total: epsilon of rho at delta - self.delta (proofs, 5.4).

        Raises:
            ParameterError: delta does not exceed the loss's own.
        """
        return self.rho.epsilon(nextafter(delta - self.delta, -inf) if self.delta else delta)

    @staticmethod
    def approximate(epsilon: float, delta: float = 0.0) -> "Loss":
        """What any (epsilon, delta)-DP mechanism costs: rho = epsilon^2 / 2, rounded up (section 8; prop. 1.4)."""
        return Loss(Rho(ceil(Fraction(check_epsilon(epsilon)) ** 2 * RHO_UNITS / 2)), delta)


def rho_left(epsilon: float, delta: float, *, used: float = 0.0) -> Rho:
    """The most rho that keeps (epsilon, delta) where losses have a delta of `used` besides; rounded down.

    By `Loss.epsilon`: rho with epsilon(rho, delta - used) <= epsilon, and none where delta is used up
    (docs/proofs/noise-and-accounting.md, 5).

    Raises:
        ParameterError: epsilon or delta outside its domain.
    """
    left = nextafter(delta - used, -inf) if used else delta
    if used and left < float_info.min:
        return ZERO
    return Rho(int(rho_of_epsilon(epsilon, left) * RHO_UNITS))


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
