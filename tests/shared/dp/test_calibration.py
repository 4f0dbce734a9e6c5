"""Epsilon, delta and losses: against reference rows, OpenDP and SciPy, and the curves in hundreds of digits."""

import json
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import lru_cache
from math import exp, inf, log, log1p, log10, nan, pi, sqrt

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr

from commingle.shared.dp.accounting import RHO_UNITS, Loss, Rho
from commingle.shared.dp.calibration import (
    LARGEST_RHO,
    Calibration,
    best_guess,
    calibrated_rho,
    check_delta,
    check_epsilon,
    classical_rho,
    epsilon_of_rho,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_rho,
    rho_of_epsilon,
    stated_epsilon,
)
from commingle.shared.errors import ParameterError

dp.enable_features("contrib")

EPSILONS = st.floats(1e-3, 20)
DELTAS = st.floats(1e-12, 0.5)
WIDE_EPSILONS = st.floats(1e-3, 30)
SMALL_DELTAS = st.floats(1e-15, 0.5)


def opendp_epsilon(sigma: float, delta: float) -> float:
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    approximate = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=sigma))
    profile = approximate.map(1.0)  # type: ignore[no-untyped-call] # OpenDP leaves its maps untyped
    return float(profile.epsilon(delta))


@pytest.mark.parametrize("sigma", [0.7, 1.0, 4.045, 30.0, 300.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_epsilon_agrees_with_opendp_for_the_same_gaussian(sigma: float, delta: float) -> None:
    ours = epsilon_of_rho(1 / (2 * sigma**2), delta)
    assert ours == pytest.approx(opendp_epsilon(sigma, delta), rel=1e-6)


def exact_bound(rho: float, delta: float) -> Decimal:
    """The sum of the proof's 4.5 to 50 digits at an order next to the best, where rho x^2 + ln(1 + x) = ln(1/delta)."""
    low, high = -60.0, 60.0
    for _ in range(64):  # ln x, in floating point: near the best order the sum is flat
        middle = (low + high) / 2
        below = rho * exp(2 * middle) + log1p(exp(middle)) < -log(delta)
        low, high = (middle, high) if below else (low, middle)
    with localcontext(prec=50):
        x = Decimal(exp(low))
        return Decimal(rho) * (1 + x) - (Decimal(delta).ln() + (1 + x).ln()) / x - (1 + 1 / x).ln()


@given(st.floats(1e-15, 1e4), st.floats(1e-15, 0.99))
def test_epsilon_is_never_below_the_exact_bound(rho: float, delta: float) -> None:
    exact, found = exact_bound(rho, delta), Decimal(epsilon_of_rho(rho, delta))
    assert exact <= found
    assert found <= max(exact, Decimal(0)) * (1 + Decimal("1e-12")) + Decimal("1e-13")


@given(st.floats(1e-4, 100), st.floats(1e-15, 0.9))
def test_calibrated_rho_keeps_epsilon_in_exact_arithmetic_and_nearly_reaches_it(epsilon: float, delta: float) -> None:
    rho = rho_of_epsilon(epsilon, delta)
    assert exact_bound(rho, delta) <= Decimal(epsilon)
    assert epsilon_of_rho(rho, delta) <= epsilon < epsilon_of_rho(rho * (1 + 1e-9), delta)


@given(st.floats(1e-3, 1), st.floats(1e-12, 0.99))
def test_classical_noise_is_never_below_zcdp_noise_so_discrete_noise_is_covered(epsilon: float, delta: float) -> None:
    assert classical_rho(epsilon, delta) <= rho_of_epsilon(epsilon, delta)


@pytest.mark.parametrize("epsilon", [0, 0.0, -0.0, -1, nan, inf, -inf, 5e-324, 2.2e-308, json.loads("1e309")])
def test_epsilon_outside_its_domain_is_refused(epsilon: float) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        check_epsilon(epsilon)
    for calibrated in (rho_of_epsilon, classical_rho, gaussian_rho):
        with pytest.raises(ParameterError, match="epsilon"):
            calibrated(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0.0, -1e-5, 1.0, 2.0, nan, inf, -inf, 5e-324, json.loads("1e309")])
def test_delta_outside_its_domain_is_refused(delta: float) -> None:
    with pytest.raises(ParameterError, match="delta"):
        check_delta(delta)
    for calibrated in (gaussian_epsilon, rho_of_epsilon, classical_rho, gaussian_rho):
        with pytest.raises(ParameterError, match="delta"):
            calibrated(1, delta)


def test_tiny_epsilon_is_calibrated_by_delta_alone() -> None:
    # delta bounds the total variation distance, about Delta / (sigma sqrt(2 pi)) for a Gaussian
    sigma = 1 / sqrt(2 * rho_of_epsilon(2.3e-308, 1e-5))
    assert 1 / (sigma * sqrt(2 * pi)) < 1e-5


@given(st.integers(1, 1 << 90), DELTAS)
def test_every_ledger_sum_has_a_finite_epsilon(units: int, delta: float) -> None:
    assert 0 <= Rho(units).epsilon(delta) < 2 * units / RHO_UNITS + 2 * sqrt(units / RHO_UNITS * log(1 / delta)) + 1e-6


@pytest.mark.parametrize(
    ("calibrated", "epsilon", "delta"),
    [
        *((rho_of_epsilon, *pair) for pair in [(2.3e-308, 1e-12), (1e-12, 1e-12), (1e12, 1e-5), (1e300, 1e-5)]),
        *((gaussian_rho, *pair) for pair in [(1e-12, 1e-300), (1e80, 1e-5), (1e200, 1e-5), (1e300, 1e-5)]),
        (classical_rho, 1.0000001, 1e-5),
    ],
)
def test_epsilon_that_no_noise_serves_is_refused_by_name(
    calibrated: Callable[[float, float], float], epsilon: float, delta: float
) -> None:
    with pytest.raises(ParameterError, match=r"cannot be calibrated|epsilon <= 1"):
        calibrated(epsilon, delta)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-200, 1e-30])
