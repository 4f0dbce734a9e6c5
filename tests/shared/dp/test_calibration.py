import json
from decimal import Decimal, localcontext
from math import exp, inf, log, log1p, nan, pi, sqrt
from pathlib import Path
from typing import Any

import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.shared.dp.accounting import RHO_UNITS, Rho
from commingle.shared.dp.calibration import (
    Calibration,
    check_delta,
    check_epsilon,
    classical_rho,
    epsilon_of_rho,
    rho_of_epsilon,
)
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.gaussian import calibrated_rho

dp.enable_features("contrib")

VECTORS = Path(__file__).parents[2] / "vectors" / "calibration.json"
EPSILONS = st.floats(1e-3, 20)
DELTAS = st.floats(1e-12, 0.5)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(VECTORS.read_text())["rows"]
    return loaded


def test_every_reference_row_is_reproduced(rows: list[dict[str, Any]]) -> None:
    assert rows
    for row in rows:
        rho = rho_of_epsilon(row["epsilon"], row["delta"])
        assert rho == pytest.approx(row["rho"], rel=1e-9)
        assert 1 / sqrt(2 * rho) == pytest.approx(row["sigma_zcdp"], rel=1e-9)
        if row["sigma_classical"] is not None:
            assert 1 / sqrt(2 * classical_rho(row["epsilon"], row["delta"])) == pytest.approx(
                row["sigma_classical"], rel=1e-9
            )


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
def test_calibrated_rho_keeps_epsilon_in_exact_arithmetic(epsilon: float, delta: float) -> None:
    assert exact_bound(rho_of_epsilon(epsilon, delta), delta) <= Decimal(epsilon)


@given(EPSILONS, DELTAS)
def test_calibrated_rho_never_exceeds_epsilon_and_nearly_reaches_it(epsilon: float, delta: float) -> None:
    rho = rho_of_epsilon(epsilon, delta)
    assert epsilon_of_rho(rho, delta) <= epsilon
    assert epsilon_of_rho(rho * (1 + 1e-9), delta) > epsilon


@given(EPSILONS, DELTAS, st.floats(1.001, 1e4))
def test_epsilon_is_at_most_the_bound_of_any_single_order(epsilon: float, delta: float, alpha: float) -> None:
    rho = rho_of_epsilon(epsilon, delta)
    bound = rho * alpha + (log(1 / delta) + (alpha - 1) * log(1 - 1 / alpha) - log(alpha)) / (alpha - 1)
    assert epsilon_of_rho(rho, delta) <= max(bound, 0) * (1 + 1e-9)


@given(st.floats(1e-3, 1), st.floats(1e-12, 0.99))
def test_classical_noise_is_never_below_zcdp_noise_so_discrete_noise_is_covered(epsilon: float, delta: float) -> None:
    assert classical_rho(epsilon, delta) <= rho_of_epsilon(epsilon, delta)


@pytest.mark.parametrize("epsilon", [0, 0.0, -0.0, -1, nan, inf, -inf, 5e-324, 2.2e-308, json.loads("1e309")])
def test_epsilon_outside_its_domain_is_refused(epsilon: float) -> None:
    for refuse in (check_epsilon, lambda e: rho_of_epsilon(e, 1e-5), lambda e: classical_rho(e, 1e-5)):
        with pytest.raises(ParameterError):
            refuse(epsilon)


@pytest.mark.parametrize("delta", [0.0, -1e-5, 1.0, 2.0, nan, inf, -inf, 5e-324, json.loads("1e309")])
def test_delta_outside_its_domain_is_refused(delta: float) -> None:
    for refuse in (check_delta, lambda d: rho_of_epsilon(1, d), lambda d: classical_rho(1, d)):
        with pytest.raises(ParameterError):
            refuse(delta)


@pytest.mark.parametrize(("epsilon", "delta"), [(2.3e-308, 1e-12), (1e-12, 1e-12), (1e12, 1e-5), (1e300, 1e-5)])
def test_epsilon_of_unusual_size_is_refused_by_name(epsilon: float, delta: float) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        rho_of_epsilon(epsilon, delta)


def test_tiny_epsilon_is_calibrated_by_delta_alone() -> None:
    # delta bounds the total variation distance, about Delta / (sigma sqrt(2 pi)) for a Gaussian
    sigma = 1 / sqrt(2 * rho_of_epsilon(2.3e-308, 1e-5))
    assert 1 / (sigma * sqrt(2 * pi)) < 1e-5


def test_classical_calibration_above_epsilon_one_is_refused() -> None:
    with pytest.raises(ParameterError, match="epsilon <= 1"):
        calibrated_rho(Calibration.CLASSICAL, epsilon=1.0000001, delta=1e-5)


def test_no_loss_is_epsilon_zero() -> None:
    assert epsilon_of_rho(0, 1e-5) == 0


@given(st.integers(1, 1 << 90), DELTAS)
def test_every_ledger_sum_has_a_finite_epsilon(units: int, delta: float) -> None:
    assert 0 <= Rho(units).epsilon(delta) < 2 * units / RHO_UNITS + 2 * sqrt(units / RHO_UNITS * log(1 / delta)) + 1e-6


@pytest.mark.parametrize("epsilon", [1e-300, 1e-200, 1e-30])
def test_epsilon_too_small_for_any_noise_is_refused(epsilon: float) -> None:
    """The loss of 1e-200 is 0 as a number, and noise of its size an error of division; zcdp spends delta alone then."""
    with pytest.raises(ParameterError, match="cannot be calibrated"):
        calibrated_rho(Calibration.CLASSICAL, epsilon=epsilon, delta=1e-5)
    rho = calibrated_rho(Calibration.ZCDP, epsilon=epsilon, delta=1e-5)
    assert 0 < rho < 1e-5
    assert epsilon_of_rho(rho, 1e-5) <= epsilon
