"""Constants as papers print them: they are theirs, and what they deliver."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from scipy import stats

from benchmarks.methods import (
    AS_PUBLISHED,
    IN_PARTS,
    TIGHT,
    TRIANGLE,
    cross_sensitivity,
    gram_sensitivity,
    noisy_cross,
    noisy_cross_moment,
    noisy_gram,
    noisy_second_moment,
    published_constants,
    published_multiplier,
    published_root,
)
from commingle.party_agent.private.regression.floating import coefficient_bound, ops_ridge, proved_root, ridge_fit
from commingle.party_agent.private.regression.measuring import (
    GAUSSIAN,
    RAISED,
    Exact,
    FloatingPoint,
    NoiseCalibration,
    gaussian_multiplier,
)
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample, on_grid
from commingle.party_agent.private.regression.regress import METHODS, ExactMethod, FloatingMethod
from commingle.shared.dp.accounting import Loss
from commingle.shared.dp.calibration import gaussian_delta
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.errors import ParameterError
from tests.party_agent.private.regression.cases import (
    LABEL_BOUND,
    NEIGHBOURS,
    ROW_BOUND,
    Recording,
    farthest,
    linear_sample,
    neighbours,
    privacy,
)
from tests.party_agent.private.regression.test_floating import delivered_delta
from tests.party_agent.private.regression.test_measuring import delivered_delta as composed_delta

PRINTED = NoiseCalibration.PUBLISHED


def run(
    method: ExactMethod | FloatingMethod,
    sample: Sample,
    epsilon: float,
    seed: int,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> Estimate:
    asked, generator = privacy(epsilon, adjacency=adjacency, calibration=PRINTED), default_rng(seed)
    if isinstance(method, ExactMethod):
        return method.run(sample, asked, FloatingPoint(generator))
    return method.run(sample, asked, generator)


@pytest.mark.parametrize("method", AS_PUBLISHED.values(), ids=lambda m: m.name)
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_run_has_finite_coefficients_of_every_column(
    method: ExactMethod | FloatingMethod, adjacency: Adjacency
) -> None:
    sample = linear_sample(default_rng(7))
    estimate = run(method, sample, 0.5, 8, adjacency=adjacency)
    assert estimate.coefficients.shape == (sample.d,)
    assert np.isfinite(estimate.coefficients).all()


@pytest.mark.parametrize("name", ["ops", "adaops"])
def test_posterior_samples_cost_half_their_squared_epsilon_and_their_delta(name: str) -> None:
    assert AS_PUBLISHED[name].loss(privacy(0.5, 1e-6, calibration=PRINTED)) == Loss.approximate(0.5, 1e-6)


def test_posterior_sample_approaches_least_squares_as_rows_are_added() -> None:
    errors = []
    for n in (2_000, 200_000):
        sample = linear_sample(default_rng(3), n=n)
        runs = [run(AS_PUBLISHED["ops"], sample, 1.0, seed).coefficients for seed in range(5)]
        errors.append(np.mean([np.linalg.norm(theta - ridge_fit(sample, 1e-9)) for theta in runs]))
    assert errors[1] < errors[0] / 2
    assert errors[1] < 0.2


@pytest.mark.parametrize("method", AS_PUBLISHED.values(), ids=lambda m: m.name)
def test_noise_of_a_seed_repeats_and_of_another_seed_does_not(method: ExactMethod | FloatingMethod) -> None:
    sample = linear_sample(default_rng(11))
    one, same, other = (run(method, sample, 1.0, seed).coefficients for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("name", AS_PUBLISHED)
def test_calibrations_of_paper_and_product_are_refused_by_each_other(name: str) -> None:
    with pytest.raises(ParameterError, match="calibration"):
        METHODS[name].cost(privacy(calibration=PRINTED))
    with pytest.raises(ParameterError, match="calibration"):
        AS_PUBLISHED[name].loss(privacy(calibration=NoiseCalibration.ANALYTIC))


def test_multipliers_are_those_of_the_paper() -> None:
    epsilon, delta = 0.7, 1e-6
    asked = privacy(epsilon, delta, calibration=PRINTED)
    assert published_multiplier(asked, 2) == pytest.approx(sqrt(log(4 / delta)) / (epsilon / 2))
    assert published_multiplier(asked, 3) == pytest.approx(sqrt(log(6 / delta)) / (epsilon / 3))


@pytest.mark.parametrize(("parts", "epsilon", "delta", "excess"), [(3, 1.0, 1e-6, 2.65), (2, 0.1, 1e-9, 5.52)])
def test_one_part_of_published_noise_breaks_its_share_while_all_parts_together_keep_the_promise(
    parts: int, epsilon: float, delta: float, excess: float
) -> None:
    multiplier = published_multiplier(privacy(epsilon, delta, calibration=PRINTED), parts)
    assert gaussian_delta(1 / multiplier, epsilon / parts) / (delta / parts) == pytest.approx(excess, rel=2e-3)
    assert composed_delta(multiplier, parts, epsilon) < delta


def test_published_gamma_of_ops_exceeds_delta_for_the_worst_row_its_proof_admits() -> None:
    asked = privacy(1.0, 1e-6, calibration=PRINTED)
    sample = Sample(np.zeros((10_000, 10)), np.zeros(10_000), 1.0, 1.0)
    ridge = ops_ridge(sample, asked)
    residual = 1 + coefficient_bound(sample, ridge)
    published = delivered_delta(1 / ridge, residual * published_root(sample, asked, ridge), 1.0)
    tail = float(stats.norm.isf(5e-7))
    proved = proved_root(residual=residual, leverage=1 / ridge, tail=tail, epsilon=1.0)
    assert 2 * 1e-6 < published < 3 * 1e-6
    assert delivered_delta(1 / ridge, residual * proved, 1.0) <= 1e-6


def test_published_constants_of_adaops_solve_their_equations() -> None:
    asked = privacy(0.3, 1e-6, calibration=PRINTED)
    log_delta = float(np.log(6e6))
    constants = published_constants(asked)
    assert constants.multiplier == pytest.approx(log_delta**0.5 / 0.075)
    # gamma = u e^2 / (ln(6/delta) L^2), e the root of (e^2/2) [1/l + (1 + l)/l] + e = epsilon/2
    part = constants.root(2.0, 5.0, 0.5) * (log_delta / 5.0) ** 0.5 * 1.0
    assert part**2 / 2 * (2 + log_delta) / log_delta + part == pytest.approx(0.15)


EMPTY = Sample(np.zeros((0, 2)), np.zeros(0), ROW_BOUND, LABEL_BOUND)
EVERY = [NoiseCalibration.PUBLISHED, *sorted(GAUSSIAN)]


def gram(sample: Sample) -> Floats:
    return sample.x.T @ sample.x


def cross(sample: Sample) -> Floats:
    return sample.x.T @ sample.y


@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_no_pair_of_neighbours_is_farther_apart_than_the_sensitivities_and_some_are_as_far(
    adjacency: Adjacency,
) -> None:
    asked = privacy(adjacency=adjacency)
    search = partial(neighbours, np.random.default_rng(1), adjacency, 3_000)
    checks: list[tuple[Callable[[Sample], Floats], float]] = [
        (gram, gram_sensitivity(EMPTY, asked)),
        (cross, cross_sensitivity(EMPTY, asked)),
    ]
    for statistic, bound in checks:
        worst = farthest(search(), statistic)
        assert 0.99 * bound < worst <= bound * (1 + 1e-9)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_sensitivities_raised_as_in_a_measurement_bound_the_exact_formulas(row: float, label: float) -> None:
    sample, record = Sample(np.ones((1, 1)), np.ones(1), row, label), Recording()
    for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE):
        noisy_gram(sample, privacy(adjacency=adjacency), record, multiplier=1.0)
        noisy_cross(sample, privacy(adjacency=adjacency), record, multiplier=1.0)
    for distance in (TRIANGLE, TIGHT):
        noisy_second_moment(sample, 0.5, record, distance=distance)  # rho 1/2: a multiplier of 1
    noisy_cross_moment(sample, 0.5, record)
    rows, both = Fraction(row) ** 4, (Fraction(row) * Fraction(label)) ** 2
    exact = [rows, both, 2 * rows, 4 * both, 4 * rows, 2 * rows, 4 * both]
    for found, square in zip(record.deviations, exact, strict=True):
        assert (RAISED * Fraction(found)) ** 2 >= square


def test_upper_triangle_is_never_farther_apart_than_the_whole_matrix() -> None:
    for one, other in neighbours(np.random.default_rng(2), Adjacency.REPLACE_ONE, 2000):
        difference = gram(one) - gram(other)
        assert np.linalg.norm(difference[np.triu_indices(2)]) <= np.linalg.norm(difference) * (1 + 1e-12)


@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_noise_of_the_sums_is_the_multiplier_times_their_sensitivity(adjacency: Adjacency) -> None:
    sample, asked, record = linear_sample(np.random.default_rng(3)), privacy(adjacency=adjacency), Recording()
    assert np.allclose(noisy_gram(sample, asked, record, multiplier=2.5), gram(sample))
    assert np.allclose(noisy_cross(sample, asked, record, multiplier=2.5), cross(sample))
    assert record.deviations == [2.5 * gram_sensitivity(sample, asked), 2.5 * cross_sensitivity(sample, asked)]


@pytest.mark.parametrize("calibration", EVERY)
def test_adassp_is_algorithm_2_of_the_paper_with_its_ridge(calibration: NoiseCalibration) -> None:
    sample, asked, record = (
        linear_sample(np.random.default_rng(5)),
        privacy(1.0, 1e-6, calibration=calibration),
        Recording(),
    )
    found = IN_PARTS["adassp"].run(sample, asked, record)
    if calibration is NoiseCalibration.PUBLISHED:
        s, tail = 3 * sqrt(log(6e6)), sqrt(log(6e6))
    else:
        s, tail = gaussian_multiplier(asked, 3), sqrt(2 * log(3.75e6))
    floor = max(0.0, float(np.linalg.eigvalsh(gram(sample))[0]) - tail * record.deviations[0])
    ridge = max(0.0, s * sqrt(3 * log(2 * 9 / 0.05)) - floor)
    assert record.deviations == pytest.approx([s, s, s], rel=1e-6)
    assert np.allclose(found.coefficients, ridge_fit(sample, ridge), rtol=1e-5)


@pytest.mark.parametrize("name", IN_PARTS)
@pytest.mark.parametrize("calibration", EVERY)
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_exact_noise_spends_what_was_debited_and_hardly_less(
    name: str, calibration: NoiseCalibration, adjacency: Adjacency
) -> None:
    rows = linear_sample(np.random.default_rng(6))
    sample = on_grid(rows.x, rows.y, row_bound=1.0, label_bound=1.0)
    asked, exact = privacy(0.5, adjacency=adjacency, calibration=calibration), Exact(rounded_gaussian)
    planned = IN_PARTS[name].loss(asked)
    assert planned.delta == 0
    IN_PARTS[name].run(sample, asked, exact)
    assert planned.rho.units * (1 - 1e-4) < exact.spent.units <= planned.rho.units