def test_epsilon_too_small_for_any_noise_is_refused(epsilon: float) -> None:
    """The loss of 1e-200 is 0 as a number, and noise of its size an error of division; zcdp spends delta alone then."""
    with pytest.raises(ParameterError, match="cannot be calibrated"):
        calibrated_rho(Calibration.CLASSICAL, epsilon=epsilon, delta=1e-5)
    rho = calibrated_rho(Calibration.ZCDP, epsilon=epsilon, delta=1e-5)
    assert 0 < rho < 1e-5
    assert epsilon_of_rho(rho, 1e-5) <= epsilon


MUS = st.floats(-4, 1).map(lambda power: 10.0**power)


@lru_cache
def _pi(digits: int) -> Decimal:
    """By the arithmetic-geometric mean (Gauss, Legendre)."""
    with localcontext(prec=digits + 10):
        a, b, t, p = Decimal(1), 1 / Decimal(2).sqrt(), Decimal("0.25"), Decimal(1)
        for _ in range(digits.bit_length() + 2):
            mean = (a + b) / 2
            a, b, t, p = mean, (a * b).sqrt(), t - p * (a - mean) ** 2, 2 * p
        return (a + b) ** 2 / (4 * t)


def _upper_tail(x: Decimal, digits: int) -> Decimal:
    """Phi(-x) = 1/2 - phi(x) (x + x^3/3 + x^5/(3 5) + ...), to so many digits less those that the difference loses."""
    term = total = x
    order = 1
    while abs(term) > Decimal(10) ** -digits * (1 + abs(total)):
        order += 2
        term = term * x * x / order
        total += term
    return Decimal("0.5") - (-x * x / 2).exp() / (2 * _pi(digits)).sqrt() * total


def exact_delta(mu: float, epsilon: float) -> Decimal:
    """Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)."""
    farthest = mu / 2 + epsilon / mu
    digits = 60 + int(farthest**2 / 2 * log10(exp(1)) * 2)
    with localcontext(prec=digits + 10):
        half, ratio = Decimal(mu) / 2, Decimal(epsilon) / Decimal(mu)
        return _upper_tail(ratio - half, digits) - Decimal(epsilon).exp() * _upper_tail(ratio + half, digits)


@given(MUS, st.floats(0, 30), st.floats(0, 6))
def test_delta_is_never_below_the_exact_curve_and_hardly_above(mu: float, sigmas: float, more: float) -> None:
    epsilon = mu * (mu / 2 + min(sigmas, 40 - mu)) + more * mu
    exact, found = exact_delta(mu, epsilon), Decimal(gaussian_delta(mu, epsilon))
    assert exact <= found
    assert found <= exact * (1 + Decimal("1e-6"))


@given(st.floats(1e-6, 8), st.floats(0, 0.1))
def test_best_guess_is_what_the_likelihood_ratio_reaches_and_nothing_passes(mu: float, delta: float) -> None:
    """The ratio of N(0, 1) and N(mu, 1) is right with Phi(mu/2); all other tests by thresholds are right less often."""
    found = best_guess(mu**2 / 2)
    right = float(ndtr(mu / 2))
    assert right <= found <= right + 1e-8
    thresholds = mu * np.array([-1.0, 0.2, 0.5, 0.9, 2.0])
    assert ((ndtr(thresholds) + ndtr(mu - thresholds)) / 2 <= found).all()
    assert best_guess(mu**2 / 2, delta) == pytest.approx(min(1.0, found + delta / 2))


