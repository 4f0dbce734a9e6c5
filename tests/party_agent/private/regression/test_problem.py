from fractions import Fraction
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.party_agent.errors import SampleError
from commingle.party_agent.private.regression.problem import (
    EXACT_ROWS,
    Floats,
    clip_sample,
    on_grid,
    power_of_two_above,
)
from commingle.shared.errors import ParameterError

BOUNDS = st.floats(1e-3, 1e3)
SEEDS = st.integers(0, 2**32)


def wild(seed: int, n: int = 20, d: int = 3) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(seed)
    size = 10.0 ** generator.uniform(-4, 4)
    return size * generator.normal(size=(n, d)), size * generator.normal(size=n)


def exact_square(row: Floats) -> Fraction:
    return sum((Fraction(float(value)) ** 2 for value in row), start=Fraction(0))


@given(SEEDS, BOUNDS, BOUNDS)
def test_rows_on_the_grid_are_within_their_bounds_exactly(seed: int, row_bound: float, label_bound: float) -> None:
    sample = on_grid(*wild(seed), row_bound=row_bound, label_bound=label_bound)
    assert max(exact_square(row) for row in sample.x) <= Fraction(row_bound) ** 2
    assert float(np.abs(sample.y).max()) <= label_bound


@given(SEEDS, BOUNDS, BOUNDS)
def test_sums_of_products_on_the_grid_are_exact_in_any_order(seed: int, row_bound: float, label_bound: float) -> None:
    sample = on_grid(*wild(seed), row_bound=row_bound, label_bound=label_bound)
    exact = [
        [sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(u, v, strict=True)) for u in sample.x.T]
        for v in sample.x.T
    ]
    assert [[Fraction(float(value)) for value in row] for row in sample.x.T @ sample.x] == exact
    shuffled = np.random.default_rng(seed).permutation(sample.n)
    assert np.array_equal(sample.x.T @ sample.y, sample.x[shuffled].T @ sample.y[shuffled])


@given(SEEDS, BOUNDS, BOUNDS)
def test_row_is_put_on_the_grid_alike_wherever_it_stands(seed: int, row_bound: float, label_bound: float) -> None:
    x, y = wild(seed)
    whole, order = on_grid(x, y, row_bound=row_bound, label_bound=label_bound), np.random.default_rng(seed)
    for places in (order.permutation(len(y)), *(np.array([i]) for i in range(len(y)))):
        part = on_grid(x[places], y[places], row_bound=row_bound, label_bound=label_bound)
        assert part.x.tobytes() == whole.x[places].tobytes()
        assert part.y.tobytes() == whole.y[places].tobytes()


@given(SEEDS, BOUNDS)
def test_grid_moves_a_row_by_less_than_its_spacing(seed: int, bound: float) -> None:
    x, y = wild(seed)
    rough, fine = (make(x, y, row_bound=bound, label_bound=bound) for make in (clip_sample, on_grid))
    spacing = power_of_two_above(bound) * 2.0**-15
    assert float(np.abs(rough.x - fine.x).max()) <= 2 * spacing
    assert float(np.abs(rough.y - fine.y).max()) <= spacing


def test_rows_within_their_bound_stay_and_others_keep_their_direction() -> None:
    x, y = np.array([[0.3, 0.4], [3.0, 4.0]]), np.array([0.5, -7.0])
    sample = clip_sample(x, y, row_bound=1.0, label_bound=2.0)
    assert np.allclose(sample.x, [[0.3, 0.4], [0.6, 0.8]])
    assert sample.y.tolist() == [0.5, -2.0]


def test_repr_shows_no_value() -> None:
    sample = clip_sample(np.array([[0.123456]]), np.array([0.654321]), row_bound=1.0, label_bound=1.0)
    assert "123456" not in repr(sample)
    assert "654321" not in repr(sample)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.zeros((3, 2)), np.zeros(2)),
        (np.zeros(3), np.zeros(3)),
        (np.zeros((3, 0)), np.zeros(3)),
        (np.array([[nan]]), np.zeros(1)),
        (np.zeros((1, 1)), np.array([inf])),
    ],
)
def test_what_is_no_regression_problem_is_refused(x: Floats, y: Floats) -> None:
    with pytest.raises(SampleError):
        clip_sample(x, y, row_bound=1.0, label_bound=1.0)


@pytest.mark.parametrize("bound", [0.0, -1.0, nan, inf])
def test_bound_that_bounds_nothing_is_refused(bound: float) -> None:
    with pytest.raises(ParameterError, match="row_bound"):
        clip_sample(np.zeros((1, 1)), np.zeros(1), row_bound=bound, label_bound=1.0)
    with pytest.raises(ParameterError, match="label_bound"):
        clip_sample(np.zeros((1, 1)), np.zeros(1), row_bound=1.0, label_bound=bound)


def test_more_rows_than_exact_sums_allow_are_refused() -> None:
    x = np.broadcast_to(np.zeros((1, 1)), (EXACT_ROWS, 1))
    with pytest.raises(SampleError, match="too many"):
        on_grid(x, np.broadcast_to(np.zeros(1), EXACT_ROWS), row_bound=1.0, label_bound=1.0)


@pytest.mark.parametrize(("value", "power"), [(1.0, 1.0), (1.1, 2.0), (0.5, 0.5), (0.6, 1.0), (3.0, 4.0)])
def test_power_of_two_above_is_the_least_one(value: float, power: float) -> None:
    assert power_of_two_above(value) == power
