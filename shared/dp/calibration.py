"""From (epsilon, delta) to a loss and back: zCDP, and the exact privacy curve of the Gaussian mechanism.

See docs/design/privacy.md#calibration and docs/proofs/noise-and-accounting.md, 4 and 5. A Gaussian mechanism whose
noise is 1/mu of its sensitivity has the loss rho = mu^2 / 2; losses add, whatever is asked for in view of earlier
answers. Only the reading as (epsilon, delta) uses that the loss is a Gaussian's:

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)      (Balle, Wang 2018, theorem 8)

What is computed here is never below the curve of what is drawn.
"""

from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from math import erfc, exp, inf, isfinite, log, log1p, nextafter, pi, sqrt
from sys import float_info

from commingle.shared.errors import ParameterError

_CLASSICAL_EPSILON_LIMIT = 1.0
RHO_RANGE = (1e-18, 1e9)
_GOLDEN = (sqrt(5) - 1) / 2
_WIDTH = 1e-8  # the valley is flat: its depth is then exact to 1e-16
_HALVINGS = 64
_MARGIN = 2.0**-49
"""Times the magnitudes of the terms of `epsilon_of_rho`, more than the error of their sum (the proofs, 4.5)."""
LARGEST_RHO = 88.0**2 / 2  # the proof of the noise ends there; beyond, the bound for rho-zCDP is used
DRAWN = 2.0**-32
"""More than noise on a fine lattice differs from a rounded Gaussian's, in epsilon and relative in delta (1.5 there)."""
_PLACES = 2.0**-50
_SERIES_FROM, _SHORT_SERIES_FROM = 25.0, 1e9
_BISECTIONS = 90


class Calibration(StrEnum):
    """How (epsilon, delta) becomes a noise level."""

    ANALYTIC = "analytic"
    ZCDP = "zcdp"
    CLASSICAL = "classical"


def check_epsilon(epsilon: float) -> float:
    """Epsilon itself, if it is positive, finite and normal. Raises ParameterError."""
    if not (isfinite(epsilon) and epsilon >= float_info.min):
        raise ParameterError(f"epsilon is {epsilon!r}", remedy="Give a positive finite number, for example 1.")
    return epsilon


def check_delta(delta: float) -> float:
    """Delta itself, if it is normal and below 1. Raises ParameterError."""
    if not (isfinite(delta) and float_info.min <= delta < 1):
        raise ParameterError(f"delta is {delta!r}", remedy="Give a number strictly between 0 and 1, for example 1e-5.")
    return delta


def epsilon_of_rho(rho: float, delta: float) -> float:
    """The least epsilon for which rho-zCDP implies (epsilon, delta)-DP (Canonne, Kamath, Steinke 2020, cor. 13).

    eps = min over alpha > 1 of  rho alpha + (ln(1/delta) + (alpha-1) ln(1-1/alpha) - ln(alpha)) / (alpha-1).
    Every alpha gives a valid bound, so an inexact minimiser errs on the safe side; the sum is rounded up.
    """
    if rho <= 0:
        return 0.0
    check_delta(delta)

    def bound(log_excess: float) -> float:
        excess = exp(log_excess)  # alpha - 1
        least, most = rho * (1 + excess) - log(delta) / excess, log1p(excess) / excess + log1p(1 / excess)
        return least - most + _MARGIN * (least + most)

    guess = 0.5 * log(log(1 / delta) / rho + 1e-300)
    return max(bound(_minimiser(bound, min(guess, 0) - 8, max(guess, 0) + 8)), 0.0)


def _minimiser(function: Callable[[float], float], low: float, high: float) -> float:
    inner = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    values = function(inner[0]), function(inner[1])
    while high - low > _WIDTH:
        if values[0] < values[1]:
            high, point = inner[1], inner[1] - _GOLDEN * (inner[1] - low)
            inner, values = (point, inner[0]), (function(point), values[0])
        else:
            low, point = inner[0], inner[0] + _GOLDEN * (high - inner[0])
            inner, values = (inner[1], point), (values[1], function(point))
    return (low + high) / 2


