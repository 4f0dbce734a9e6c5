"""Every method of the registry: without noise it is least squares, and it costs what it says."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import Generator, default_rng
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features

from commingle.party_agent.private.regression.calibration import (
    GAUSSIAN,
    NoiseCalibration,
    Privacy,
    gaussian_multiplier,
)
from commingle.party_agent.private.regression.floating import noisysgd, noisysgd_loss, objpert, subagg
from commingle.party_agent.private.regression.measuring import Exact, FloatingPoint
from commingle.party_agent.private.regression.methods import METHODS, ExactMethod, FloatingMethod
from commingle.party_agent.private.regression.posterior import ridge_fit
from commingle.party_agent.private.regression.problem import Estimate, Floats, Neighbours, Sample, on_grid
from commingle.shared.dp.accounting import Loss
from commingle.shared.dp.calibration import epsilon_of_rho
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.noise import rounded_gaussian
from tests.party_agent.private.regression.cases import linear_sample, privacy

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
@pytest.mark.parametrize("adjacency", Neighbours)
@pytest.mark.parametrize("calibration", sorted(GAUSSIAN))
def test_exact_noise_spends_what_was_debited_and_hardly_less(
    method: ExactMethod, adjacency: Neighbours, calibration: NoiseCalibration
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
@pytest.mark.parametrize("adjacency", Neighbours)
def test_run_costs_what_was_announced_before_any_row_was_read(
    method: ExactMethod | FloatingMethod, calibration: NoiseCalibration, adjacency: Neighbours
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
