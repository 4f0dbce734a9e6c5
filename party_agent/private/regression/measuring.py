"""From (epsilon, delta) to values plus Gaussian noise: floating point for benchmarks, exact for the product.

A measurement is a sensitivity and a multiplier: noise of standard deviation multiplier * sensitivity, which is
rho-zCDP with rho = 1 / (2 multiplier^2) (docs/proofs/regression.md, 1). It may come in parts of different weights,
drawn one after another.

Calibrations (docs/design/estimation.md#calibration): Dwork, Roth 2014 (classical), Balle, Wang 2018 (analytic: the one
of the product), Bun, Steinke 2016 (zCDP).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from math import ceil, exp, inf, isfinite, isqrt, log, nextafter, sqrt

import numpy as np
from numpy.random import Generator

from commingle.party_agent.private.regression.problem import Floats, power_of_two_above
from commingle.shared.dp.accounting import RHO_UNITS, ZERO, Loss, Rho, gaussian_loss
from commingle.shared.dp.calibration import check_delta, check_epsilon, gaussian_rho, rho_of_epsilon
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.errors import ParameterError

_RESOLUTION = 2.0**-20
"""Step of the lattice in units of the sensitivity: noise grows by about sqrt(entries) of it."""
RAISED = 1 + Fraction(1, 1 << 48)
"""A sensitivity is a product of floats, each rounded: it may be short by a few units in its last place."""

_MARGIN = 2.0**-40
"""More than the formulas of a method are off in floating point, relative to their largest term."""


class NoiseCalibration(StrEnum):
    """How (epsilon, delta) becomes noise; `published` is the paper's own constant, where it keeps its promise."""

    PUBLISHED = "published"
    CLASSICAL = "classical"
    ANALYTIC = "analytic"
    ZCDP = "zcdp"


GAUSSIAN = frozenset({NoiseCalibration.CLASSICAL, NoiseCalibration.ANALYTIC, NoiseCalibration.ZCDP})
"""Calibrations of Gaussian measurements."""


@dataclass(frozen=True, slots=True)
class Privacy:
    """(epsilon, delta)-DP between neighbours, as asked of a method, and how noise is derived from it."""

    epsilon: float
    delta: float
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    calibration: NoiseCalibration = NoiseCalibration.ANALYTIC

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    @property
    def replaces(self) -> bool:
        return self.adjacency is Adjacency.REPLACE_ONE

    def as_add_remove(self) -> "Privacy":
        """The add/remove guarantee that implies this one.

        Replacing is removing and adding: (e, d)-DP for each makes (2e, (1 + exp(e)) d)-DP, so e = epsilon/2 and
        d = delta / (1 + exp(e)) (Dwork, Roth 2014, theorem 2.2 for (epsilon, delta)); both a little less, which
        leaves room for the rounding here and in what is computed from them. Raises ParameterError: no d is left.
        """
        if not self.replaces:
            return self
        half, less = self.epsilon / 2, 1 - _MARGIN
        share = self.delta * exp(-half) / (1 + exp(-half))
        return replace(self, epsilon=half * less, delta=share * less, adjacency=Adjacency.ADD_REMOVE)


def require_calibration(privacy: Privacy, known: Collection[NoiseCalibration]) -> None:
    if privacy.calibration not in known:
        raise ParameterError(
            f"this method has no calibration {privacy.calibration}", remedy=f"Use one of: {', '.join(sorted(known))}."
        )


def gaussian_multiplier(privacy: Privacy, parts: int) -> float:
    """Noise of each of `parts` Gaussian measurements in units of its sensitivity.

    classical  sqrt(2 ln(1.25 parts / delta)) parts / epsilon: (epsilon, delta)/parts each (Dwork, Roth, A.1).
    analytic   sqrt(parts / (2 rho)), rho of the Gaussian curve: they compose like one (Dong, Roth, Su 2022, cor. 3.3).
    zcdp       sqrt(parts / (2 rho(epsilon, delta))).

    Raises ParameterError: classical with epsilon above `parts`, where its theorem says nothing; or none of `GAUSSIAN`.
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
    """The cost of those measurements: their rho, whatever epsilon was asked for; delta 0."""
    one = planned_loss(gaussian_multiplier(privacy, parts))
    return Loss(sum((one for _ in range(parts)), start=ZERO))


def analytic_multiplier(epsilon: float, delta: float) -> float:
    """The least noise of one measurement within (epsilon, delta), in units of its sensitivity, rounded up."""
    return multiplier_within(gaussian_rho(epsilon, delta))


class Parts(ABC):
    @abstractmethod
    def part(self, value: Floats, *, weight: float = 1.0, symmetric: bool = False) -> Floats:
        """`value` plus noise of variance (multiplier * sensitivity)^2 / weight, that of its squared distance.

        The noise of a symmetric value is drawn for the upper triangle and mirrored, with half that variance off the
        diagonal: an entry stands for two, and the squared Frobenius distance counts it twice.
        """


class Measure(ABC):
    @abstractmethod
    def begin(self, *, sensitivity: float, multiplier: float, entries: int) -> Parts:
        """A measurement in parts; a part may be chosen in view of the noisy ones before it.

        Args:
            sensitivity: bounds sqrt(sum over parts of weight * squared Frobenius distance) for every two neighbours,
                by a bound for each part that does not depend on the noise of others.
            multiplier: noise in units of the sensitivity.
            entries: of all parts together; the whole matrix where they are symmetric.
        """

    def measure(self, value: Floats, *, sensitivity: float, multiplier: float, symmetric: bool = False) -> Floats:
        """`value` plus noise of standard deviation multiplier * sensitivity: a measurement in one part."""
        parts = self.begin(sensitivity=sensitivity, multiplier=multiplier, entries=value.size)
        return parts.part(value, symmetric=symmetric)


class FloatingPoint(Measure):
    """Noise of a numpy generator. Not exact (Mironov 2012): for benchmarks, or by explicit consent."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def begin(self, *, sensitivity: float, multiplier: float, entries: int) -> Parts:  # noqa: ARG002 - nothing is rounded
        return _FloatingParts(self.generator, multiplier * sensitivity)


