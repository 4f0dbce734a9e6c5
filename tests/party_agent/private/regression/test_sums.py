"""Both sums in one measurement: what a row moves them by, their noise, and what follows from it."""

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.party_agent.private.regression.calibration import gaussian_multiplier
from commingle.party_agent.private.regression.measuring import _RAISED, FloatingPoint
from commingle.party_agent.private.regression.posterior import noisy_floor
from commingle.party_agent.private.regression.problem import Floats, Neighbours, Sample
from commingle.party_agent.private.regression.sufficient import ridge_of
from commingle.party_agent.private.regression.sums import (
    cross_weight,
    gram_noise,
    noisy_sums,
    norm_bound,
    solve,
    sums_loss,
    sums_sensitivity,
)
from tests.party_agent.private.regression.cases import (
    LABEL_BOUND,
    ROW_BOUND,
    Recording,
    farthest,
    linear_sample,
    neighbours,
    privacy,
    with_row,
)

PAIRS = 8_000
BOUNDS = st.floats(1e-3, 1e3)


def least(sample: Sample) -> Floats:
    return np.linalg.eigvalsh(sample.x.T @ sample.x)[:1].astype(np.float64)


def weighted(sample: Sample) -> Floats:
    """The whole matrix and the cross sum with its weight: the Euclidean distance of these is what is bounded."""
    weight = cross_weight(sample.row_bound, sample.label_bound)
    return np.append(sample.x.T @ sample.x, sqrt(weight) * (sample.x.T @ sample.y))


@pytest.mark.parametrize("adjacency", Neighbours)
def test_no_pair_of_neighbours_moves_both_sums_beyond_their_sensitivity_and_some_as_far(adjacency: Neighbours) -> None:
    bound = sums_sensitivity(ROW_BOUND, replaces=adjacency is Neighbours.REPLACE_ONE)
    worst = farthest(neighbours(np.random.default_rng(1), adjacency, PAIRS), weighted)
    assert 0.99 * bound < worst <= bound * (1 + 1e-9)


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0, 1.5, 2.0, 3.0])
def test_sum_of_squares_at_an_angle_is_the_formula_of_the_proof_for_every_weight(share: float) -> None:
    """2 (1 - t^2) + 2 k (1 + t) over cosines t is largest at min(k/2, 1): the oracle is a search over pairs of rows."""
    angles = np.linspace(0, np.pi, 20_001)
    x = np.array([1.0, 0.0])
    v = np.column_stack([np.cos(angles), np.sin(angles)])
    moved = [np.sum((np.outer(x, x) - np.outer(w, w)) ** 2) + share * np.sum((x + w) ** 2) for w in v]
    expected = 2 * (1 + share / 2) ** 2 if share <= 2 else 4 * share
    assert max(moved) == pytest.approx(expected, rel=1e-6)


@given(BOUNDS, BOUNDS, st.integers(1, 200))
def test_sensitivity_as_computed_and_raised_bounds_the_exact_formula_for_the_weight_as_computed(
    row: float, label: float, rounds: int
) -> None:
    rows = Fraction(row) ** 2
    share = Fraction(cross_weight(row, label, rounds=rounds)) * rounds * Fraction(label) ** 2 / rows  # about 1
    for replaces, exact in ((True, 2 * rows**2 * (1 + share / 2) ** 2), (False, rows**2 * (1 + share))):
        assert (_RAISED * Fraction(sums_sensitivity(row, replaces=replaces))) ** 2 >= exact


@pytest.mark.parametrize("adjacency", Neighbours)
def test_noise_is_that_of_one_measurement_shared_by_bounds(adjacency: Neighbours) -> None:
    sample, asked, record = linear_sample(np.random.default_rng(3)), privacy(adjacency=adjacency), Recording()
    sample = Sample(sample.x, sample.y, 1.0, 4.0)
    gram, cross = noisy_sums(sample, asked, record)
    assert np.allclose(gram, sample.x.T @ sample.x)
    assert np.allclose(cross, sample.x.T @ sample.y)
    sd = gaussian_multiplier(asked, 1) * (3 / sqrt(2) if adjacency is Neighbours.REPLACE_ONE else sqrt(2))
    assert record.deviations == pytest.approx([sd, 4 * sd])
    assert record.symmetric == [True, False]
    assert record.entries == [sample.d * (sample.d + 1)]
    assert gram_noise(sample, asked) == pytest.approx(sd)


