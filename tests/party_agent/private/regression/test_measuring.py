"""Noise from (epsilon, delta), and what is measured with it. A correct implementation fails a statistical test with
probability below 1e-8.
"""

import json
from decimal import Decimal, localcontext
from fractions import Fraction
from math import ceil, inf, log, nan, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.party_agent.private.regression.measuring import (
    Exact,
    FloatingPoint,
    Measure,
    NoiseCalibration,
    analytic_multiplier,
    gaussian_multiplier,
    gaussian_plan,
    multiplier_within,
    planned_loss,
    require_calibration,
)
from commingle.party_agent.private.regression.problem import power_of_two_above
from commingle.shared.dp.accounting import RHO_UNITS, gaussian_loss
from commingle.shared.dp.calibration import epsilon_of_rho, gaussian_delta
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.errors import ParameterError
from tests.party_agent.private.regression.cases import privacy
from tests.world.noise import no_noise

SIX_SIGMA = 6.2


class RecordingSampler:
    """A sampler that gives no noise and remembers what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def __call__(self, sigma: int, count: int) -> NDArray[np.int64]:
        self.asked.append((sigma, count))
        return no_noise(sigma, count)


@given(st.floats(1e-6, 1e6), st.floats(1e-2, 1e6), st.integers(1, 12))
def test_exact_loss_is_within_the_plan_and_close_to_it(sensitivity: float, multiplier: float, size: int) -> None:
    exact = Exact(no_noise)
    exact.measure(np.ones((size, size)), sensitivity=sensitivity, multiplier=multiplier, symmetric=True)
    plan = planned_loss(multiplier)
    assert exact.spent <= plan
    assert exact.spent.units >= plan.units * (1 - 2e-4 / multiplier) - 1


@given(st.floats(1e-6, 1e6), st.integers(1, 12), st.integers(0, 2**32))
def test_neighbours_on_the_lattice_are_within_the_raised_sensitivity(sensitivity: float, size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    value = generator.normal(size=size) * 100 * sensitivity
    step = generator.normal(size=size)
    other = value + step / np.linalg.norm(step) * sensitivity * (1 - 1e-12)
    record = RecordingSampler()
    exact = Exact(record)
    one, two = (exact.measure(v, sensitivity=sensitivity, multiplier=1.0) for v in (value, other))
    spacing = Fraction(power_of_two_above(sensitivity)) / 2**20
    moved = sum(Fraction(float(a - b)) ** 2 for a, b in zip(one, two, strict=True)) / spacing**2
    assert record.asked[0][0] ** 2 >= moved  # multiplier 1: sigma is the sensitivity in steps


def test_loss_recorded_is_that_of_the_sigma_drawn() -> None:
    record = RecordingSampler()
    exact = Exact(record)
    exact.measure(np.zeros(9), sensitivity=1.0, multiplier=3.7)
    (sigma, count) = record.asked[0]
    # the lattice has 2^20 steps a sensitivity; one for the float's own rounding, ceil(sqrt(9)) for the entries'
    moved = 2**20 + 1 + 3
    assert count == 9
    assert sigma == ceil(Fraction(3.7) * moved)
    assert exact.spent == gaussian_loss(squared_sensitivity=moved**2, sigma=sigma)


def test_losses_of_several_measurements_add_up() -> None:
    exact = Exact(no_noise)
    exact.measure(np.zeros(1), sensitivity=1.0, multiplier=2.0)
    once = exact.spent
    exact.measure(np.zeros(1), sensitivity=1.0, multiplier=2.0)
    assert exact.spent.units == 2 * once.units


def test_value_without_noise_is_off_by_half_a_step() -> None:
    value = np.random.default_rng(1).normal(size=(4, 4))
    value = value + value.T
    still = Exact(no_noise).measure(value, sensitivity=1.0, multiplier=1.0, symmetric=True)
    assert 0 < float(np.abs(still - value).max()) <= 2.0**-21


@pytest.mark.parametrize("measure", [FloatingPoint(np.random.default_rng(4)), Exact(rounded_gaussian)])
def test_symmetric_noise_is_the_same_on_both_sides_with_half_the_variance_beside_the_diagonal(measure: Measure) -> None:
    size = 120
    noise = measure.measure(np.zeros((size, size)), sensitivity=1.0, multiplier=1.0, symmetric=True)
    assert np.array_equal(noise, noise.T)
    upper, diagonal = noise[np.triu_indices(size, 1)], noise.diagonal()
    assert abs(2 * float((upper**2).mean()) - 1) < SIX_SIGMA * (2 / len(upper)) ** 0.5 + 2e-3
    assert abs(float((diagonal**2).mean()) - 1) < SIX_SIGMA * (2 / len(diagonal)) ** 0.5 + 2e-3
    assert len(np.unique(upper)) > 0.99 * len(upper)


WEIGHTS = st.floats(1e-12, 1e12)


@given(st.floats(1e-6, 1e6), st.floats(1e-2, 1e6), WEIGHTS, st.integers(1, 9))
def test_part_has_the_least_noise_that_its_weight_allows(
    sensitivity: float, multiplier: float, weight: float, size: int
) -> None:
    record = RecordingSampler()
    parts = Exact(record).begin(sensitivity=sensitivity, multiplier=multiplier, entries=2 * size * size)
    parts.part(np.zeros((size, size)), symmetric=True)
    parts.part(np.zeros(size * size), weight=weight)
    (diagonal, _), (above, _), (other, _) = record.asked
    step = Fraction(power_of_two_above(sensitivity)) / 2**20
    finer = Fraction(1)
    while finer**2 < Fraction(weight):
        finer *= 2
    while finer**2 >= 4 * Fraction(weight):
        finer /= 2
    counted = Fraction(weight) / finer**2
    for scale, share in ((above, Fraction(2)), (other, counted)):
        assert share * scale**2 >= diagonal**2
        assert share * (scale - 1) ** 2 < diagonal**2
    asked = multiplier * sensitivity / weight**0.5
    assert 1 - 1e-12 < float(other * step / finer) / asked < 1 + 1e-4 * size + 2 / other


@given(st.floats(1e-6, 1e6), WEIGHTS, st.integers(1, 6), st.integers(0, 2**32))
def test_neighbours_in_parts_are_within_the_raised_sensitivity_in_what_their_weights_count(
    sensitivity: float, weight: float, size: int, seed: int
) -> None:
    """Independent of the code: the exact squared distance of what is drawn to, in units of each entry's own noise."""
    generator = np.random.default_rng(seed)
    square = generator.normal(size=(size, size))
    gram, cross = square + square.T, generator.normal(size=size)
    scale = sensitivity * (1 - 1e-12) / float(np.sqrt(np.sum(gram**2) + weight * np.sum(cross**2)))
    record = RecordingSampler()
    found = []
    for sign in (0.0, scale):
        parts = Exact(record).begin(sensitivity=sensitivity, multiplier=1.0, entries=size * (size + 1))
        base = 50 * sensitivity
        first = parts.part(base * np.ones((size, size)) + sign * gram, symmetric=True)
        found.append((first, parts.part(base * np.ones(size) + sign * cross, weight=weight)))
    (one, two), scales = found, [sigma for sigma, _ in record.asked]
    step = Fraction(power_of_two_above(sensitivity)) / 2**20
    squares = Fraction(0)
    for i in range(size):
        for j in range(i, size):
            moved = Fraction(float(one[0][i, j] - two[0][i, j])) / step
            squares += moved**2 / scales[0 if i == j else 1] ** 2
    spacing = step
    while (spacing / step) ** 2 * Fraction(weight) > 1:
        spacing /= 2
    while (2 * spacing / step) ** 2 * Fraction(weight) <= 1:
        spacing *= 2
    squares += sum((Fraction(float(a - b)) / spacing / scales[-1]) ** 2 for a, b in zip(one[1], two[1], strict=True))
    assert squares <= 1  # multiplier 1: rho is at most 1/2


