"""Two stages of one holder: bounds against search, cost against what was asked, noise against its scales."""

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.typing import NDArray

from commingle.shared.dp.accounting import Rho
from commingle.shared.dp.fixed_point import SCALE, IntegerMap, clip_rows
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.dp.two_stages import (
    SHARE,
    WIDER,
    Kind,
    MeasuredAttribute,
    TwoStages,
    plan_two_stages,
    two_stage_loss,
)
from commingle.shared.errors import ParameterError
from tests.world.noise import no_noise

NUMBER, BINARY = MeasuredAttribute(Kind.NUMERIC), MeasuredAttribute(Kind.BINARY)
COLUMNS = (NUMBER, BINARY, MeasuredAttribute(Kind.CATEGORICAL, 2), MeasuredAttribute(Kind.NUMERIC, weight=Fraction(2)))
D = 5
RHO = Rho(1 << 60)  # 1/16
ONE_HOLDERS = (Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE)
IDENTITY = IntegerMap(np.eye(2, dtype=np.int64) << 20, np.zeros(2, np.int64))
STEPS = st.integers(-SCALE, SCALE)


def plan(adjacency: Adjacency = Adjacency.REPLACE_ONE, *, n: int = 1000, rho: Rho = RHO) -> TwoStages:
    return plan_two_stages(COLUMNS, n=n, rho=rho, adjacency=adjacency)


def pair(adjacency: Adjacency = Adjacency.REPLACE_ONE) -> TwoStages:
    return plan_two_stages((NUMBER, NUMBER), n=1000, rho=RHO, adjacency=adjacency)