@pytest.mark.parametrize("adjacency", Neighbours)
def test_drawn_noise_has_half_the_variance_beside_the_diagonal(adjacency: Neighbours) -> None:
    sample, asked, runs = linear_sample(np.random.default_rng(3)), privacy(adjacency=adjacency), 4_000
    measure, upper = FloatingPoint(np.random.default_rng(4)), np.triu_indices(3, 1)
    drawn = [noisy_sums(sample, asked, measure) for _ in range(runs)]
    sd = gram_noise(sample, asked)
    diagonal = np.array([gram.diagonal() - (sample.x.T @ sample.x).diagonal() for gram, _ in drawn]) / sd
    above = np.array([(gram - sample.x.T @ sample.x)[upper] for gram, _ in drawn]) / sd
    cross = np.array([noisy - sample.x.T @ sample.y for _, noisy in drawn]) / sd
    for noise, variance in ((diagonal, 1.0), (above, 0.5), (cross, 1.0)):
        # a false alarm in 10^9
        assert abs(float(np.mean(noise**2)) / variance - 1) < 6.2 * sqrt(2 / noise.size)
    together = np.corrcoef(np.hstack([diagonal, above, cross]).T)
    assert np.abs(together - np.eye(9)).max() < 6.8 / sqrt(runs)


def test_noise_together_is_less_than_two_measurements_beside_each_other_need() -> None:
    asked = privacy(adjacency=Neighbours.REPLACE_ONE)
    apart = gaussian_multiplier(asked, 2)
    sample = Sample(np.zeros((1, 1)), np.zeros(1), 1.0, 1.0)
    assert gram_noise(sample, asked) / (apart * sqrt(2)) == pytest.approx(1.5 / sqrt(2))  # of X^T X: 6 % more
    assert gram_noise(sample, asked) / (apart * 2) == pytest.approx(0.75)  # of X^T y: a quarter less
    assert sums_loss(asked).epsilon(asked.delta) <= asked.epsilon


def test_largest_eigenvalue_of_the_noise_exceeds_its_bound_five_percent_of_the_time_at_most() -> None:
    runs = 4_000
    for d in (1, 4, 20):
        empty = Sample(np.zeros((1, d)), np.zeros(1), 1.0, 1.0)
        measure = FloatingPoint(np.random.default_rng(d))
        sd = gram_noise(empty, privacy())
        grams = np.array([noisy_sums(empty, privacy(), measure)[0] for _ in range(runs)])
        beyond = float(np.mean(np.linalg.eigvalsh(grams)[:, -1] > sd * norm_bound(d)))
        assert beyond < 0.05


def test_ridge_lifts_the_least_eigenvalue_to_what_the_noise_stays_below() -> None:
    bound = norm_bound(2)
    assert ridge_of(np.diag([5.0, 2.0]), 1.0) == pytest.approx(bound - 2)
    assert ridge_of(np.diag([5.0, -2.0]), 1.0) == pytest.approx(bound)
    assert ridge_of(np.diag([50.0, 20.0]), 1.0) == 0


def test_noisy_least_eigenvalue_is_a_lower_bound_as_often_as_its_tail_says() -> None:
    sample = linear_sample(np.random.default_rng(4))
    measure = FloatingPoint(np.random.default_rng(5))
    found = [noisy_floor(sample, measure, multiplier=3.0, tail=1.0) for _ in range(4000)]
    above = float(np.mean(np.array(found) > least(sample)[0]))
    assert abs(above - 0.1587) < 6 * (0.1587 * 0.8413 / 4000) ** 0.5  # P(Z > 1); false alarm below 1e-8
    assert min(found) >= 0


@pytest.mark.parametrize("adjacency", Neighbours)
def test_no_pair_of_neighbours_moves_the_least_eigenvalue_beyond_its_sensitivity(adjacency: Neighbours) -> None:
    worst = farthest(neighbours(np.random.default_rng(1), adjacency, 3_000), least)
    one = with_row(Sample(np.zeros((0, 1)), np.zeros(0), ROW_BOUND, LABEL_BOUND), np.array([ROW_BOUND]), 0.0)
    assert float(least(one)[0]) == pytest.approx(ROW_BOUND**2)
    assert 0.99 * ROW_BOUND**2 < worst <= ROW_BOUND**2 * (1 + 1e-9)


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
