"""Losses as exact integers (docs/design/privacy.md#accounting).

A loss rho is mu^2 / 2 of a Gaussian mechanism that reveals no less, mu its sensitivity over its noise; it is rho-zCDP
too. It is an integer multiple of 2^-64, rounded up, so sums over releases and parties are exact and never too small.
Beside it stands a delta for what noise does not cause, such as the chance that an exchange fails to hide what it
should.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, inf, isqrt, nextafter, sqrt
from sys import float_info
from typing import Self

from commingle.shared.dp.calibration import (
    best_guess,
    check_epsilon,
    epsilon_of_rho,
    gaussian_epsilon,
    gaussian_rho,
    rho_of_epsilon,
)
from commingle.shared.dp.sensitivity import Adjacency, unit_of
from commingle.shared.errors import ParameterError

RHO_UNITS = 1 << 64
SIGMA_LIMIT = 1 << 48  # no noise scale above it: sums of noise and data stay far from the end of 64 bits
_QUARTER_PI = Fraction(7854, 10_000)  # a little more than pi / 4


@dataclass(frozen=True, slots=True, order=True)
class Rho:
    """A loss of `units` * 2^-64."""

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
        """The (epsilon, delta) view of this loss (Balle, Wang 2018)."""
        return gaussian_epsilon(float(self), delta)


ZERO = Rho(0)


@dataclass(frozen=True, slots=True)
class Loss:
    """A Gaussian loss of rho, except for events of probability delta. Losses add componentwise (proofs, 6.3)."""

    rho: Rho
    delta: float = 0.0  # sums are rounded up. Of a release it is its `delta_implementation` (docs/proofs/delta.md).
    # False where it is only known to be delta-approximate rho-zCDP (Bun, Steinke 2016, definition 8.1): what a lost
    # branch of a ledger has spent
    gaussian: bool = True

    def __add__(self, other: "Loss") -> "Loss":
        both = self.delta > 0 and other.delta > 0
        delta = nextafter(self.delta + other.delta, inf) if both else self.delta + other.delta
        return Loss(self.rho + other.rho, delta, self.gaussian and other.gaussian)

    def epsilon(self, delta: float) -> float:
        """The (epsilon, delta) view, delta the total: epsilon of rho at delta - self.delta (proofs, 6.4).

        Raises ParameterError: delta does not exceed the loss's own.
        """
        left = delta_left(delta, self.delta)
        return (gaussian_epsilon if self.gaussian else epsilon_of_rho)(float(self.rho), left)

    @property
    def best_guess(self) -> float:
        """At most how often a test is right about a person, for two equally likely candidates (proofs, 5.4)."""
        if self.gaussian:
            return best_guess(float(self.rho), self.delta)
        return min(1.0, 0.5 + (sqrt(float(self.rho) / 2) * (1 + 2.0**-50) + self.delta) / 2)

    @property
    def guess_percent(self) -> int:
        return ceil(100 * self.best_guess)

    @staticmethod
    def approximate(epsilon: float, delta: float = 0.0) -> "Loss":
        """What any (epsilon, delta)-DP mechanism costs: rho = min(pi epsilon^2 / 4, 4 epsilon), rounded up (6.2)."""
        asked = Fraction(check_epsilon(epsilon))
        return Loss(Rho(ceil(min(_QUARTER_PI * asked, Fraction(4)) * asked * RHO_UNITS)), delta)


NOTHING = Loss(ZERO)


@dataclass(frozen=True, slots=True)
class Cost:
    """The loss of people of a data set by what is made of it (docs/proofs/noise-and-accounting.md, 3.4).

    Costs add up.
    """

    loss: Loss  # in the data set's unit: add_remove of keyed subjects, replace_one of listed ones
    # of keyed subjects that stay and have other values, under replace_one; None of listed ones
    replacement: Loss | None = None

    @classmethod
    def of(cls, unit: Adjacency, loss: Callable[[Adjacency], Loss]) -> Self:
        """The cost, in that unit, of something with a loss under every adjacency."""
        return cls(loss(unit), None if unit is Adjacency.REPLACE_ONE else loss(Adjacency.REPLACE_ONE))

    @property
    def replaced(self) -> Loss:
        """The loss under replace_one, whether subjects are keyed or not."""
        return self.loss if self.replacement is None else self.replacement

    @property
    def unit(self) -> Adjacency:
        """The unit of `loss`; a sum with keyed subjects has theirs."""
        return unit_of(keyed=self.replacement is not None)

    def counted(self, *, replacement: bool) -> tuple[tuple[Adjacency, Loss], ...]:
        """The losses that caps limit, each with its unit: `loss`, and replacement besides if a policy says so."""
        own = (self.unit, self.loss)
        return (own, (Adjacency.REPLACE_ONE, self.replaced)) if replacement else (own,)

    def __add__(self, other: "Cost") -> "Cost":
        both = self.replaced + other.replaced if self.replacement or other.replacement else None
        return Cost(self.loss + other.loss, both)

    def approximate(self) -> "Cost":
        """This cost if losses are only known to be delta-approximate rho-zCDP."""
        other = None if self.replacement is None else replace(self.replacement, gaussian=False)
        return Cost(replace(self.loss, gaussian=False), other)


FREE = Cost(NOTHING)


def delta_left(delta: float, taken: float) -> float:
    """The part of a delta that is left for noise if something else takes a part of it; rounded down."""
    return nextafter(delta - taken, -inf) if taken else delta


def rho_left(epsilon: float, delta: float, *, beside: Loss = NOTHING) -> Rho:
    """The most rho that losses of the same delta and kind as `beside` may have within (epsilon, delta); rounded down.

    By `Loss.epsilon`: none if delta is used up (docs/proofs/noise-and-accounting.md, 6.5). Raises ParameterError:
    epsilon or delta outside its domain.
    """
    left = delta_left(delta, beside.delta)
    if beside.delta and left < float_info.min:
        return ZERO
    return Rho(int((gaussian_rho if beside.gaussian else rho_of_epsilon)(epsilon, left) * RHO_UNITS))


def gaussian_loss(*, squared_sensitivity: int, sigma: int) -> Rho:
    """Rho = Delta^2 / (2 sigma^2) of the Gaussian mechanism, rounded up; ParameterError: Delta^2 < 0, or no noise."""
    if squared_sensitivity < 0 or sigma < 1:
        raise ParameterError(f"no loss for sensitivity^2 {squared_sensitivity}, sigma {sigma}", remedy="Report this.")
    return Rho(-(-squared_sensitivity * RHO_UNITS // (2 * sigma * sigma)))


def least_sigma(*, squared_sensitivity: int, rho: Rho) -> int:
    """The least integer s with Delta^2 <= 2 rho s^2. Raises ParameterError: rho is not positive."""
    if rho.units <= 0:
        raise ParameterError("the privacy loss is too small to calibrate noise", remedy="Raise epsilon.")
    least_square = -(-squared_sensitivity * RHO_UNITS // (2 * rho.units))
    return isqrt(max(least_square - 1, 0)) + 1
