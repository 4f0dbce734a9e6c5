"""The methods with floating-point noise: their solvers and samplers beside oracles, and what they lose.

The privacy loss of a posterior sample by its exact curve; and all that AdaOPS publishes, by quadrature over draws
(docs/proofs/regression.md, 4 and 4.5).
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import exp, log, log1p, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features
from scipy import stats

from benchmarks.methods import published_constants
from commingle.party_agent.private.regression.floating import (
    AdaopsConstants,
    adaops,
    chosen_level,
    coefficient_bound,
    floor_sensitivity,
    loss_tail,
    minimise_in_ball,
    noise_scale,
    noisy_floor,
    noisy_quantile,
    noisysgd,
    objpert,
    positive_root,
    proved_constants,
    proved_root,
    ridge_fit,
    sample_posterior,
)
from commingle.party_agent.private.regression.measuring import (
    Measure,
    NoiseCalibration,
    Parts,
    Privacy,
    gaussian_multiplier,
    gaussian_plan,
)
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample, clip_sample
from commingle.shared.dp.calibration import epsilon_of_rho
from commingle.shared.dp.sensitivity import Adjacency
from tests.party_agent.private.regression.cases import NEIGHBOURS, linear_sample, privacy, with_row

SEEDS = st.integers(0, 2**32)


def test_noisy_descent_with_little_noise_comes_nearer_least_squares_with_every_step() -> None:
    sample, asked = linear_sample(default_rng(4)), privacy(1e4, calibration=NoiseCalibration.ANALYTIC)
    errors = [
        np.linalg.norm(noisysgd(sample, asked, default_rng(5), steps=steps).coefficients - ridge_fit(sample, 1e-9))
        for steps in (50, 1_000, 20_000)
    ]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.1


def test_loss_of_noisy_descent_is_that_of_opendps_accountant() -> None:
    steps = 50
    asked = privacy(1.0, 1e-5)
    enable_features("contrib")
    space = vector_domain(atom_domain(T="f64", nan=False)), l2_distance(T="f64")
    step = make_gaussian(*space, scale=gaussian_multiplier(asked, steps))
    theirs = steps * float(step.map(1.0))  # type: ignore[no-untyped-call] # OpenDP leaves its maps untyped
    ours = gaussian_plan(asked, steps)
    assert float(ours.rho) == pytest.approx(theirs, rel=1e-9)
    assert epsilon_of_rho(float(ours.rho), 1e-5) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("method", [objpert, noisysgd])
def test_coefficients_stay_in_the_ball_asked_for(method: Callable[..., Estimate]) -> None:
    sample = linear_sample(default_rng(10), n=50)
    calibration = NoiseCalibration.PUBLISHED if method is objpert else NoiseCalibration.ZCDP
    for seed in range(20):
        found = method(sample, privacy(0.1, calibration=calibration), default_rng(seed), radius=0.3)
        assert np.linalg.norm(found.coefficients) <= 0.3 * (1 + 1e-9)


@given(SEEDS, st.floats(0.05, 5))
def test_minimiser_in_the_ball_meets_the_optimality_conditions(seed: int, radius: float) -> None:
    generator = np.random.default_rng(seed)
    root = generator.normal(size=(4, 4))
    hessian, linear = root @ root.T + 0.1 * np.eye(4), generator.normal(size=4)
    theta = minimise_in_ball(hessian, linear, radius)
    norm = float(np.linalg.norm(theta))
    slope = linear - hessian @ theta  # zero inside, outward along theta on the boundary
    assert norm <= radius * (1 + 1e-9)
    if norm < radius * (1 - 1e-9):
        assert np.allclose(slope, 0, atol=1e-8)
    else:
        assert float(slope @ theta) >= -1e-8
        assert np.allclose(slope, float(slope @ theta) / norm**2 * theta, atol=1e-8)


@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_privacy_loss_of_objective_perturbation_exceeds_epsilon_as_rarely_as_delta(adjacency: Adjacency) -> None:
    """By the change of variables theta -> b, b = X^T y - H theta, inside the ball; both directions, extreme rows."""
    epsilon, delta, runs = 1.0, 0.01, 40_000
    asked = privacy(epsilon, delta, adjacency=adjacency, calibration=NoiseCalibration.PUBLISHED)
    generator = np.random.default_rng(4)
    # the others' coefficients lie near (0, -0.8), so that the row in question has nearly the largest gradient
    common = Sample(np.array([[0.6, 0.0], [0.0, 0.6]] * 200), np.array([0.0, -0.48] * 200), 1.0, 1.0)
    one = with_row(common, np.array([0.0, 1.0]), 1.0)
    other = common if adjacency is Adjacency.ADD_REMOVE else with_row(common, np.array([0.0, 1.0]), -1.0)
    claimed, ridge = noise_scale(common, asked, radius=1.0), 2 * common.row_bound**2 / epsilon

    def exceeding(first: Sample, second: Sample, scale: float) -> float:
        hessians = [s.x.T @ s.x + ridge * np.eye(2) for s in (first, second)]
        b = scale * generator.standard_normal((runs, 2))
        theta = np.linalg.solve(hessians[0], (first.x.T @ first.y - b).T).T
        moved = second.x.T @ second.y - theta @ hessians[1]
        loss = ((moved**2).sum(1) - (b**2).sum(1)) / (2 * scale**2)
        loss += float(np.log(np.linalg.det(hessians[0]) / np.linalg.det(hessians[1])))
        return float(((np.linalg.norm(theta, axis=1) <= 1) & (loss > epsilon)).mean())

    for first, second in ((one, other), (other, one)):
        assert exceeding(first, second, claimed) <= delta
        assert exceeding(first, second, claimed / 8) > delta


@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_privacy_loss_of_objective_perturbation_on_the_sphere_exceeds_epsilon_as_rarely_as_delta(
    adjacency: Adjacency,
) -> None:
    """Of theta with the multiplier nu, which say together what the random term was: b = X^T y - (H + nu I) theta."""
    epsilon, delta, radius, runs, ridge = 1.0, 0.01, 0.2, 1_000, 2.0
    asked = privacy(epsilon, delta, adjacency=adjacency, calibration=NoiseCalibration.PUBLISHED)
    generator = np.random.default_rng(4)
    common = Sample(np.array([[0.6, 0.0], [0.0, 0.6]] * 20), np.array([0.0, -0.48] * 20), 1.0, 1.0)
    one = with_row(common, np.array([0.0, 1.0]), 1.0)
    other = common if adjacency is Adjacency.ADD_REMOVE else with_row(common, np.array([0.0, 1.0]), -1.0)
    claimed = noise_scale(common, asked, radius=radius)

    def exceeding(first: Sample, second: Sample, scale: float) -> float:
        hessians = [s.x.T @ s.x + ridge * np.eye(2) for s in (first, second)]
        linear = [s.x.T @ s.y for s in (first, second)]
        b = scale * generator.standard_normal((runs, 2))
        theta = np.array([minimise_in_ball(hessians[0], linear[0] - row, radius) for row in b])
        nu = ((linear[0] - b - theta @ hessians[0]) * theta).sum(1) / radius**2
        outside = nu > 1e-9
        assert outside.mean() > 0.9
        theta, nu, b = theta[outside], nu[outside], b[outside]
        moved = linear[1] - theta @ hessians[1] - nu[:, None] * theta
        tangent = np.column_stack([-theta[:, 1], theta[:, 0]]) / radius
        volumes = [np.log(np.einsum("ni,ij,nj->n", tangent, h, tangent) + nu) for h in hessians]
        loss = ((moved**2).sum(1) - (b**2).sum(1)) / (2 * scale**2) + volumes[0] - volumes[1]
        return float((loss > epsilon).sum() / runs)

    for first, second in ((one, other), (other, one)):
        assert exceeding(first, second, claimed) <= delta
        assert exceeding(first, second, claimed / 8) > 10 * delta


def density(values: Floats, quantile: float, epsilon: float, points: Floats) -> Floats:
    """The exponential mechanism's density by its definition, on [-1, 1]."""
    fine = np.linspace(-1, 1, 200_001)

    def score(at: Floats) -> Floats:
        rank = np.searchsorted(np.sort(values), at)
        return np.asarray(np.exp(-epsilon / 2 * np.abs(rank - quantile * len(values))))

    return np.asarray(score(points) / (score(fine).mean() * 2))


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6), st.floats(-1, 1), st.floats(0.05, 3))
def test_density_of_the_noisy_quantile_moves_by_epsilon_at_most(
    values: list[float], other: float, epsilon: float
) -> None:
    points = np.linspace(-0.999, 0.999, 501)
    one, two = np.array(values), np.array([other, *values[1:]])
    ratio = density(one, 0.25, epsilon, points) / density(two, 0.25, epsilon, points)
    assert float(np.abs(np.log(ratio)).max()) <= epsilon * (1 + 1e-3)


