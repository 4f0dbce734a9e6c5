"""Sums measured one beside the other, as the papers do."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.methods.in_parts import IN_PARTS, cross_sensitivity, gram_sensitivity, noisy_cross, noisy_gram
from benchmarks.methods.second_moment import TIGHT, TRIANGLE, noisy_cross_moment, noisy_second_moment
from commingle.party_agent.private.regression.floating import ridge_fit
from commingle.party_agent.private.regression.measuring import (
    GAUSSIAN,
    RAISED,
    Exact,
    NoiseCalibration,
    gaussian_multiplier,
)
from commingle.party_agent.private.regression.problem import Floats, Sample, on_grid
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.dp.sensitivity import Adjacency
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
    IN_PARTS[name].run(sample, asked, exact)
    assert planned.rho.units * (1 - 1e-4) < exact.spent.units <= planned.rho.units
