"""Every method of the registry: without noise it is least squares, it costs what it says; and the solvers inside."""

from collections.abc import Callable
from itertools import pairwise
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator, default_rng
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features

from benchmarks.methods.published import published_constants
from commingle.party_agent.private.regression.floating import (
    minimise_in_ball,
    noise_scale,
    noisy_quantile,
    noisysgd,
    noisysgd_loss,
    objpert,
    subagg,
)
from commingle.party_agent.private.regression.measuring import (
    GAUSSIAN,
    Exact,
    FloatingPoint,
    NoiseCalibration,
    Privacy,
    gaussian_multiplier,
)
from commingle.party_agent.private.regression.methods import METHODS, ExactMethod, FloatingMethod
from commingle.party_agent.private.regression.posterior import (
    AdaopsConstants,
    chosen_level,
    proved_constants,
    ridge_fit,
)
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample, on_grid
from commingle.shared.dp.accounting import Loss
from commingle.shared.dp.calibration import epsilon_of_rho
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.dp.sensitivity import Adjacency
from tests.party_agent.private.regression.cases import NEIGHBOURS, linear_sample, privacy, with_row

CASES = [(method, c) for method in METHODS.values() for c in sorted(method.calibrations)]
EXACT = [m for m in METHODS.values() if isinstance(m, ExactMethod)]


def run(method: ExactMethod | FloatingMethod, sample: Sample, asked: Privacy, generator: Generator) -> Estimate:
    if isinstance(method, ExactMethod):
        return method.run(sample, asked, FloatingPoint(generator))
    return method.run(sample, asked, generator)


def least_squares_of(sample: Sample) -> Floats:
    return ridge_fit(sample, 1e-9)


@pytest.mark.parametrize(
    ("name", "calibration", "epsilon", "tolerance"),
    [
        ("ssp", NoiseCalibration.ANALYTIC, 1e4, 0.02),
        ("adassp", NoiseCalibration.ANALYTIC, 1e4, 0.02),
        ("boosted_adassp", NoiseCalibration.ANALYTIC, 1e4, 0.02),
        ("objpert", NoiseCalibration.PUBLISHED, 1e9, 1e-5),
        ("subagg", NoiseCalibration.PUBLISHED, 1e9, 1e-5),
    ],
)
def test_without_noise_the_coefficients_are_least_squares(
    name: str, calibration: NoiseCalibration, epsilon: float, tolerance: float
) -> None:
    sample = linear_sample(default_rng(1), noise=0.0)
    theta = run(METHODS[name], sample, privacy(epsilon, calibration=calibration), default_rng(2)).coefficients
    assert np.allclose(theta, least_squares_of(sample), atol=tolerance)


@pytest.mark.parametrize(("name", "calibration"), [("ops", "classical"), ("adaops", "analytic")])
def test_posterior_methods_approach_least_squares_as_rows_are_added(name: str, calibration: str) -> None:
    errors = []
    for n in (2_000, 200_000):
        sample = linear_sample(default_rng(3), n=n)
        asked = privacy(1.0, calibration=NoiseCalibration(calibration))
        runs = [run(METHODS[name], sample, asked, default_rng(seed)).coefficients for seed in range(5)]
        errors.append(np.mean([np.linalg.norm(theta - least_squares_of(sample)) for theta in runs]))
    assert errors[1] < errors[0] / 2
    assert errors[1] < 0.2


def test_noisy_descent_with_little_noise_comes_nearer_least_squares_with_every_step() -> None:
    sample, asked = linear_sample(default_rng(4)), privacy(1e4, calibration=NoiseCalibration.ANALYTIC)
    errors = [
        np.linalg.norm(noisysgd(sample, asked, default_rng(5), steps=steps).coefficients - least_squares_of(sample))
        for steps in (50, 1_000, 20_000)
    ]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.1


@pytest.mark.parametrize("method", EXACT, ids=lambda m: m.name)
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
@pytest.mark.parametrize("calibration", sorted(GAUSSIAN))
def test_exact_noise_spends_what_was_debited_and_hardly_less(
    method: ExactMethod, adjacency: Adjacency, calibration: NoiseCalibration
) -> None:
    rows = linear_sample(default_rng(6))
    sample = on_grid(rows.x, rows.y, row_bound=1.0, label_bound=1.0)
    asked, exact = privacy(0.5, adjacency=adjacency, calibration=calibration), Exact(rounded_gaussian)
    estimate = method.run(sample, asked, exact)
    planned = method.loss(asked)
    assert estimate.loss == planned
    assert planned.delta == 0
    assert planned.rho.units * (1 - 1e-4) < exact.spent.units <= planned.rho.units