@lru_cache(maxsize=256)  # asked again for every spec
def rho_of_epsilon(epsilon: float, delta: float) -> float:
    """The largest rho with eps(rho, delta) <= epsilon, rounded down.

    Raises ParameterError: epsilon or delta outside its domain, or epsilon too small for any noise level.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    low, high = RHO_RANGE
    if epsilon_of_rho(low, delta) > epsilon or epsilon_of_rho(high, delta) < epsilon:
        raise ParameterError(f"epsilon {epsilon!r} cannot be calibrated", remedy="Use an epsilon of usual size.")
    for _ in range(_HALVINGS):  # geometric bisection: epsilon grows with rho, and `low` always keeps the promise
        middle = sqrt(low * high)
        low, high = (middle, high) if epsilon_of_rho(middle, delta) <= epsilon else (low, middle)
    return low


def classical_rho(epsilon: float, delta: float) -> float:
    """1/(2 sigma_1^2) for sigma_1 = sqrt(2 ln(1.25/delta))/epsilon (Dwork, Roth 2014, theorem A.1).

    Raises ParameterError: epsilon above 1, where the theorem says nothing, or too small for any noise level.
    """
    if check_epsilon(epsilon) > _CLASSICAL_EPSILON_LIMIT:
        raise ParameterError(
            f"the classical calibration is proved for epsilon <= 1 only, not for {epsilon}",
            remedy="Use calibration analytic.",
        )
    rho = 0.5 * (epsilon / sqrt(2 * log(1.25 / check_delta(delta)))) ** 2
    if rho < RHO_RANGE[0]:
        raise ParameterError(f"epsilon {epsilon!r} cannot be calibrated", remedy="Use an epsilon of usual size.")
    return rho


def gaussian_delta(mu: float, epsilon: float) -> float:
    """An upper bound of delta at epsilon, a few roundings above it.

    With a = mu/2 - epsilon/mu, x = mu/2 + epsilon/mu and e^epsilon phi(x) = phi(a), the curve is
    Phi(a) - phi(a) R(x), R(x) = Phi(-x) / phi(x). Both ends are moved against the release by more than rounding did.
    """
    half, ratio = mu / 2, epsilon / mu
    slack = _PLACES * (half + ratio)
    a = half - ratio
    above = 0.5 * erfc(-(a + slack) / sqrt(2)) * (1 + 2.0**-45)
    away = abs(a) + slack
    density = exp(-away * away / 2) / sqrt(2 * pi) * (1 - 2.0**-40)
    return above - density * _mills(half + ratio + slack)


def _mills(x: float) -> float:
    """A lower bound of Phi(-x) / phi(x) for x > 0; from 25 on a convergent of its continued fraction."""
    if x < _SERIES_FROM:
        return 0.5 * erfc(x / sqrt(2)) * exp(x * x / 2) * sqrt(2 * pi) * (1 - 2.0**-40)
    if x < _SHORT_SERIES_FROM:
        return (x**3 + 5 * x) / (x**4 + 6 * x**2 + 3) * (1 - 2.0**-45)
    return x / (x * x + 1) * (1 - 2.0**-45)  # 0 where x^2 is beyond floats


def best_guess(rho: float, delta: float = 0.0) -> float:
    """At most how often the best test tells two equally likely neighbouring files apart.

    Phi(mu/2) of a Gaussian loss, and half of delta more, rounded up (docs/proofs/noise-and-accounting.md, 5.4).
    """
    if rho <= 0:
        return min(1.0, 0.5 + delta / 2)
    if rho > LARGEST_RHO:
        return 1.0
    mu = nextafter(sqrt(2 * rho) * (1 + _PLACES), inf)
    return min(1.0, 0.5 + (gaussian_delta(mu, 0.0) + 4 * DRAWN + delta) / 2)


@lru_cache(maxsize=256)  # stated of every party, and asked again by every check
def gaussian_epsilon(rho: float, delta: float) -> float:
    """The least epsilon of a Gaussian loss rho at delta, rounded up. Raises ParameterError: delta not in its domain."""
    if rho <= 0:
        return 0.0
    check_delta(delta)
    low, high = 0.0, epsilon_of_rho(rho, delta)  # a Gaussian mechanism is rho-zCDP
    if not _holds(rho, high, delta):
        return high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if _holds(rho, middle, delta) else (middle, high)
    return high


@lru_cache(maxsize=256)  # asked again for every spec
def gaussian_rho(epsilon: float, delta: float) -> float:
    """The largest Gaussian loss within (epsilon, delta), rounded down.

    Raises ParameterError: epsilon or delta outside its domain, or epsilon too small for any noise level.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    low, high = RHO_RANGE[0], LARGEST_RHO
    if epsilon < DRAWN or epsilon > RHO_RANGE[1]:
        return rho_of_epsilon(epsilon, delta)
    if not _holds(low, epsilon, delta):
        raise ParameterError(f"epsilon {epsilon!r} cannot be calibrated", remedy="Use an epsilon of usual size.")
    if _holds(high, epsilon, delta):
        return max(high, rho_of_epsilon(epsilon, delta))
    for _ in range(_BISECTIONS):  # geometric: `low` always keeps the promise
        middle = sqrt(low * high)
        low, high = (middle, high) if _holds(middle, epsilon, delta) else (low, middle)
    while gaussian_epsilon(low, delta) > epsilon:  # by a rounding
        low *= 1 - 2.0**-40
    return low


def _holds(rho: float, epsilon: float, delta: float) -> bool:
    """Whether a Gaussian loss rho, as it is drawn, is within (epsilon, delta); False where it is too close to tell."""
    mu = nextafter(sqrt(2 * rho) * (1 + _PLACES), inf)
    known = rho <= LARGEST_RHO and epsilon >= DRAWN
    return known and gaussian_delta(mu, epsilon - DRAWN) <= delta * (1 - DRAWN)


def calibrated_rho(calibration: Calibration, *, epsilon: float, delta: float) -> float:
    """The loss that a release at (epsilon, delta) may have under the named calibration."""
    match calibration:
        case Calibration.ANALYTIC:
            return gaussian_rho(epsilon, delta)
        case Calibration.ZCDP:
            return rho_of_epsilon(epsilon, delta)
        case Calibration.CLASSICAL:
            return classical_rho(epsilon, delta)


def stated_epsilon(calibration: str, rho: float, delta: float) -> float:
    """The epsilon that documents state for a loss under the named calibration: under `analytic` the exact one."""
    return (gaussian_epsilon if calibration == Calibration.ANALYTIC else epsilon_of_rho)(rho, delta)