def test_noisy_quantile_follows_its_density() -> None:
    generator, values = np.random.default_rng(3), np.array([-0.5, -0.4, 0.1, 0.1, 0.9])
    draws = np.array([noisy_quantile(values, 0.75, 2.0, 1.0, generator) for _ in range(20_000)])
    edges = np.linspace(-1, 1, 21)
    observed = np.histogram(draws, edges)[0] / len(draws)
    centres = np.linspace(-1, 1, 20_001)
    fine = density(values, 0.75, 2.0, centres)
    expected = np.array([fine[(centres >= a) & (centres < b)].mean() * 0.1 for a, b in pairwise(edges)])
    assert np.abs(observed - expected).max() < 6.2 * 0.5 / len(draws) ** 0.5 + 1e-3  # false alarms below 1e-8


@pytest.mark.parametrize("floor", [0.0, 3.0, 1e4, 1e7])
@pytest.mark.parametrize("constants_of", [proved_constants, published_constants])
def test_chosen_level_of_adaops_is_the_least_of_a_grid(
    floor: float, constants_of: Callable[[Privacy], AdaopsConstants]
) -> None:
    asked = privacy(1.0, 1e-6)
    sample = Sample(np.zeros((5, 3)), np.zeros(5), 1.0, 1.0)
    constants = constants_of(asked)
    level = chosen_level(sample, asked, constants, floor)
    least = max(constants.least, floor)
    log_delta, e = np.log(6e6), asked.epsilon / 4
    part = (np.sqrt(1 + 2 * e / log_delta) - 1) * log_delta
    c1 = (1.5 + np.sqrt(3 * np.log(20)) + np.log(20)) * log_delta / part**2

    def objective(u: Floats) -> Floats:
        return np.asarray(c1 * np.exp(2 * log_delta / e * np.log1p(1 / u)) / u + u)

    grid = np.geomspace(least, max(1e6, 2 * least), 4000)
    assert level >= least * (1 - 1e-12)
    assert float(objective(np.array(level))) <= float(objective(grid).min()) * (1 + 1e-6)