@pytest.mark.parametrize(("method", "calibration"), CASES, ids=lambda c: getattr(c, "name", str(c)))
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_run_costs_what_was_announced_before_any_row_was_read(
    method: ExactMethod | FloatingMethod, calibration: NoiseCalibration, adjacency: Adjacency
) -> None:
    asked = privacy(0.5, adjacency=adjacency, calibration=calibration)
    sample = linear_sample(default_rng(7))
    estimate = run(method, sample, asked, default_rng(8))
    assert estimate.loss == method.loss(asked)
    assert estimate.coefficients.shape == (sample.d,)
    assert np.isfinite(estimate.coefficients).all()


@pytest.mark.parametrize("name", ["ops", "adaops", "objpert"])
def test_tail_bounded_methods_cost_half_their_squared_epsilon_and_their_delta(name: str) -> None:
    method = METHODS[name]
    asked = privacy(0.5, 1e-6, calibration=min(method.calibrations))
    assert method.loss(asked) == Loss.approximate(0.5, 1e-6)


def test_subsample_and_aggregate_costs_no_delta() -> None:
    assert METHODS["subagg"].loss(privacy(0.5, calibration=NoiseCalibration.PUBLISHED)) == Loss.approximate(0.5)


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda m: m.name)
def test_calibration_a_method_does_not_know_is_refused_before_and_at_the_run(
    method: ExactMethod | FloatingMethod,
) -> None:
    for calibration in set(NoiseCalibration) - method.calibrations:
        asked = privacy(calibration=calibration)
        with pytest.raises(ParameterError, match="calibration"):
            method.loss(asked)
        with pytest.raises(ParameterError, match="calibration"):
            run(method, linear_sample(default_rng(9)), asked, default_rng(9))


def test_constants_that_under_noise_in_the_papers_are_not_in_the_product() -> None:
    printed = {name for name, method in METHODS.items() if NoiseCalibration.PUBLISHED in method.calibrations}
    assert printed == {"objpert", "subagg"}


def test_loss_of_noisy_descent_is_that_of_opendps_accountant() -> None:
    steps = 50
    asked = privacy(1.0, 1e-5)
    enable_features("contrib")
    space = vector_domain(atom_domain(T="f64", nan=False)), l2_distance(T="f64")
    step = make_gaussian(*space, scale=gaussian_multiplier(asked, steps))
    theirs = steps * float(step.map(1.0))  # type: ignore[no-untyped-call] # OpenDP leaves its maps untyped
    ours = noisysgd_loss(asked, steps=steps)
    assert float(ours.rho) == pytest.approx(theirs, rel=1e-9)
    assert epsilon_of_rho(float(ours.rho), 1e-5) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("method", [objpert, noisysgd])
def test_coefficients_stay_in_the_ball_asked_for(method: Callable[..., Estimate]) -> None:
    sample = linear_sample(default_rng(10), n=50)
    calibration = NoiseCalibration.PUBLISHED if method is objpert else NoiseCalibration.ZCDP
    for seed in range(20):
        found = method(sample, privacy(0.1, calibration=calibration), default_rng(seed), radius=0.3)
        assert np.linalg.norm(found.coefficients) <= 0.3 * (1 + 1e-9)


def test_noise_of_a_seed_repeats_and_of_another_seed_does_not() -> None:
    sample = linear_sample(default_rng(11))
    for method, calibration in CASES:
        asked = privacy(calibration=calibration)
        one, same, other = (run(method, sample, asked, default_rng(seed)).coefficients for seed in (1, 1, 2))
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)


def test_blocks_without_rows_are_no_fault() -> None:
    sample = linear_sample(default_rng(12), n=5)
    estimate = subagg(sample, privacy(calibration=NoiseCalibration.PUBLISHED), default_rng(1), blocks=20)
    assert np.isfinite(estimate.coefficients).all()


SEEDS = st.integers(0, 2**32)


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


def test_minimiser_on_the_boundary_is_the_best_of_a_fine_circle() -> None:
    hessian, linear = np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([4.0, -5.0])
    angles = np.linspace(0, 2 * np.pi, 100_001)
    circle = np.array([np.cos(angles), np.sin(angles)])
    values = np.einsum("ik,ij,jk->k", circle, hessian, circle) / 2 - linear @ circle
    assert np.allclose(minimise_in_ball(hessian, linear, 1.0), circle[:, values.argmin()], atol=1e-4)


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