def test_more_entries_than_announced_are_a_fault() -> None:
    parts = Exact(no_noise).begin(sensitivity=1.0, multiplier=1.0, entries=5)
    parts.part(np.zeros((2, 2)), symmetric=True)
    with pytest.raises(ValueError, match="announced"):
        parts.part(np.zeros(2))


@pytest.mark.parametrize("measure", [FloatingPoint(np.random.default_rng(5)), Exact(rounded_gaussian)])
def test_noise_has_the_standard_deviation_asked_for_divided_by_the_root_of_its_weight(measure: Measure) -> None:
    count = 20_000
    parts = measure.begin(sensitivity=0.3, multiplier=5.0, entries=2 * count)
    drawn = [(1.0, measure.measure(np.zeros(count), sensitivity=0.3, multiplier=5.0))]
    drawn += [(weight, parts.part(np.zeros(count), weight=weight)) for weight in (0.07, 130.0)]
    for weight, noise in drawn:
        shown = noise / (1.5 / weight**0.5)
        assert abs(float(shown.mean())) < SIX_SIGMA / count**0.5
        assert abs(float((shown**2).mean()) - 1) < SIX_SIGMA * (2 / count) ** 0.5 + 2e-3  # the lattice adds 1.4e-4


@given(st.floats(1e-3, 1e9))
def test_plan_is_the_exact_loss_rounded_up(multiplier: float) -> None:
    excess = Fraction(planned_loss(multiplier).units, RHO_UNITS) - 1 / (2 * Fraction(multiplier) ** 2)
    assert 0 <= excess < Fraction(1, RHO_UNITS)


