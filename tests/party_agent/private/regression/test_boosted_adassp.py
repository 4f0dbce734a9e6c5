"""Residuals: what a row can move their sum by, exactly; and what the rounds cost together."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

from commingle.party_agent.private.regression.calibration import Privacy, gaussian_multiplier
from commingle.party_agent.private.regression.measuring import FloatingPoint
from commingle.party_agent.private.regression.posterior import ridge_fit
from commingle.party_agent.private.regression.problem import Floats, Neighbours, Sample, on_grid
from commingle.party_agent.private.regression.sufficient import (
    ROUNDS,
    _round_multiplier,
    adassp,
    adassp_loss,
    boosted_adassp,
    boosted_adassp_loss,
    cross_sensitivity,
    gram_sensitivity,
    residuals,
    solve,
)
from tests.party_agent.private.regression.cases import farthest, linear_sample, neighbours, privacy, with_row

SEEDS = st.integers(0, 2**32)
SIZES = st.floats(1e-3, 1e3)


class Recording:
    """A measure without noise that remembers the scales asked for."""

    def __init__(self) -> None:
        self.scales: list[float] = []

    def measure(self, value: Floats, *, sensitivity: float, multiplier: float, symmetric: bool = False) -> Floats:
        assert not symmetric or np.array_equal(value, value.T)
        self.scales.append(sensitivity * multiplier)
        return value


def grid_sample(seed: int, row_bound: float, label_bound: float, n: int = 30, d: int = 4) -> Sample:
    generator = default_rng(seed)
    x, y = row_bound * generator.normal(size=(n, d)), 2 * label_bound * generator.normal(size=n)
    return on_grid(x, y, row_bound=row_bound, label_bound=label_bound)


@pytest.mark.parametrize("adjacency", Neighbours)
@pytest.mark.parametrize(("size", "reached"), [(0.0, 0.99), (0.3, 0.99), (300.0, 0.9)])
def test_no_pair_of_neighbours_moves_the_sum_of_residuals_beyond_its_sensitivity_and_some_as_far(
    adjacency: Neighbours, size: float, reached: float
) -> None:
    theta = size * default_rng(1).normal(size=2)

    def cross(sample: Sample) -> Floats:
        left = residuals(sample, theta, bound=0.34)
        return left.x.T @ left.y

    pairs = list(neighbours(default_rng(2), adjacency, 500))
    bound = cross_sensitivity(residuals(pairs[0][0], theta, bound=0.34), privacy(adjacency=adjacency))
    assert reached * bound < farthest(iter(pairs), cross) <= bound


@given(SEEDS, SIZES, SIZES, st.floats(1e-6, 1e6))
def test_residual_of_a_row_is_the_same_to_the_last_bit_whatever_the_other_rows(
    seed: int, row_bound: float, label_bound: float, size: float
) -> None:
    sample, theta = grid_sample(seed, row_bound, label_bound), size * default_rng(seed).normal(size=4)
    together = residuals(sample, theta, bound=label_bound / 3).y
    order = default_rng(seed + 1).permutation(sample.n)
    shuffled = Sample(sample.x[order], sample.y[order], row_bound, label_bound)
    assert np.array_equal(residuals(shuffled, theta, bound=label_bound / 3).y, together[order])
    alone = [
        residuals(Sample(sample.x[[i]], sample.y[[i]], row_bound, label_bound), theta, bound=label_bound / 3).y[0]
        for i in range(sample.n)
    ]
    assert np.array_equal(alone, together)


@given(SEEDS, SIZES, SIZES)
def test_sum_of_residuals_is_exact_and_they_are_within_their_bound(
    seed: int, row_bound: float, label_bound: float
) -> None:
    sample, bound = grid_sample(seed, row_bound, label_bound), label_bound / 5
    left = residuals(sample, default_rng(seed).normal(size=4), bound=bound)
    assert float(np.abs(left.y).max()) <= bound == left.label_bound
    exact = [
        sum(Fraction(float(a)) * Fraction(float(r)) for a, r in zip(column, left.y, strict=True)) for column in left.x.T
    ]
    assert [Fraction(float(value)) for value in left.x.T @ left.y] == exact


def test_residuals_are_labels_less_predictions_cut() -> None:
    sample = linear_sample(default_rng(3))
    theta = np.array([0.5, -0.2, 0.1])
    expected = np.clip(sample.y - sample.x @ theta, -0.25, 0.25)
    assert np.allclose(residuals(sample, theta, bound=0.25).y, expected, atol=2.0**-16)
    assert float(np.abs(expected).max()) == 0.25  # some are cut


@pytest.mark.parametrize("adjacency", Neighbours)
def test_rounds_have_the_noise_of_a_third_shared_among_them(adjacency: Neighbours) -> None:
    sample, asked, record = linear_sample(default_rng(4)), privacy(adjacency=adjacency), Recording()
    boosted_adassp(sample, asked, record)
    s, cross = gaussian_multiplier(asked, 3), cross_sensitivity(sample, asked)
    assert record.scales[1] == s * gram_sensitivity(sample, asked)
    # sqrt(T) s times C Y / T
    assert record.scales[2:] == pytest.approx([s * cross / ROUNDS**0.5] * ROUNDS)


@given(st.floats(1e-3, 1e9), st.integers(1, 200))
def test_rounds_cost_no_more_than_the_one_measurement_they_share_and_hardly_less(
    multiplier: float, rounds: int
) -> None:
    cost = rounds / Fraction(_round_multiplier(multiplier, rounds)) ** 2 * Fraction(multiplier) ** 2
    assert 1 - Fraction(1, 10**14) <= cost <= 1


@given(st.floats(1e-3, 20), st.integers(1, 200))
def test_whole_loss_is_that_of_adassp_up_to_a_unit_a_round(epsilon: float, rounds: int) -> None:
    asked = Privacy(epsilon, 1e-6)
    ours, theirs = boosted_adassp_loss(asked, rounds=rounds), adassp_loss(asked)
    assert abs(ours.rho.units - theirs.rho.units) <= rounds + theirs.rho.units * 1e-14
    assert ours.delta == 0


@pytest.mark.parametrize("adjacency", Neighbours)
def test_loss_along_every_path_is_within_the_rounds_third_and_extreme_rows_use_it_up(adjacency: Neighbours) -> None:
    """Sum over rounds of ||X^T r - X'^T r'||^2 / (2 sd^2) at the coefficients that the published sums lead to."""
    common = Sample(np.array([[0.05, 0.9], [0.05, -0.9]]), np.array([0.9, -0.9]), 1.0, 1.0)
    edge, asked = np.array([1.0, 0.0]), privacy(1.0, adjacency=adjacency)
    one = with_row(common, edge, 1.0)
    other = common if adjacency is Neighbours.ADD_REMOVE else with_row(common, edge, -1.0)
    scale = _round_multiplier(gaussian_multiplier(asked, 3), ROUNDS) * cross_sensitivity(one, asked) / ROUNDS
    third = float(boosted_adassp_loss(asked).rho) / 3
    losses = []
    for seed in range(200):
        published = boosted_adassp(one, asked, FloatingPoint(default_rng(seed))).published
        system = np.reshape(published["gram"], (2, 2)) + np.eye(2) * published["ridge"]
        theta, loss = np.zeros(2), 0.0
        for noisy in np.reshape(published["cross"], (ROUNDS, 2)):
            sums = [left.x.T @ left.y for left in (residuals(s, theta, bound=1 / ROUNDS) for s in (one, other))]
            loss += float(np.sum((sums[0] - sums[1]) ** 2)) / (2 * scale**2)
            theta = theta + solve(system, noisy)
        losses.append(loss)
    assert max(losses) <= third * (1 + 1e-12)
    assert max(losses) > 0.99 * third


def test_without_noise_rounds_come_nearer_least_squares_than_adassp_under_the_same_ridge() -> None:
    sample, asked = linear_sample(default_rng(5), n=2_000), privacy(0.1)
    best, silent = ridge_fit(sample, 1e-9), Recording()
    errors = [
        float(np.linalg.norm(fit.coefficients - best))
        for fit in (
            adassp(sample, asked, silent),
            *(boosted_adassp(sample, asked, silent, rounds=rounds, clip=1.0) for rounds in (1, 5, 200)),
        )
    ]
    assert errors[1] == pytest.approx(errors[0], abs=1e-3)  # labels on the grid, and not
    assert errors[1] > 2 * errors[2] > 0.01  # lambda is twice the eigenvalues
    assert errors[3] < 1e-3
