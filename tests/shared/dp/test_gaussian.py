"""The exact curve against itself in hundreds of digits, against SciPy's, and against what it must imply."""

from decimal import Decimal, localcontext
from functools import lru_cache
from math import exp, log10, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr

from commingle.shared.dp.accounting import RHO_UNITS, Loss, Rho
from commingle.shared.dp.calibration import Calibration, epsilon_of_rho, rho_of_epsilon
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.gaussian import (
    LARGEST_RHO,
    best_guess,
    calibrated_rho,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_rho,
    stated_epsilon,
)

EPSILONS = st.floats(1e-3, 30)
DELTAS = st.floats(1e-15, 0.5)
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


@given(EPSILONS, DELTAS)
def test_calibrated_loss_keeps_epsilon_and_delta_in_exact_arithmetic_and_nearly_reaches_them(
    epsilon: float, delta: float
) -> None:
    rho = gaussian_rho(epsilon, delta)
    assert exact_delta(sqrt(2 * rho), epsilon) <= Decimal(delta)
    assert exact_delta(sqrt(2 * rho) * (1 + 1e-6), epsilon) > Decimal(delta)


@given(EPSILONS, DELTAS)
def test_epsilon_of_a_calibrated_loss_is_the_one_asked_for(epsilon: float, delta: float) -> None:
    viewed = gaussian_epsilon(gaussian_rho(epsilon, delta), delta)
    assert viewed <= epsilon
    assert viewed == pytest.approx(epsilon, rel=1e-7)


@given(st.floats(1e-12, LARGEST_RHO), DELTAS)
def test_epsilon_is_never_above_that_of_zcdp_and_holds_by_scipys_curve(rho: float, delta: float) -> None:
    epsilon, mu = gaussian_epsilon(rho, delta), sqrt(2 * rho)
    assert epsilon <= epsilon_of_rho(rho, delta)
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    assert float(ndtr(a)) - exp(epsilon + float(log_ndtr(b))) <= delta * (1 + 1e-6) + 1e-15


def test_noise_at_epsilon_one_is_3_731_sensitivities_where_zcdp_takes_4_045() -> None:
    assert 1 / sqrt(2 * gaussian_rho(1, 1e-5)) == pytest.approx(3.7306, abs=1e-4)
    assert 1 / sqrt(2 * rho_of_epsilon(1, 1e-5)) == pytest.approx(4.0451, abs=1e-4)


def test_beyond_the_largest_loss_of_the_proof_the_bound_for_zcdp_is_used() -> None:
    assert gaussian_epsilon(LARGEST_RHO * 1.001, 1e-5) == epsilon_of_rho(LARGEST_RHO * 1.001, 1e-5)
    assert gaussian_rho(1e5, 1e-5) == rho_of_epsilon(1e5, 1e-5)
    just_above = epsilon_of_rho(LARGEST_RHO, 1e-5) - 1e-3  # the bound for zCDP would allow less than the exact curve
    assert gaussian_rho(just_above, 1e-5) == LARGEST_RHO


@given(st.floats(1e-9, 1e9), DELTAS, st.floats(1.0, 10.0))
def test_a_larger_loss_never_has_a_smaller_epsilon(rho: float, delta: float, times: float) -> None:
    assert gaussian_epsilon(rho, delta) <= gaussian_epsilon(rho * times, delta) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), float("inf")])
def test_epsilon_outside_its_domain_is_refused(epsilon: float) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        gaussian_rho(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, float("nan")])
def test_delta_outside_its_domain_is_refused(delta: float) -> None:
    with pytest.raises(ParameterError, match="delta"):
        gaussian_rho(1.0, delta)
    with pytest.raises(ParameterError, match="delta"):
        gaussian_epsilon(0.1, delta)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-12, 1e-300), (1e80, 1e-5), (1e200, 1e-5), (1e300, 1e-5)])
def test_epsilon_that_no_noise_serves_is_refused_by_name(epsilon: float, delta: float) -> None:
    with pytest.raises(ParameterError, match="cannot be calibrated"):
        gaussian_rho(epsilon, delta)


@pytest.mark.parametrize("epsilon", [1e20, 1e80, 1e160, 1e300])
def test_delta_far_out_is_nothing_and_no_error(epsilon: float) -> None:
    assert 0 <= gaussian_delta(1.0, epsilon) < 1e-300


@given(st.floats(1e-6, 1e-3), st.floats(1e-13, 1e-9))
def test_view_of_a_small_calibrated_loss_does_not_exceed_epsilon_either(epsilon: float, delta: float) -> None:
    assert gaussian_epsilon(gaussian_rho(epsilon, delta), delta) <= epsilon


def test_no_loss_is_epsilon_zero_and_so_is_one_that_delta_alone_covers() -> None:
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_epsilon(1e-12, 1e-5) == 0.0


@pytest.mark.parametrize("calibration", list(Calibration))
def test_what_is_stated_of_a_calibrated_loss_is_never_more_than_was_asked_for(calibration: Calibration) -> None:
    rho = calibrated_rho(calibration, epsilon=0.9, delta=1e-6)
    assert stated_epsilon(calibration, rho, 1e-6) <= 0.9 * (1 + 1e-12)