def test_proved_tails_of_adaops_use_up_delta_and_no_more() -> None:
    asked = privacy(0.3, 1e-6, calibration=NoiseCalibration.ANALYTIC)
    constants = proved_constants(asked)
    assert constants.reserve == 1
    assert exp(-(constants.tail**2) / 2) > 2e-7  # one-sided tail of delta/5 by the exact normal, not by Chernoff


_GRID = np.linspace(-12, 12, 100_001)
_WEIGHTS = stats.norm.pdf(_GRID) * (_GRID[1] - _GRID[0])


def losses(leverage: float, signal: float, z: Floats) -> tuple[Floats, Floats]:
    """ln p(theta)/p'(theta) under p, then ln p'/p under p': one row more in p'.

    leverage = x^T H^-1 x, signal = |y - x^T theta_hat| sqrt(gamma), both of the smaller data.
    """
    whole = 1 + leverage
    add = -log1p(leverage) / 2 + signal**2 * leverage / (2 * whole) - signal * sqrt(leverage) * z + leverage * z**2 / 2
    cut = (
        log1p(leverage) / 2
        + signal**2 * leverage / (2 * whole**2)
        + signal * sqrt(leverage) / whole**1.5 * z
        - leverage / whole * z**2 / 2
    )
    return add, cut


def delivered_delta(leverage: float, signal: float, epsilon: float) -> float:
    """The larger of the two hockey-stick divergences, by quadrature."""
    return max(
        float(np.maximum(-np.expm1(np.minimum(epsilon - loss, 0)), 0) @ _WEIGHTS)
        for loss in losses(leverage, signal, _GRID)
    )