@dataclass(frozen=True, slots=True)
class _FloatingParts(Parts):
    generator: Generator
    scale: float

    def part(self, value: Floats, *, weight: float = 1.0, symmetric: bool = False) -> Floats:
        scale = self.scale / sqrt(weight)
        if not symmetric:
            noisy: Floats = value + scale * self.generator.standard_normal(value.shape)
            return noisy
        diagonal = scale * self.generator.standard_normal(len(value))
        above = scale / sqrt(2) * self.generator.standard_normal(_above(value).size)
        return _symmetric(value.diagonal() + diagonal, _above(value) + above)


class Exact(Measure):
    """Gaussian noise on a lattice (docs/proofs/noise-and-accounting.md, 1).

    Values are rounded to multiples of a power of two near 2^-20 sensitivities, finer for parts of a larger weight,
    which moves neighbours apart by at most one step an entry; sigma is the least integer not below multiplier * that
    raised sensitivity, and the noise of an entry of weight w the least integer s with w s^2 >= sigma^2.

    Precondition: `sensitivity` bounds the distance of the values as computed, or would if its formula had not been
    rounded. Sums over a sample made by `on_grid` are exact, so the bound of the paper is that of the computation too.

    Attributes:
        spent: the exact zCDP loss of all measurements so far, never above the sum of 1 / (2 multiplier^2).
    """

    def __init__(self, draw: Sampler) -> None:
        self._draw = draw
        self.spent: Rho = ZERO

    def begin(self, *, sensitivity: float, multiplier: float, entries: int) -> Parts:
        _check(sensitivity, multiplier)
        step = power_of_two_above(sensitivity) * _RESOLUTION
        # Delta_q = ceil(Delta / step) + ceil(sqrt(m)): rounding moves each of the m entries by at most half a step
        moved = ceil(RAISED * Fraction(sensitivity) / Fraction(step)) + isqrt(max(entries - 1, 0)) + 1
        sigma = ceil(Fraction(multiplier) * moved)
        self.spent += gaussian_loss(squared_sensitivity=moved**2, sigma=sigma)
        return _ExactParts(self._draw, step, sigma, entries)


class _ExactParts(Parts):
    def __init__(self, draw: Sampler, step: float, sigma: int, entries: int) -> None:
        self._draw, self._step, self._sigma, self._left = draw, step, sigma, entries

    def part(self, value: Floats, *, weight: float = 1.0, symmetric: bool = False) -> Floats:
        if value.size > self._left:
            raise ValueError("a measurement has more entries than were announced")
        self._left -= value.size
        finer = power_of_two_above(sqrt(weight))
        while Fraction(weight) > Fraction(finer) ** 2:  # the root was rounded down to a power of two
            finer *= 2
        step, counted = self._step / finer, Fraction(weight) / Fraction(finer) ** 2
        if not symmetric:
            return self._noisy(value, step, counted)
        diagonal = self._noisy(value.diagonal(), step, counted)
        return _symmetric(diagonal, self._noisy(_above(value), step, 2 * counted))

    def _noisy(self, value: Floats, step: float, counted: Fraction) -> Floats:
        scale = isqrt(ceil(self._sigma**2 / counted) - 1) + 1
        # added as integers: whatever becomes of a sum too long for a float is post-processing
        steps = np.rint(value / step).astype(np.int64) + self._draw(scale, value.size).reshape(value.shape)
        noisy: Floats = steps.astype(np.float64) * step
        return noisy


def planned_loss(multiplier: float) -> Rho:
    """What one measurement may cost at most: 1 / (2 multiplier^2), rounded up. Known before any row is read."""
    _check(1.0, multiplier)
    return Rho(ceil(RHO_UNITS / (2 * Fraction(multiplier) ** 2)))


def multiplier_within(rho: float, parts: int = 1) -> float:
    """Noise of each of `parts` measurements, in units of its sensitivity, whose rho together do not exceed `rho`.

    The first float from sqrt(parts / (2 rho)) on with parts / (2 multiplier^2) <= rho in exact arithmetic.

    Raises ParameterError: rho is not a positive finite number.
    """
    if not (isfinite(rho) and rho > 0):
        raise ParameterError(f"rho is {rho!r}", remedy="Give a positive finite number.")
    multiplier = sqrt(parts / 2) / sqrt(rho)
    while parts > 2 * Fraction(rho) * Fraction(multiplier) ** 2:
        multiplier = nextafter(multiplier, inf)
    return multiplier


def _check(sensitivity: float, multiplier: float) -> None:
    for name, value in (("sensitivity", sensitivity), ("multiplier", multiplier)):
        if not (isfinite(value) and value > 0):
            raise ParameterError(f"a noise {name} of {value!r}", remedy="Give a positive finite number.")


def _above(square: Floats) -> Floats:
    return square[np.triu_indices(len(square), 1)]


def _symmetric(diagonal: Floats, above: Floats) -> Floats:
    full = np.zeros((len(diagonal), len(diagonal)))
    full[np.triu_indices(len(diagonal), 1)] = above
    return full + full.T + np.diag(diagonal)
