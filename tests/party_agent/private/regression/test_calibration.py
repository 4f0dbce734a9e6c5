import json
from decimal import Decimal, localcontext
from math import log, sqrt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from commingle.party_agent.private.regression.calibration import (
    NoiseCalibration,
    analytic_multiplier,
    gaussian_multiplier,
    gaussian_plan,
    require_calibration,
)
from commingle.party_agent.private.regression.problem import Neighbours
from commingle.shared.dp.calibration import epsilon_of_rho
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.gaussian import gaussian_delta
from tests.party_agent.private.regression.cases import privacy

VECTORS = Path(__file__).parents[3] / "vectors" / "calibration.json"
EPSILONS = st.floats(1e-2, 10)
DELTAS = st.floats(1e-10, 1e-2)
PARTS = st.integers(1, 5)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(VECTORS.read_text())["rows"]
    return loaded


def test_one_measurement_has_the_noise_of_the_reference_table(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        for calibration in (NoiseCalibration.ZCDP, NoiseCalibration.ANALYTIC, NoiseCalibration.CLASSICAL):
            expected = row[f"sigma_{calibration}"]
            if expected is not None:
                asked = privacy(row["epsilon"], row["delta"], calibration=calibration)
                found = gaussian_multiplier(asked, 1)
                # analytic noise is larger by what noise on a lattice differs from a rounded Gaussian's
                room = 2.0**-31 / row["epsilon"] if calibration is NoiseCalibration.ANALYTIC else 0
                assert expected * (1 - 1e-9) <= found <= expected * (1 + 1e-9 + room)


def delivered_delta(multiplier: float, parts: int, epsilon: float) -> float:
    """Exact for `parts` Gaussian measurements: together they are one of sensitivity sqrt(parts)."""
    return gaussian_delta(sqrt(parts) / multiplier, epsilon)


@given(
    EPSILONS,
    DELTAS,
    PARTS,
    st.sampled_from([NoiseCalibration.ANALYTIC, NoiseCalibration.ZCDP, NoiseCalibration.CLASSICAL]),
)
def test_sound_calibrations_deliver_the_delta_asked_for(
    epsilon: float, delta: float, parts: int, calibration: NoiseCalibration
) -> None:
    if calibration is NoiseCalibration.CLASSICAL and epsilon > parts:
        return
    multiplier = gaussian_multiplier(privacy(epsilon, delta, calibration=calibration), parts)
    assert delivered_delta(multiplier, parts, epsilon) <= delta * (1 + 1e-9)


@given(EPSILONS, DELTAS)
def test_analytic_noise_is_the_least_that_delivers_delta(epsilon: float, delta: float) -> None:
    sigma = analytic_multiplier(epsilon, delta)
    assert gaussian_delta(1 / sigma, epsilon) <= delta
    assert gaussian_delta(1 / (sigma * (1 - 1e-6)), epsilon) > delta


def normal_cdf(x: Decimal) -> Decimal:
    """1/2 + (x - x^3/(2 3) + x^5/(2! 4 5) - ...) / sqrt(2 pi), in the precision at hand."""
    pi = Decimal(
        "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"
    )
    term = total = x
    for n in range(1, 1000):
        term *= -x * x / (2 * n)
        total += term / (2 * n + 1)
    return Decimal("0.5") + total / (2 * pi).sqrt()


@settings(max_examples=20)
@example(0.0003152278353742633, 2.3565520370297944e-14)
@given(EPSILONS, DELTAS)
def test_analytic_noise_delivers_delta_in_exact_arithmetic(epsilon: float, delta: float) -> None:
    with localcontext(prec=100):
        sigma, asked = Decimal(analytic_multiplier(epsilon, delta)), Decimal(epsilon)
        near, far = (sign / (2 * sigma) - asked * sigma for sign in (1, -1))
        assert normal_cdf(near) - asked.exp() * normal_cdf(far) <= Decimal(delta)


def test_classical_constants_are_those_of_the_paper() -> None:
    epsilon, delta = 0.7, 1e-6
    fixed = privacy(epsilon, delta, calibration=NoiseCalibration.CLASSICAL)
    assert gaussian_multiplier(fixed, 2) == pytest.approx(sqrt(2 * log(1.25 / (delta / 2))) / (epsilon / 2))
    assert gaussian_multiplier(fixed, 3) == pytest.approx(sqrt(2 * log(3.75 / delta)) / (epsilon / 3))


@pytest.mark.parametrize("parts", [2, 3])
def test_classical_noise_beyond_its_theorem_is_refused(parts: int) -> None:
    gaussian_multiplier(privacy(parts, calibration=NoiseCalibration.CLASSICAL), parts)
    with pytest.raises(ParameterError, match="classical"):
        gaussian_multiplier(privacy(parts + 1e-9, calibration=NoiseCalibration.CLASSICAL), parts)


@given(EPSILONS, DELTAS, PARTS)
def test_plan_of_analytic_noise_has_the_epsilon_asked_for(epsilon: float, delta: float, parts: int) -> None:
    loss = gaussian_plan(privacy(epsilon, delta, calibration=NoiseCalibration.ANALYTIC), parts)
    assert loss.delta == 0
    assert loss.epsilon(delta) <= epsilon * (1 + 1e-12)
    assert loss.epsilon(delta) > epsilon * (1 - 1e-6)


@given(st.floats(1e-2, 1300), DELTAS)
def test_group_of_two_under_add_remove_implies_replace_one(epsilon: float, delta: float) -> None:
    half = privacy(epsilon, delta, adjacency=Neighbours.REPLACE_ONE).as_add_remove()
    assert half.adjacency is Neighbours.ADD_REMOVE
    assert 2 * half.epsilon <= epsilon
    with localcontext(prec=50):
        implied = (1 + Decimal(epsilon / 2).exp()) * Decimal(half.delta)
        assert Decimal(delta) * (1 - Decimal("1e-8")) <= implied <= Decimal(delta)


@pytest.mark.parametrize("epsilon", [1420.0, 1e4, 1e300])
def test_group_of_two_is_refused_where_no_delta_is_small_enough(epsilon: float) -> None:
    with pytest.raises(ParameterError, match="delta"):
        privacy(epsilon, 0.5, adjacency=Neighbours.REPLACE_ONE).as_add_remove()


@given(EPSILONS, st.floats(1e-10, 0.99), st.integers(2, 3))
def test_classical_noise_has_by_its_rho_at_most_the_epsilon_asked_for(epsilon: float, delta: float, parts: int) -> None:
    """So its guarantee holds for discrete noise, which the theorem behind the constant is not about."""
    asked = privacy(min(epsilon, parts), delta, calibration=NoiseCalibration.CLASSICAL)
    assert epsilon_of_rho(float(gaussian_plan(asked, parts).rho), delta) <= asked.epsilon


@given(EPSILONS, DELTAS, PARTS)
def test_zcdp_noise_has_by_its_rho_the_epsilon_asked_for(epsilon: float, delta: float, parts: int) -> None:
    loss = gaussian_plan(privacy(epsilon, delta, calibration=NoiseCalibration.ZCDP), parts)
    assert epsilon * (1 - 1e-6) < epsilon_of_rho(float(loss.rho), delta) <= epsilon * (1 + 1e-12)


def test_add_remove_is_left_as_it_is() -> None:
    asked = privacy()
    assert asked.as_add_remove() is asked


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (-1.0, 1e-5), (1.0, 0.0), (1.0, 1.0)])
def test_privacy_outside_its_domain_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ParameterError):
        privacy(epsilon, delta)


def test_unknown_calibration_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ParameterError) as refused:
        require_calibration(privacy(), {NoiseCalibration.CLASSICAL, NoiseCalibration.PUBLISHED})
    assert refused.value.remedy == "Use one of: classical, published."
