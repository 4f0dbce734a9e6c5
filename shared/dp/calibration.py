"""From (epsilon, delta) to zCDP and back (docs/design/privacy.md#calibration)."""

from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from math import exp, isfinite, log, log1p, sqrt
from sys import float_info

from commingle.shared.dp.errors import ParameterError

_CLASSICAL_EPSILON_LIMIT = 1.0
RHO_RANGE = (1e-18, 1e9)
_GOLDEN = (sqrt(5) - 1) / 2
_WIDTH = 1e-8  # the valley is flat: its depth is then exact to 1e-16
_HALVINGS = 64
_MARGIN = 2.0**-49
"""Of the magnitudes of the terms of `epsilon_of_rho`: more than their sum is off.

See docs/proofs/noise-and-accounting.md, 4.5.
"""


class Calibration(StrEnum):
    """How (epsilon, delta) becomes a noise level."""

    ANALYTIC = "analytic"
    ZCDP = "zcdp"
    CLASSICAL = "classical"


def check_epsilon(epsilon: float) -> float:
    """Epsilon itself, if it is a positive, finite, normal number.

    Raises:
        ParameterError: it is not.
    """
    if not (isfinite(epsilon) and epsilon >= float_info.min):
        raise ParameterError(f"epsilon is {epsilon!r}", remedy="Give a positive finite number, for example 1.")
    return epsilon


def check_delta(delta: float) -> float:
    """Delta itself, if it lies strictly between 0 and 1.

    Raises:
        ParameterError: it does not.
    """
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
    """Golden-section search for the least point of a function with one valley."""
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


@lru_cache(maxsize=256)  # asked again for every spec that is looked at
def rho_of_epsilon(epsilon: float, delta: float) -> float:
    """The largest rho with eps(rho, delta) <= epsilon, rounded down.

    Raises:
        ParameterError: epsilon or delta outside its domain, or epsilon so small that no noise level serves it.
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

    Raises:
        ParameterError: epsilon above 1, where the theorem says nothing, or so small that no noise level serves it.
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
