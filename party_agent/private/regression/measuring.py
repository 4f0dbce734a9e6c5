"""Values plus Gaussian noise: floating point for benchmarks, exact for the product (docs/proofs/regression.md, 1).

A measurement is a sensitivity and a multiplier: noise of standard deviation multiplier * sensitivity, which is
rho-zCDP with rho = 1 / (2 multiplier^2).
"""

from fractions import Fraction
from math import ceil, inf, isfinite, isqrt, nextafter, sqrt
from typing import Protocol

import numpy as np
from numpy.random import Generator

from commingle.party_agent.private.regression.problem import Floats, power_of_two_above
from commingle.shared.dp.accounting import RHO_UNITS, ZERO, Rho, gaussian_loss
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.noise import Sampler

_RESOLUTION = 2.0**-20
"""Step of the lattice in units of the sensitivity: noise grows by about sqrt(entries) of it."""
_RAISED = 1 + Fraction(1, 1 << 48)
"""A sensitivity is a product of floats, each rounded: it may be short by a few units in its last place."""


class Measure(Protocol):
    """Adds Gaussian noise."""

    def measure(self, value: Floats, *, sensitivity: float, multiplier: float, symmetric: bool = False) -> Floats:
        """`value` plus noise of standard deviation multiplier * sensitivity.

        Args:
            value: any shape; square if `symmetric`.
            sensitivity: largest Euclidean (Frobenius) distance between the values of neighbours.
            multiplier: noise in units of the sensitivity.
            symmetric: the value is; noise is drawn for the upper triangle and mirrored. The upper triangle's own
                sensitivity is at most the Frobenius one, and mirroring is post-processing, so the guarantee stands.
        """
        ...


class FloatingPoint:
    """Noise of a numpy generator. Not exact (Mironov 2012): for benchmarks, or by explicit consent."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def measure(self, value: Floats, *, sensitivity: float, multiplier: float, symmetric: bool = False) -> Floats:
        """As `Measure`."""
        scale = multiplier * sensitivity
        entries = _upper(value) if symmetric else value
        noisy: Floats = entries + scale * self.generator.standard_normal(entries.shape)
        return _mirror(noisy, len(value)) if symmetric else noisy


class Exact:
    """Discrete Gaussian noise on a lattice (Canonne, Kamath, Steinke 2020, theorem 14).

    The value is rounded to multiples of a power of two near 2^-20 sensitivities, which moves neighbours apart by at
    most one step an entry; sigma is the least integer not below multiplier * that raised sensitivity.

    Precondition: `sensitivity` bounds the distance of the values as computed, or would if its formula had not been
    rounded. Sums over a sample made by `on_grid` are exact, so the bound of the paper is that of the computation too.

    Attributes:
        spent: the exact zCDP loss of all measurements so far, never above the sum of 1 / (2 multiplier^2).
    """

    def __init__(self, draw: Sampler) -> None:
        self._draw = draw
        self.spent: Rho = ZERO

    def measure(self, value: Floats, *, sensitivity: float, multiplier: float, symmetric: bool = False) -> Floats:
        """As `Measure`."""
        _check(sensitivity, multiplier)
        step = power_of_two_above(sensitivity) * _RESOLUTION
        entries = _upper(value) if symmetric else value
        lattice = np.rint(entries / step)
        # Delta_q = ceil(Delta / step) + ceil(sqrt(m)): rounding moves each of the m entries by at most half a step
        moved = ceil(_RAISED * Fraction(sensitivity) / Fraction(step)) + isqrt(max(entries.size - 1, 0)) + 1
        sigma = ceil(Fraction(multiplier) * moved)
        noise = self._draw(sigma, entries.size).astype(np.float64).reshape(entries.shape)
        self.spent += gaussian_loss(squared_sensitivity=moved**2, sigma=sigma)
        noisy: Floats = (lattice + noise) * step
        return _mirror(noisy, len(value)) if symmetric else noisy


def planned_loss(multiplier: float) -> Rho:
    """What one measurement may cost at most: 1 / (2 multiplier^2), rounded up. Known before any row is read."""
    _check(1.0, multiplier)
    return Rho(ceil(RHO_UNITS / (2 * Fraction(multiplier) ** 2)))


def multiplier_within(rho: float, parts: int = 1) -> float:
    """Noise of each of `parts` measurements, in units of its sensitivity, whose rho together do not exceed `rho`.

    The first float from sqrt(parts / (2 rho)) on with parts / (2 multiplier^2) <= rho in exact arithmetic.

    Raises:
        ParameterError: rho is not a positive finite number.
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


def _upper(square: Floats) -> Floats:
    return square[np.triu_indices(len(square))]


def _mirror(upper: Floats, size: int) -> Floats:
    full = np.zeros((size, size))
    full[np.triu_indices(size)] = upper
    return full + np.triu(full, 1).T