def second_moved(stages: TwoStages, one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """Sum of (shift / scale)^2 of the second stage between two tables of mapped rows."""
    change = stages.moments(one, IDENTITY, no_noise) - stages.moments(other, IDENTITY, no_noise)
    sigma, s, t = stages.sigma, stages.product_sigma, stages.linear_sigma
    return float(np.sum((change / np.array([t, t, sigma, s, sigma])) ** 2))


def second_loss(stages: TwoStages, adjacency: Adjacency) -> float:
    whole, share = two_stage_loss(stages, adjacency), Rho(int(RHO.units * SHARE))
    first = plan_two_stages((NUMBER, NUMBER), n=1000, rho=RHO, adjacency=adjacency).first
    assert first == stages.first
    return float(whole) - float(share)


@pytest.mark.parametrize("adjacency", ONE_HOLDERS)
@given(rows=st.tuples(STEPS, STEPS, STEPS, STEPS))
def test_no_pair_of_rows_moves_the_second_stage_farther_than_is_charged(
    adjacency: Adjacency, rows: tuple[int, int, int, int]
) -> None:
    stages, row, none = pair(adjacency), np.array([rows[:2]]), np.empty((0, 2), np.int64)
    other = none if adjacency is Adjacency.ADD_REMOVE else np.array([rows[2:]])
    # the first stage uses up its share but for one part in sigma, 10^6 or so
    assert second_moved(stages, row, other) <= 2 * second_loss(stages, adjacency) * (1 + 1e-5)
    assert second_moved(stages, row, np.array([rows[2:]])) <= 81 / 32 * SCALE**4 / stages.sigma**2


def test_pair_at_the_angle_of_the_proof_attains_the_bound() -> None:
    stages = pair()
    row, other = np.array([[SCALE, 0]]), np.array([[-SCALE // 8, int(SCALE * sqrt(1 - 1 / 64))]])
    assert second_moved(stages, row, other) > 0.9999 * 81 / 32 * SCALE**4 / stages.sigma**2
    alone = second_moved(pair(Adjacency.ADD_REMOVE), row, np.empty((0, 2), np.int64))
    assert alone > 0.9999 * 5 / 4 * SCALE**4 / pair(Adjacency.ADD_REMOVE).sigma ** 2


@pytest.mark.parametrize("adjacency", ONE_HOLDERS)
@given(units=st.integers(1 << 44, 1 << 70))
def test_both_stages_cost_what_was_asked_and_hardly_less(adjacency: Adjacency, units: int) -> None:
    stages = plan(adjacency, rho=Rho(units))
    loss = two_stage_loss(stages, adjacency)
    assert loss <= Rho(units)
    assert float(loss) > 0.99 * units / 2**64  # sigmas are integers of 10^3 at least
    less = TwoStages(stages.first, stages.sigma - 1, stages.radius_squared)
    assert float(two_stage_loss(less, adjacency)) > float(loss)


@given(units=st.integers(1 << 44, 1 << 70))
def test_plan_for_a_row_more_or_less_costs_no_more_than_is_charged(units: int) -> None:
    """Charged is a part more of what was asked; of binary columns the first stage costs four times as much."""
    for attributes in (COLUMNS, (BINARY, BINARY)):
        stages = plan_two_stages(attributes, n=1000, rho=Rho(units), adjacency=Adjacency.ADD_REMOVE)
        charge = -(-units * WIDER.numerator // WIDER.denominator)
        assert two_stage_loss(stages, Adjacency.REPLACE_ONE).units <= charge


def test_drawn_noise_has_the_scale_of_every_entry() -> None:
    """Mean squares of 2,000 draws are within 5.5 of their standard deviations: 26 entries, one false alarm in 10^6."""
    stages, nothing, draws = plan(n=1), np.zeros((1, D), np.int64), 2000
    still = IntegerMap(np.eye(D, dtype=np.int64) << 20, np.zeros(D, np.int64))
    drawn = np.array([stages.moments(nothing, still, rounded_gaussian) for _ in range(draws)])
    upper = np.triu_indices(D)
    scales = [stages.linear_sigma] * D + [
        stages.sigma if i == j else stages.product_sigma for i, j in zip(*upper, strict=True)
    ]
    ratios = np.mean((drawn / np.array(scales)) ** 2, axis=0)
    assert np.abs(ratios - 1).max() < 5.5 * sqrt(2 / draws)
    assert 2 * stages.product_sigma**2 >= stages.sigma**2 > 2 * (stages.product_sigma - 1) ** 2
    assert stages.linear_sigma**2 * SCALE**2 >= 4 * stages.sigma**2 > (stages.linear_sigma - 1) ** 2 * SCALE**2


def test_system_has_the_moments_of_mapped_rows_and_the_variances_of_their_noise() -> None:
    stages, draw = plan(n=300), default_rng(1)
    q = draw.integers(-SCALE, SCALE + 1, (300, D))
    mapped = stages.map(stages.sums(q, no_noise))
    gram, variance = stages.system(stages.moments(q, mapped, no_noise), n=300)
    z = np.column_stack([np.ones(300), clip_rows(mapped.rows(q), SCALE**2, largest=1 << 26) / SCALE])
    assert np.allclose(gram, z.T @ z, atol=1e-9)
    assert np.array_equal(gram, gram.T)
    assert np.array_equal(variance, variance.T)
    assert variance[0, 0] == 0
    assert np.sqrt(np.diag(variance)[1:]) == pytest.approx(stages.sigma / SCALE**2)
    assert np.sqrt(variance[0, 1:]) == pytest.approx(stages.linear_sigma / SCALE)
    assert np.sqrt(variance[1, 2]) == pytest.approx(stages.sigma / SCALE**2 / sqrt(2), rel=1e-6)


def test_a_row_more_or_less_moves_the_first_stage_no_farther_than_is_charged_the_count_with_it() -> None:
    """Of the row that moves sums most: the share is used up, and would not be without what the count costs."""
    stages, row = plan(Adjacency.ADD_REMOVE), np.array([[SCALE, SCALE, SCALE, 0, SCALE]])
    scales = np.repeat([stages.first.sigma, stages.first.square_sigma], [1 + D, 2])
    change = stages.sums(row, no_noise) - stages.sums(row[:0], no_noise)
    moved, share = float(np.sum((change / scales) ** 2)), 2 * float(SHARE) * float(RHO)
    assert 0.999 * share < moved <= share
    assert (change[0], stages.count(stages.sums(np.repeat(row, 40, axis=0), no_noise))) == (SCALE, 40)


def test_noise_plan_under_add_remove_does_not_depend_on_the_public_figure() -> None:
    few, many = (plan(Adjacency.ADD_REMOVE, n=n) for n in (10, 1_000_000))
    assert (few.sigmas, few.radius_squared < many.radius_squared) == (many.sigmas, True)


def test_sums_are_exact_whatever_the_order_of_rows() -> None:
    stages, draw = plan(n=5000), default_rng(2)
    q = draw.integers(-SCALE, SCALE + 1, (5000, D))
    mapped = stages.map(stages.sums(q, no_noise))
    again = draw.permutation(q)
    assert np.array_equal(stages.sums(q, no_noise), stages.sums(again, no_noise))
    assert np.array_equal(stages.moments(q, mapped, no_noise), stages.moments(again, mapped, no_noise))


@pytest.mark.parametrize(
    ("attributes", "n", "rho", "said"),
    [
        ((NUMBER,), 1 << 23, RHO, "too many"),
        ((NUMBER,) * 257, 1000, RHO, "too many"),
        ((NUMBER,), 1000, Rho(1 << 10), "too much noise"),
        ((NUMBER,), 1000, Rho(1), "too small"),
    ],
)
def test_what_cannot_be_measured_exactly_is_refused(
    attributes: tuple[MeasuredAttribute, ...], n: int, rho: Rho, said: str
) -> None:
    with pytest.raises(ParameterError, match=said):
        plan_two_stages(attributes, n=n, rho=rho, adjacency=Adjacency.REPLACE_ONE)