@example(135381.67988995943, 1)  # one step up does not suffice
@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False), st.integers(1, 400))
def test_multiplier_costs_no_more_than_rho_and_hardly_less(rho: float, parts: int) -> None:
    cost = parts / (2 * Fraction(multiplier_within(rho, parts)) ** 2)
    assert (1 - Fraction(1, 10**14)) * Fraction(rho) <= cost <= Fraction(rho)


@pytest.mark.parametrize("rho", [0.0, -1.0, nan, inf])
def test_rho_outside_its_domain_is_refused(rho: float) -> None:
    with pytest.raises(ParameterError, match="rho"):
        multiplier_within(rho)


@pytest.mark.parametrize("bad", [0.0, -1.0, nan, inf])
def test_measurement_without_a_scale_is_refused(bad: float) -> None:
    with pytest.raises(ParameterError, match="multiplier"):
        Exact(no_noise).measure(np.zeros(1), sensitivity=1.0, multiplier=bad)
    with pytest.raises(ParameterError, match="sensitivity"):
        Exact(no_noise).measure(np.zeros(1), sensitivity=bad, multiplier=1.0)
    with pytest.raises(ParameterError):
        planned_loss(bad)


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
def test_plan_has_the_epsilon_asked_for_by_its_curve_or_by_its_rho(epsilon: float, delta: float, parts: int) -> None:
    analytic, zcdp = (
        gaussian_plan(privacy(epsilon, delta, calibration=one), parts)
        for one in (NoiseCalibration.ANALYTIC, NoiseCalibration.ZCDP)
    )
    assert analytic.delta == zcdp.delta == 0
    for found in (analytic.epsilon(delta), epsilon_of_rho(float(zcdp.rho), delta)):
        assert epsilon * (1 - 1e-6) < found <= epsilon * (1 + 1e-12)


@given(st.floats(1e-2, 1300), DELTAS)
def test_group_of_two_under_add_remove_implies_replace_one(epsilon: float, delta: float) -> None:
    half = privacy(epsilon, delta, adjacency=Adjacency.REPLACE_ONE).as_add_remove()
    assert half.adjacency is Adjacency.ADD_REMOVE
    assert 2 * half.epsilon <= epsilon
    with localcontext(prec=50):
        implied = (1 + Decimal(epsilon / 2).exp()) * Decimal(half.delta)
        assert Decimal(delta) * (1 - Decimal("1e-8")) <= implied <= Decimal(delta)


@pytest.mark.parametrize("epsilon", [1420.0, 1e4, 1e300])
def test_group_of_two_is_refused_where_no_delta_is_small_enough(epsilon: float) -> None:
    with pytest.raises(ParameterError, match="delta"):
        privacy(epsilon, 0.5, adjacency=Adjacency.REPLACE_ONE).as_add_remove()


@given(EPSILONS, st.floats(1e-10, 0.99), st.integers(2, 3))
def test_classical_noise_has_by_its_rho_at_most_the_epsilon_asked_for(epsilon: float, delta: float, parts: int) -> None:
    """So its guarantee holds for discrete noise, which the theorem behind the constant is not about."""
    asked = privacy(min(epsilon, parts), delta, calibration=NoiseCalibration.CLASSICAL)
    assert epsilon_of_rho(float(gaussian_plan(asked, parts).rho), delta) <= asked.epsilon


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
