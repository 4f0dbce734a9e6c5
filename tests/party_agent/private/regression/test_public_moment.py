"""Section D, what users are offered: DP-PMTOLSE and the public moment transform."""

from collections.abc import Callable
from math import log, nan, sqrt

import numpy as np
import pytest

from commingle.party_agent.private.regression.measuring import Exact
from commingle.party_agent.private.regression.problem import Floats, Sample, clip_sample, on_grid
from commingle.party_agent.private.regression.public_moment import (
    PublicMoments,
    dp_pmtolse,
    dp_pmtolse_loss,
    noisy_cross_moment,
    noisy_second_moment,
    tail,
    transform,
)
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.noise import rounded_gaussian
from tests.party_agent.private.regression.public_cases import PUBLIC, RHO, Recorded, ill_conditioned


def test_noise_scales_are_those_of_the_paper_but_for_its_triangle_inequality() -> None:
    x, y, _ = ill_conditioned(300)
    n, d, t = 300, 10, 1 + log(2 * 300 / 0.05)
    noise = Recorded()
    dp_pmtolse(transform(x, y, PUBLIC, make=clip_sample), PUBLIC, RHO, noise)
    sd1, sd2 = sqrt(2) * d * t / (sqrt(2 * RHO) * n), 2 * sqrt(d) * t / (sqrt(2 * RHO) * n)
    np.testing.assert_allclose(np.array(noise.deviations) / n, [sd1, sd2], rtol=1e-12)
    assert noise.symmetric == [True, False]


STATISTICS: list[Callable[[Sample, Recorded], Floats]] = [
    lambda sample, noise: noisy_second_moment(sample, RHO, noise) * sample.n,
    lambda sample, noise: noisy_cross_moment(sample, RHO, noise) * sample.n,
]


@pytest.mark.parametrize("make", [clip_sample, on_grid])
@pytest.mark.parametrize("statistic", STATISTICS, ids=["second moment", "cross moment"])
def test_no_replaced_row_moves_a_sum_farther_than_its_sensitivity(
    statistic: Callable[[Sample, Recorded], Floats], make: Callable[..., Sample]
) -> None:
    draw, noise = np.random.default_rng(0), Recorded()
    public = PublicMoments(np.diag([4.0, 0.01]), 0.25)
    farthest = 0.0
    for _ in range(400):
        # lengths from far within to far beyond the radius, directions at right angles or the same more often than not
        x = draw.normal(size=(3, 2)) * 10 ** draw.uniform(-2, 3, (3, 1))
        if draw.random() < 0.5:
            x[1] = draw.choice([-1, 1]) * x[0] @ draw.choice([np.eye(2), np.array([[0, 0.05], [-20.0, 0]])])
        y = draw.choice([-1, 1], 3) * 10 ** draw.uniform(-2, 3, 3)
        one, other = [0, 2], [1, 2]
        a, b = (transform(x[i], y[i], public, make=make) for i in (one, other))
        farthest = max(farthest, float(np.linalg.norm(statistic(a, noise) - statistic(b, noise))))
    bound = noise.sensitivities[0]
    assert farthest <= bound * (1 + 1e-12)
    assert farthest / bound > 0.99


@pytest.mark.parametrize("power", [-0.5, 0.5])
def test_root_is_symmetric_and_its_square_the_moment_or_its_inverse(power: float) -> None:
    root = PUBLIC.root(power)
    np.testing.assert_allclose(root, root.T, atol=1e-12)
    expected = PUBLIC.features if power > 0 else np.linalg.inv(PUBLIC.features)
    np.testing.assert_allclose(root @ root, expected, rtol=1e-8, atol=1e-10)


def test_public_rows_are_transformed_to_the_identity() -> None:
    x, y, _ = ill_conditioned(500, seed=1)
    sample = transform(x, y, PUBLIC, make=clip_sample)
    np.testing.assert_allclose(sample.x.T @ sample.x / 500, np.eye(10), atol=1e-8)
    assert np.mean(sample.y**2) == pytest.approx(1)


def test_without_noise_the_coefficients_are_least_squares() -> None:
    x, y, _ = ill_conditioned(2000)
    truth = np.linalg.lstsq(x, y)[0]
    sample = transform(x, y, PUBLIC, make=clip_sample, eta=1e-12)  # so far out that nobody is clipped
    np.testing.assert_allclose(dp_pmtolse(sample, PUBLIC, RHO, Recorded()).coefficients, truth, rtol=1e-8)


def test_exact_noise_costs_no_more_than_was_said_before() -> None:
    x, y, _ = ill_conditioned(400)
    measure, said = Exact(rounded_gaussian), dp_pmtolse_loss(RHO)
    assert dp_pmtolse(transform(x, y, PUBLIC, make=on_grid), PUBLIC, RHO, measure).loss == said
    assert said.delta == 0
    assert measure.spent <= said.rho
    assert float(said.rho) == pytest.approx(2 * RHO, rel=1e-9)


@pytest.mark.parametrize("eta", [0.0, 1.0, nan])
def test_eta_outside_its_domain_is_refused(eta: float) -> None:
    with pytest.raises(ParameterError, match="eta"):
        tail(10, eta)


@pytest.mark.parametrize("features", [np.zeros((2, 2)), np.ones((2, 2)), np.array([[1.0, nan], [nan, 1.0]])])
def test_public_moments_that_cannot_be_inverted_are_refused(features: Floats) -> None:
    with pytest.raises(ParameterError, match="positive definite"):
        PublicMoments(features - 1e-9 * np.eye(2), 1.0)
