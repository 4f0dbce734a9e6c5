from dataclasses import replace
from fractions import Fraction
from math import comb, exp, pi, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from commingle.shared.dp.accounting import RHO_UNITS, ZERO, Loss, Rho, rho_left
from commingle.shared.dp.calibration import epsilon_of_rho, rho_of_epsilon
from commingle.shared.dp.errors import ParameterError

LOSSES = st.builds(Loss, st.integers(0, 1 << 70).map(Rho), st.floats(0, 0.01))


@given(LOSSES, LOSSES)
def test_sum_is_never_below_the_exact_sum_of_either_component(one: Loss, other: Loss) -> None:
    total = one + other
    assert total.rho == one.rho + other.rho
    assert Fraction(total.delta) >= Fraction(one.delta) + Fraction(other.delta)


@given(LOSSES)
def test_adding_nothing_changes_nothing(loss: Loss) -> None:
    assert loss + Loss(ZERO) == loss == Loss(ZERO) + loss


@given(st.floats(1e-6, 50), st.floats(0, 0.1))
def test_approximate_mechanism_costs_what_a_gaussian_that_reveals_no_less_does(epsilon: float, delta: float) -> None:
    """2 Phi^-1(e^epsilon / (1 + e^epsilon)) <= mu: then the Gaussian's trade-off curve lies below."""
    loss = Loss.approximate(epsilon, delta)
    mu = sqrt(2 * loss.rho.rounded_up)
    assert stats.norm.sf(mu / 2) <= 1 / (1 + exp(epsilon)) * (1 + 1e-12)
    assert float(loss.rho) <= pi / 4 * epsilon**2 * 1.0001 + 1e-18
    assert (loss.delta, loss.gaussian) == (delta, True)


def test_large_epsilon_costs_four_of_it() -> None:
    assert Loss.approximate(1000.0).rho == Rho(4000 * RHO_UNITS)


@given(LOSSES, LOSSES)
def test_a_sum_is_known_to_be_gaussian_where_both_are(one: Loss, other: Loss) -> None:
    older = replace(one, gaussian=False)
    assert (one + other).gaussian
    assert not (older + other).gaussian
    assert not (other + older).gaussian


@given(st.integers(1, RHO_UNITS), st.floats(1e-9, 0.1))
def test_loss_that_is_only_known_to_be_zcdp_is_viewed_and_capped_as_that(units: int, delta: float) -> None:
    exact = Loss(Rho(units))
    older = replace(exact, gaussian=False)
    assert older.epsilon(delta) == epsilon_of_rho(float(older.rho), delta) >= exact.epsilon(delta)
    assert rho_left(1.0, delta, beside=older) == Rho(int(rho_of_epsilon(1.0, delta) * RHO_UNITS)) < rho_left(1.0, delta)


def test_view_spends_what_delta_is_left() -> None:
    loss = Loss(Rho(RHO_UNITS // 100), 4e-6)
    assert loss.epsilon(1e-5) == pytest.approx(loss.rho.epsilon(6e-6), rel=1e-9)
    assert loss.epsilon(1e-5) > loss.rho.epsilon(1e-5)
    assert Loss(loss.rho).epsilon(1e-5) == loss.rho.epsilon(1e-5)


def test_view_at_the_losses_own_delta_or_below_is_refused() -> None:
    for delta in (4e-6, 3e-6):
        with pytest.raises(ParameterError, match="delta"):
            Loss(Rho(1), 4e-6).epsilon(delta)


@pytest.mark.parametrize(("epsilon", "delta", "times"), [(0.5, 0.0, 8), (0.1, 1e-4, 20), (1.0, 1e-3, 5)])
def test_view_of_composed_randomised_responses_covers_their_exact_curve(
    epsilon: float, delta: float, times: int
) -> None:
    """The worst (epsilon, delta) mechanism tells the secret with probability delta, else answers by a biased coin."""
    whole = sum((Loss.approximate(epsilon, delta) for _ in range(times)), start=Loss(ZERO))
    total = whole.delta + 1e-6
    claimed = whole.epsilon(total)
    truth = 1 / (1 + exp(-epsilon))
    told = 1 - (1 - delta) ** times
    curve = sum(
        comb(times, k)
        * max(truth**k * (1 - truth) ** (times - k) - exp(claimed) * (1 - truth) ** k * truth ** (times - k), 0)
        for k in range(times + 1)
    )
    assert told + (1 - told) * curve <= total


def test_room_beside_a_delta_is_the_rho_at_what_is_left_of_it() -> None:
    room = rho_left(1.0, 1e-5, beside=Loss(ZERO, 6e-6))
    assert room < rho_left(1.0, 1e-5)
    assert Loss(room, 6e-6).epsilon(1e-5) <= 1.0
    assert Loss(room, 6e-6).epsilon(1e-5) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (3.0, 1e-6)])
def test_a_delta_asked_for_in_view_of_earlier_answers_adds_to_the_caps_and_no_more(
    epsilon: float, delta: float
) -> None:
    """Part of rho by a Gaussian; then a delta where its loss came out low, and the rest of rho where it came out high.

    Each course keeps the rule of the ledger, and all of them together do not keep (epsilon, delta).
    """
    room = float(rho_left(epsilon, delta))
    first = 0.63 * room
    told = delta * 0.99
    assert Loss(Rho(int(first * RHO_UNITS)), told).epsilon(delta) <= epsilon

    def beyond(rho: float, left: NDArray[np.float64]) -> NDArray[np.float64]:
        """E max(0, 1 - exp(left - loss)) of a Gaussian mechanism."""
        mu = sqrt(2 * rho)
        return np.asarray(stats.norm.cdf(mu / 2 - left / mu) - np.exp(left) * stats.norm.cdf(-mu / 2 - left / mu))

    mu = sqrt(2 * first)
    z = np.linspace(-9, 9, 20_001)
    weights = stats.norm.pdf(z) * (z[1] - z[0])
    left = epsilon - (mu**2 / 2 + mu * z)
    low = told + (1 - told) * np.maximum(-np.expm1(np.minimum(left, 0)), 0)
    delivered = float(np.maximum(low, beyond(room - first, left)) @ weights)
    assert 1.1 * delta < delivered <= delta + told


@pytest.mark.parametrize("used", [1e-5, 1.1e-5, 0.5])
def test_no_room_is_left_where_delta_is_used_up(used: float) -> None:
    assert rho_left(1.0, 1e-5, beside=Loss(ZERO, used)) == Rho(0)
