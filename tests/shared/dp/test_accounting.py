from fractions import Fraction
from math import inf, nextafter

import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.shared.dp.accounting import RHO_UNITS, ZERO, Rho, gaussian_loss, least_sigma
from commingle.shared.dp.errors import ParameterError

dp.enable_features("contrib")

SENSITIVITIES = st.integers(0, 1 << 70)
SIGMAS = st.integers(1, 1 << 48)
RHOS = st.integers(1, 1 << 70).map(Rho)


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


@given(SENSITIVITIES, RHOS)
def test_loss_at_the_calibrated_sigma_is_within_the_target(squared: int, rho: Rho) -> None:
    sigma = least_sigma(squared_sensitivity=squared, rho=rho)
    assert gaussian_loss(squared_sensitivity=squared, sigma=sigma) <= rho


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