def test_guess_is_a_coin_without_a_loss_and_sure_beyond_the_proof() -> None:
    assert (best_guess(0.0), best_guess(0.0, 1.0), best_guess(2 * LARGEST_RHO)) == (0.5, 1.0, 1.0)
    assert Loss(Rho(RHO_UNITS // 2), gaussian=False).best_guess == pytest.approx(0.75)
    assert Loss(Rho(int(gaussian_rho(1.0, 1e-5) * RHO_UNITS))).guess_percent == 56


@given(WIDE_EPSILONS, SMALL_DELTAS)
def test_calibrated_loss_keeps_epsilon_and_delta_in_exact_arithmetic_and_nearly_reaches_them(
    epsilon: float, delta: float
) -> None:
    rho = gaussian_rho(epsilon, delta)
    assert exact_delta(sqrt(2 * rho), epsilon) <= Decimal(delta)
    assert exact_delta(sqrt(2 * rho) * (1 + 1e-6), epsilon) > Decimal(delta)


@given(WIDE_EPSILONS, SMALL_DELTAS)
def test_epsilon_of_a_calibrated_loss_is_the_one_asked_for(epsilon: float, delta: float) -> None:
    viewed = gaussian_epsilon(gaussian_rho(epsilon, delta), delta)
    assert viewed <= epsilon
    assert viewed == pytest.approx(epsilon, rel=1e-7)


@given(st.floats(1e-12, LARGEST_RHO), SMALL_DELTAS)
def test_epsilon_is_never_above_that_of_zcdp_and_holds_by_scipys_curve(rho: float, delta: float) -> None:
    epsilon, mu = gaussian_epsilon(rho, delta), sqrt(2 * rho)
    assert epsilon <= epsilon_of_rho(rho, delta)
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    assert float(ndtr(a)) - exp(epsilon + float(log_ndtr(b))) <= delta * (1 + 1e-6) + 1e-15


def test_noise_at_epsilon_one_is_3_731_sensitivities_where_zcdp_takes_4_045_and_the_classical_one_4_845() -> None:
    assert 1 / sqrt(2 * gaussian_rho(1, 1e-5)) == pytest.approx(3.7306, abs=1e-4)
    assert 1 / sqrt(2 * rho_of_epsilon(1, 1e-5)) == pytest.approx(4.0451, abs=1e-4)
    assert 1 / sqrt(2 * classical_rho(1, 1e-5)) == pytest.approx(4.8448, abs=1e-4)  # sqrt(2 ln 125000)


def test_beyond_the_largest_loss_of_the_proof_the_bound_for_zcdp_is_used() -> None:
    assert gaussian_epsilon(LARGEST_RHO * 1.001, 1e-5) == epsilon_of_rho(LARGEST_RHO * 1.001, 1e-5)
    assert gaussian_rho(1e5, 1e-5) == rho_of_epsilon(1e5, 1e-5)
    just_above = epsilon_of_rho(LARGEST_RHO, 1e-5) - 1e-3  # the bound for zCDP would allow less than the exact curve
    assert gaussian_rho(just_above, 1e-5) == LARGEST_RHO


@given(st.floats(1e-9, 1e9), SMALL_DELTAS, st.floats(1.0, 10.0))
def test_a_larger_loss_never_has_a_smaller_epsilon(rho: float, delta: float, times: float) -> None:
    assert gaussian_epsilon(rho, delta) <= gaussian_epsilon(rho * times, delta) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [1e20, 1e80, 1e160, 1e300])
def test_delta_far_out_is_nothing_and_no_error(epsilon: float) -> None:
    assert 0 <= gaussian_delta(1.0, epsilon) < 1e-300


@given(st.floats(1e-6, 1e-3), st.floats(1e-13, 1e-9))
def test_view_of_a_small_calibrated_loss_does_not_exceed_epsilon_either(epsilon: float, delta: float) -> None:
    assert gaussian_epsilon(gaussian_rho(epsilon, delta), delta) <= epsilon


def test_no_loss_is_epsilon_zero_and_so_is_one_that_delta_alone_covers() -> None:
    assert epsilon_of_rho(0.0, 1e-5) == gaussian_epsilon(0.0, 1e-5) == gaussian_epsilon(1e-12, 1e-5) == 0.0


@pytest.mark.parametrize("calibration", list(Calibration))
def test_what_is_stated_of_a_calibrated_loss_is_never_more_than_was_asked_for(calibration: Calibration) -> None:
    rho = calibrated_rho(calibration, epsilon=0.9, delta=1e-6)
    assert stated_epsilon(calibration, rho, 1e-6) <= 0.9 * (1 + 1e-12)
