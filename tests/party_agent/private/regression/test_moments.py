from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.methods.published import TriangleInequality
from commingle.party_agent.private.regression.measuring import _RAISED, FloatingPoint
from commingle.party_agent.private.regression.problem import Floats, Neighbours, Sample
from commingle.party_agent.private.regression.public_moment import noisy_cross_moment, noisy_second_moment
from commingle.party_agent.private.regression.sufficient import (
    cross_sensitivity,
    gram_sensitivity,
    noisy_cross,
    noisy_floor,
    noisy_gram,
    solve,
)
from tests.party_agent.private.regression.cases import (
    LABEL_BOUND,
    ROW_BOUND,
    farthest,
    linear_sample,
    neighbours,
    privacy,
)

PAIRS = 3_000
EMPTY = Sample(np.zeros((0, 2)), np.zeros(0), ROW_BOUND, LABEL_BOUND)


class Recording:
    """A measure without noise that remembers the scales asked for."""

    def __init__(self) -> None:
        self.scales: list[float] = []

    def measure(self, value: Floats, *, sensitivity: float, multiplier: float, symmetric: bool = False) -> Floats:
        assert not symmetric or np.array_equal(value, value.T)
        self.scales.append(sensitivity * multiplier)
        return value


def gram(sample: Sample) -> Floats:
    return sample.x.T @ sample.x


def cross(sample: Sample) -> Floats:
    return sample.x.T @ sample.y


def least(sample: Sample) -> Floats:
    return np.linalg.eigvalsh(gram(sample))[:1].astype(np.float64)


@pytest.mark.parametrize("adjacency", Neighbours)
def test_no_pair_of_neighbours_is_farther_apart_than_the_sensitivities_and_some_are_as_far(
    adjacency: Neighbours,
) -> None:
    asked = privacy(adjacency=adjacency)
    search = partial(neighbours, np.random.default_rng(1), adjacency, PAIRS)
    floor_sensitivity = ROW_BOUND**2
    for statistic, bound in (
        (gram, gram_sensitivity(EMPTY, asked)),
        (cross, cross_sensitivity(EMPTY, asked)),
        (least, floor_sensitivity),
    ):
        worst = farthest(search(), statistic)
        assert 0.99 * bound < worst <= bound * (1 + 1e-9)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_sensitivities_raised_as_in_a_measurement_bound_the_exact_formulas(row: float, label: float) -> None:
    sample, record = Sample(np.ones((1, 1)), np.ones(1), row, label), Recording()
    for adjacency in (Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE):
        noisy_gram(sample, privacy(adjacency=adjacency), record, multiplier=1.0)
        noisy_cross(sample, privacy(adjacency=adjacency), record, multiplier=1.0)
    for measure in (TriangleInequality(record), record):
        noisy_second_moment(sample, 0.5, measure)  # rho 1/2: a multiplier of 1
    noisy_cross_moment(sample, 0.5, record)
    rows, both = Fraction(row) ** 4, (Fraction(row) * Fraction(label)) ** 2
    exact = [rows, both, 2 * rows, 4 * both, 4 * rows, 2 * rows, 4 * both]
    for found, square in zip(record.scales, exact, strict=True):
        assert (_RAISED * Fraction(found)) ** 2 >= square


def test_upper_triangle_is_never_farther_apart_than_the_whole_matrix() -> None:
    for one, other in neighbours(np.random.default_rng(2), Neighbours.REPLACE_ONE, 2000):
        difference = gram(one) - gram(other)
        assert np.linalg.norm(difference[np.triu_indices(2)]) <= np.linalg.norm(difference) * (1 + 1e-12)


@pytest.mark.parametrize("adjacency", Neighbours)
def test_noise_of_the_sums_is_the_multiplier_times_their_sensitivity(adjacency: Neighbours) -> None:
    sample, asked, record = linear_sample(np.random.default_rng(3)), privacy(adjacency=adjacency), Recording()
    assert np.allclose(noisy_gram(sample, asked, record, multiplier=2.5), gram(sample))
    assert np.allclose(noisy_cross(sample, asked, record, multiplier=2.5), cross(sample))
    assert record.scales == [2.5 * gram_sensitivity(sample, asked), 2.5 * cross_sensitivity(sample, asked)]


def test_noisy_least_eigenvalue_is_a_lower_bound_as_often_as_its_tail_says() -> None:
    sample = linear_sample(np.random.default_rng(4))
    measure = FloatingPoint(np.random.default_rng(5))
    found = [noisy_floor(sample, measure, multiplier=3.0, tail=1.0) for _ in range(4000)]
    above = float(np.mean(np.array(found) > least(sample)[0]))
    assert abs(above - 0.1587) < 6 * (0.1587 * 0.8413 / 4000) ** 0.5  # P(Z > 1); false alarm below 1e-8
    assert min(found) >= 0


def test_computed_least_eigenvalue_is_off_by_less_than_its_sensitivity_allows() -> None:
    generator = np.random.default_rng(6)
    for _ in range(50):
        d = int(generator.integers(2, 30))
        vectors = np.linalg.qr(generator.normal(size=(d, d)))[0]
        values = np.sort(generator.uniform(0, 2.0**23, size=d))
        matrix = (vectors * values) @ vectors.T
        computed = np.linalg.eigvalsh((matrix + matrix.T) / 2)[0]
        assert abs(computed - values[0]) <= d * 2.0**-24


def test_singular_system_has_the_least_norm_solution() -> None:
    assert np.allclose(solve(np.diag([2.0, 0.0]), np.array([4.0, 0.0])), [2.0, 0.0])