@given(st.integers(0, 2**32), st.floats(0.1, 10), st.floats(0.1, 10))
def test_privacy_loss_of_a_row_is_the_one_dimensional_formula(seed: int, ridge: float, inverse_variance: float) -> None:
    generator = np.random.default_rng(seed)
    small = clip_sample(generator.normal(size=(6, 3)), generator.normal(size=6), row_bound=1.0, label_bound=1.0)
    x, y = generator.normal(size=3) / 2, float(generator.uniform(-1, 1))
    large = with_row(small, x, y)

    def log_density(sample: Sample, theta: Floats) -> float:
        precision = inverse_variance * (sample.x.T @ sample.x + ridge * np.eye(3))
        return float(stats.multivariate_normal(ridge_fit(sample, ridge), np.linalg.inv(precision)).logpdf(theta))

    theta = generator.normal(size=3)
    hessian = small.x.T @ small.x + ridge * np.eye(3)
    leverage = float(x @ np.linalg.solve(hessian, x))
    residual = y - float(x @ ridge_fit(small, ridge))
    z = (x @ (theta - ridge_fit(small, ridge))) / sqrt(leverage / inverse_variance)
    signal = residual * sqrt(inverse_variance)
    formula = losses(leverage, signal, np.array([z]))[0][0]
    assert log_density(small, theta) - log_density(large, theta) == pytest.approx(formula, rel=1e-6, abs=1e-8)
    spread = sqrt(leverage / (1 + leverage) / inverse_variance)
    z = (x @ (theta - ridge_fit(large, ridge))) / spread
    formula = losses(leverage, signal, np.array([z]))[1][0]
    assert log_density(large, theta) - log_density(small, theta) == pytest.approx(formula, rel=1e-6, abs=1e-8)


@pytest.mark.slow
@given(st.floats(0.05, 4), st.floats(1e-8, 0.9), st.floats(0.01, 0.95), st.floats(0.1, 100))
def test_proved_gamma_keeps_the_exact_curve_below_delta(
    epsilon: float, delta: float, share: float, residual: float
) -> None:
    tail = loss_tail(delta)
    leverage = share * 2 * epsilon / tail**2
    root = proved_root(residual=residual, leverage=leverage, tail=tail, epsilon=epsilon)
    for part in (0.1, 0.5, 1.0):
        for signal in (0.0, 0.5, 1.0):
            assert delivered_delta(part * leverage, signal * root * residual, epsilon) <= delta


@given(st.floats(1e-12, 0.999))
def test_tail_is_exceeded_with_probability_delta_and_is_never_below_one(delta: float) -> None:
    tail = loss_tail(delta)
    assert tail >= 1
    assert 2 * stats.norm.sf(tail) <= delta * (1 + 1e-9)
    assert tail == 1 or 2 * stats.norm.sf(tail) == pytest.approx(delta, rel=1e-9)


@given(st.integers(0, 2**32), st.floats(0.01, 10))
def test_ridge_coefficients_are_within_their_bound(seed: int, ridge: float) -> None:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(8, 2)) * 10.0 ** generator.uniform(-3, 1)
    sample = clip_sample(x, 9 * generator.normal(size=8), row_bound=1.0, label_bound=1.0)
    assert np.linalg.norm(ridge_fit(sample, ridge)) <= coefficient_bound(sample, ridge)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1e-6, 1e6))
def test_positive_root_solves_its_equation(square: float, linear: float, constant: float) -> None:
    if square + linear > 1e-9:
        root = positive_root(square, linear, constant)
        assert square * root**2 + linear * root == pytest.approx(constant, rel=1e-9)


def test_sample_has_mean_and_covariance_of_the_posterior() -> None:
    generator = np.random.default_rng(7)
    sample = clip_sample(generator.normal(size=(30, 2)), generator.normal(size=30), row_bound=1.0, label_bound=1.0)
    draws = np.array([sample_posterior(sample, generator, ridge=2.0, inverse_variance=3.0) for _ in range(20_000)])
    root = np.linalg.cholesky(3.0 * (sample.x.T @ sample.x + 2.0 * np.eye(2)))
    white = (draws - ridge_fit(sample, 2.0)) @ root  # identity covariance
    assert np.abs(white.mean(axis=0)).max() < 6.2 / 20_000**0.5  # false alarms below 1e-8
    assert np.abs(white.T @ white / 20_000 - np.eye(2)).max() < 6.2 * (2 / 20_000) ** 0.5


ASKED = privacy(1.0, 1e-2, calibration=NoiseCalibration.ANALYTIC)
_COARSE, _FINE = np.linspace(-6.5, 6.5, 15), np.linspace(-6.5, 6.5, 401)


class Scripted:
    """A generator that gives what it is told."""

    def __init__(self, *draws: float) -> None:
        self._draws: Iterator[float] = iter(draws)

    def standard_normal(self, size: int | tuple[int, ...]) -> Floats:
        return np.full(size, next(self._draws))


