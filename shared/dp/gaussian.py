"""The exact privacy curve of the Gaussian mechanism, both ways (docs/proofs/noise-and-accounting.md, 5).

A Gaussian mechanism whose noise is 1/mu of its sensitivity has the loss rho = mu^2 / 2, and losses add, whatever is
asked for in view of earlier answers. Only where a loss is read as (epsilon, delta) does it matter that it is one's:

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)      (Balle, Wang 2018, theorem 8)

What is computed here is never below the curve of what is drawn.
"""

from functools import lru_cache
from math import erfc, exp, inf, nextafter, pi, sqrt

from commingle.shared.dp.calibration import (
    RHO_RANGE,
    Calibration,
    check_delta,
    check_epsilon,
    classical_rho,
    epsilon_of_rho,
    rho_of_epsilon,
)
from commingle.shared.dp.errors import ParameterError

LARGEST_RHO = 88.0**2 / 2
"""The proof of what is drawn ends there; beyond, the bound for rho-zCDP is used."""
_DRAWN = 2.0**-32
"""More than noise on a fine lattice differs from a rounded Gaussian's, in epsilon and relative in delta (1.5 there)."""
_PLACES = 2.0**-50
_SERIES_FROM, _SHORT_SERIES_FROM = 25.0, 1e9
_HALVINGS = 90


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
    """At most how often the best test is right which of two neighbouring files it is, where both are as likely.

    Phi(mu/2) of a Gaussian loss, and half of delta more, rounded up (docs/proofs/noise-and-accounting.md, 5.4).
    """
    if rho <= 0:
        return min(1.0, 0.5 + delta / 2)
    if rho > LARGEST_RHO:
        return 1.0
    mu = nextafter(sqrt(2 * rho) * (1 + _PLACES), inf)
    return min(1.0, 0.5 + (gaussian_delta(mu, 0.0) + 4 * _DRAWN + delta) / 2)


@lru_cache(maxsize=256)  # stated of every party, and asked again by every check
def gaussian_epsilon(rho: float, delta: float) -> float:
    """The least epsilon of a Gaussian loss rho at delta, rounded up.

    Raises:
        ParameterError: delta outside its domain.
    """
    if rho <= 0:
        return 0.0
    check_delta(delta)
    low, high = 0.0, epsilon_of_rho(rho, delta)  # a Gaussian mechanism is rho-zCDP
    if not _holds(rho, high, delta):
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _holds(rho, middle, delta) else (middle, high)
    return high


@lru_cache(maxsize=256)  # asked again for every spec that is looked at
def gaussian_rho(epsilon: float, delta: float) -> float:
    """The largest Gaussian loss within (epsilon, delta), rounded down.

    Raises:
        ParameterError: epsilon or delta outside its domain, or epsilon so small that no noise level serves it.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    low, high = RHO_RANGE[0], LARGEST_RHO
    if epsilon < _DRAWN or epsilon > RHO_RANGE[1]:
        return rho_of_epsilon(epsilon, delta)
    if not _holds(low, epsilon, delta):
        raise ParameterError(f"epsilon {epsilon!r} cannot be calibrated", remedy="Use an epsilon of usual size.")
    if _holds(high, epsilon, delta):
        return max(high, rho_of_epsilon(epsilon, delta))
    for _ in range(_HALVINGS):  # geometric: `low` always keeps the promise
        middle = sqrt(low * high)
        low, high = (middle, high) if _holds(middle, epsilon, delta) else (low, middle)
    while gaussian_epsilon(low, delta) > epsilon:  # by a rounding
        low *= 1 - 2.0**-40
    return low


def _holds(rho: float, epsilon: float, delta: float) -> bool:
    """Whether a Gaussian loss rho, as it is drawn, is within (epsilon, delta); False where it is too close to tell."""
    mu = nextafter(sqrt(2 * rho) * (1 + _PLACES), inf)
    known = rho <= LARGEST_RHO and epsilon >= _DRAWN
    return known and gaussian_delta(mu, epsilon - _DRAWN) <= delta * (1 - _DRAWN)


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
    """The epsilon that what was made under the named calibration states for a loss: under `analytic` the exact one."""
    return (gaussian_epsilon if calibration == Calibration.ANALYTIC else epsilon_of_rho)(rho, delta)
