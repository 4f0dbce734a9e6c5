"""Losses as exact integers, and what they say together."""

from dataclasses import replace
from fractions import Fraction
from math import comb, exp, inf, nextafter, pi, sqrt

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from commingle.shared.dp.accounting import RHO_UNITS, ZERO, Cost, Loss, Rho, gaussian_loss, least_sigma, rho_left
from commingle.shared.dp.calibration import epsilon_of_rho, rho_of_epsilon
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.errors import ParameterError

dp.enable_features("contrib")

SENSITIVITIES = st.integers(0, 1 << 70)
SIGMAS = st.integers(1, 1 << 48)
RHOS = st.integers(1, 1 << 70).map(Rho)
LOSSES = st.builds(Loss, st.integers(0, 1 << 70).map(Rho), st.floats(0, 0.01))


def exact_loss(squared: int, sigma: int) -> Fraction:
    return Fraction(squared, 2 * sigma * sigma)


@given(SENSITIVITIES, SIGMAS)
def test_gaussian_loss_is_rounded_up_by_less_than_one_unit(squared: int, sigma: int) -> None:
    loss = Fraction(gaussian_loss(squared_sensitivity=squared, sigma=sigma).units, RHO_UNITS)
    assert 0 <= loss - exact_loss(squared, sigma) < Fraction(1, RHO_UNITS)


@given(st.integers(0, 1 << 100).map(Rho))
def test_stated_float_is_the_least_that_is_not_below_the_loss(rho: Rho) -> None:
    exact = Fraction(rho.units, RHO_UNITS)
    assert Fraction(rho.rounded_up) >= exact
    assert Fraction(nextafter(rho.rounded_up, -inf)) < exact


@given(SENSITIVITIES, RHOS)
def test_least_sigma_meets_its_condition_and_one_less_does_not(squared: int, rho: Rho) -> None:
    def suffices(sigma: int) -> bool:
        return squared <= 2 * Fraction(rho.units, RHO_UNITS) * sigma**2

    sigma = least_sigma(squared_sensitivity=squared, rho=rho)
    assert sigma >= 1
    assert suffices(sigma)
    assert sigma == 1 or not suffices(sigma - 1)


@pytest.mark.parametrize(("root", "sigma"), [(1, 1), (2, 3), (32768, 8_000_000), (3 << 15, 1 << 48)])
def test_loss_agrees_with_opendps_privacy_map(root: int, sigma: int) -> None:
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    mechanism = dp.m.make_gaussian(*space, scale=float(sigma))
    theirs = float(mechanism.map(float(root)))  # type: ignore[no-untyped-call] # OpenDP leaves its maps untyped
    ours = float(gaussian_loss(squared_sensitivity=root * root, sigma=sigma))
    assert ours == pytest.approx(theirs, rel=1e-12, abs=1 / RHO_UNITS)


@pytest.mark.parametrize("units", [0, -1])
def test_calibrating_to_no_loss_is_refused(units: int) -> None:
    with pytest.raises(ParameterError, match="too small"):
        least_sigma(squared_sensitivity=1, rho=Rho(units))


@pytest.mark.parametrize(("squared", "sigma"), [(-5, 1), (5, 0), (5, -3)])
def test_loss_without_noise_or_of_negative_sensitivity_is_refused(squared: int, sigma: int) -> None:
    with pytest.raises(ParameterError):
        gaussian_loss(squared_sensitivity=squared, sigma=sigma)


@given(st.lists(st.tuples(SENSITIVITIES, SIGMAS), max_size=8))
def test_sum_of_losses_is_never_below_the_exact_sum(releases: list[tuple[int, int]]) -> None:
    total = sum((gaussian_loss(squared_sensitivity=d, sigma=s) for d, s in releases), start=ZERO)
    exact = sum((exact_loss(d, s) for d, s in releases), start=Fraction(0))
    assert exact <= Fraction(total.units, RHO_UNITS) <= exact + Fraction(len(releases), RHO_UNITS)


def test_losses_add_subtract_and_compare_as_integers() -> None:
    assert Rho(3) + Rho(4) - Rho(2) == Rho(5)
    assert Rho(2) < Rho(3)
    assert float(Rho(RHO_UNITS // 2)) == 0.5


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


def test_cost_has_a_second_figure_where_its_unit_is_presence_and_one_otherwise() -> None:
    losses = {Adjacency.REPLACE_ONE: Loss(Rho(9)), Adjacency.ADD_REMOVE: Loss(Rho(4))}
    for unit, cost in (
        (Adjacency.ADD_REMOVE, Cost(Loss(Rho(4)), Loss(Rho(9)))),
        (Adjacency.REPLACE_ONE, Cost(Loss(Rho(9)))),
    ):
        assert Cost.of(unit, losses.__getitem__) == cost
        assert cost.unit is unit