class Unlucky(Measure, Parts):
    """Noise at exactly `tail` of its standard deviations."""

    def __init__(self, tail: float) -> None:
        self._tail = self._noise = tail

    def begin(self, *, sensitivity: float, multiplier: float, entries: int) -> Parts:  # noqa: ARG002 - nothing is rounded
        self._noise = self._tail * multiplier * sensitivity
        return self

    def part(self, value: Floats, *, weight: float = 1.0, symmetric: bool = False) -> Floats:  # noqa: ARG002 - one part
        return value + self._noise


def weights(at: Floats) -> Floats:
    density = stats.norm.pdf(at)
    return np.asarray(density / density.sum())


def shifted(before: float, after: float, sd: float, z: float) -> float:
    """ln of the ratio of N(before, sd^2) to N(after, sd^2) at before + sd z."""
    moved = (before - after) / sd
    return moved * z + moved**2 / 2


def delivered(one: Sample, other: Sample, sharper: float = 1.0) -> float:
    """Hockey-stick divergence at epsilon of everything published on `one` from that on `other`; a single column.

    `sharper` multiplies sqrt(gamma).
    """
    constants, total = proved_constants(ASKED), 0.0
    small, large = sorted((one, other), key=lambda s: s.n)
    least = float(small.x[:, 0] @ small.x[:, 0])
    gram, gram_after = (float(s.x[:, 0] @ s.x[:, 0]) for s in (one, other))
    for first, weight in zip(_COARSE, weights(_COARSE), strict=True):
        for second, part in zip(_COARSE, weights(_COARSE), strict=True):
            found = adaops(one, ASKED, Scripted(first, second, 0.0)).published  # type: ignore[arg-type]
            ridge, floor, variance = (
                float(np.asarray(found[name])) for name in ("ridge", "least_eigenvalue", "inverse_variance")
            )
            size, size_after = (log(1 + abs(float(ridge_fit(s, ridge)[0]))) for s in (one, other))
            noise = constants.multiplier * np.log1p(1 / (ridge + floor))
            before = shifted(gram, gram_after, constants.multiplier * floor_sensitivity(one), first)
            before += shifted(size, size_after, noise, second)
            signal = sharper * sqrt(variance) * abs(large.y[-1] - float(ridge_fit(small, ridge)[0]))
            last = losses(1 / (least + ridge), signal, _FINE)[0 if one is small else 1]
            beyond = np.maximum(-np.expm1(np.minimum(ASKED.epsilon - before - last, 0)), 0)
            total += weight * part * float(beyond @ weights(_FINE))
    return total


def rows(count: int, x: float, y: float) -> Sample:
    return Sample(np.full((count, 1), x), np.full(count, y), 1.0, 1.0)


@pytest.mark.parametrize(
    ("common", "label"),
    [(rows(1, 0.0, 0.0), 1.0), (rows(100, 1.0, -1.0), 1.0), (rows(10_000, 0.1, 1.0), -1.0), (rows(10_000, 1, -0.1), 1)],
)
def test_everything_adaops_publishes_stays_within_its_epsilon_and_delta(common: Sample, label: float) -> None:
    more = with_row(common, np.array([1.0]), label)
    assert delivered(common, more) <= ASKED.delta
    assert delivered(more, common) <= ASKED.delta


def test_a_posterior_eight_times_as_narrow_does_not() -> None:
    common = rows(10_000, 1.0, -0.1)
    more = with_row(common, np.array([1.0]), 1.0)
    assert max(delivered(common, more, 8.0), delivered(more, common, 8.0)) > ASKED.delta


@pytest.mark.parametrize("columns", [1, 3])
def test_noise_within_its_tail_leaves_the_floor_below_the_least_eigenvalue_of_every_neighbour(columns: int) -> None:
    sample = linear_sample(np.random.default_rng(1), n=4000, d=columns)
    values, vectors = np.linalg.eigh(sample.x.T @ sample.x)
    floor = noisy_floor(sample, Unlucky(5.0), multiplier=20.0, tail=5.0)
    assert floor == pytest.approx(values[0], rel=1e-12)
    weaker = values[0] - float(vectors[:, 0] @ vectors[:, 0])  # a row of norm 1 fewer, along the weakest direction
    assert floor - floor_sensitivity(sample) < weaker
