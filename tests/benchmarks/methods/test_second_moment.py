"""What benchmarks compare: DP-PMTOLSE and DP-OLSE with the paper's own distance."""

from collections.abc import Callable
from math import log, sqrt

import numpy as np
import pytest

from benchmarks.methods import (
    TIGHT,
    TRIANGLE,
    clipped,
    dp_olse,
    dp_pmtolse,
    loss_of_both,
    noisy_cross_moment,
    noisy_second_moment,
)
from benchmarks.public_moment import fitted, wine, wine_table
from benchmarks.tables import DATA
from commingle.party_agent.private.regression.measuring import Exact, FloatingPoint
from commingle.party_agent.private.regression.problem import Floats, Sample, clip_sample, on_grid
from commingle.party_agent.private.regression.sums import PublicMoments, transform
from commingle.shared.dp.noise import rounded_gaussian
from tests.party_agent.private.regression.cases import PUBLIC, RHO, Recording, ill_conditioned

FACTORS = pytest.mark.parametrize(("distance", "factor"), [(TRIANGLE, 2.0), (TIGHT, sqrt(2))])


@FACTORS
def test_noise_scales_are_those_of_the_paper(distance: float, factor: float) -> None:
    x, y, _ = ill_conditioned(300)
    n, d, t = 300, 10, 1 + log(2 * 300 / 0.05)
    noise = Recording()
    sample = transform(x, y, PUBLIC, make=clip_sample)
    dp_pmtolse(sample, PUBLIC, RHO, noise, distance=distance)
    sd1, sd2 = factor * d * t / (sqrt(2 * RHO) * n), 2 * sqrt(d) * t / (sqrt(2 * RHO) * n)
    np.testing.assert_allclose(np.array(noise.deviations) / n, [sd1, sd2], rtol=1e-12)
    assert noise.symmetric == [False, False]  # as large beside the diagonal as on it
    assert noise.entries == [55, 10]


STATISTICS: list[Callable[[Sample, Recording], Floats]] = [
    lambda sample, noise: noisy_second_moment(sample, RHO, noise) * sample.n,
    lambda sample, noise: noisy_cross_moment(sample, RHO, noise) * sample.n,
]


@pytest.mark.parametrize("make", [clip_sample, on_grid])
@pytest.mark.parametrize("statistic", STATISTICS, ids=["second moment", "cross moment"])
def test_no_replaced_row_moves_a_sum_farther_than_its_sensitivity(
    statistic: Callable[[Sample, Recording], Floats], make: Callable[..., Sample]
) -> None:
    draw, noise = np.random.default_rng(0), Recording()
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


@FACTORS
def test_baselines_noise_has_the_scales_of_its_radii(distance: float, factor: float) -> None:
    x, y, _ = ill_conditioned(300)
    spread, noise = log(2 * 300 / 0.05), Recording()
    for moments in (PublicMoments.of(x, y), PUBLIC):
        bounded = clipped(x, y, moments)
        assert bounded.row_bound**2 == pytest.approx(np.trace(moments.features) + 10 * spread)
        assert bounded.label_bound**2 == pytest.approx(moments.label + spread)
    dp_olse(bounded, RHO, noise, distance=distance)
    expected = [factor * bounded.row_bound**2, 2 * bounded.row_bound * bounded.label_bound]
    np.testing.assert_allclose(noise.deviations, np.array(expected) / sqrt(2 * RHO), rtol=1e-12)


def test_without_noise_the_baseline_is_least_squares() -> None:
    x, y, _ = ill_conditioned(2000)
    plain = clip_sample(x, y, row_bound=100.0, label_bound=100.0)
    np.testing.assert_allclose(dp_olse(plain, RHO, Recording()).coefficients, np.linalg.lstsq(x, y)[0], rtol=1e-8)


def test_exact_noise_costs_no_more_than_was_said_before() -> None:
    x, y, _ = ill_conditioned(400)
    sample, noise = transform(x, y, PUBLIC, make=on_grid), Exact(rounded_gaussian)
    said = loss_of_both(RHO)
    dp_olse(sample, RHO, noise)
    assert said.delta == 0
    assert noise.spent <= said.rho
    assert float(said.rho) == pytest.approx(2 * RHO, rel=1e-9)


def test_transform_beats_the_baseline_on_ill_conditioned_rows() -> None:
    x, y, beta = ill_conditioned(10_000)
    ours, theirs = [], []
    plain = clipped(x, y, PublicMoments.of(x, y))
    for seed in range(20):
        noise = FloatingPoint(np.random.default_rng(seed))
        fit = dp_pmtolse(transform(x, y, PUBLIC, make=clip_sample), PUBLIC, 2.0, noise, distance=TRIANGLE)
        ours.append(np.linalg.norm(fit.coefficients - beta))
        theirs.append(np.linalg.norm(dp_olse(plain, 2.0, noise, distance=TRIANGLE).coefficients - beta))
    assert np.median(ours) < 0.5 * np.median(theirs)


WINE = wine_table(DATA)


@pytest.mark.skipif(WINE is None, reason="winequality_white is not on this machine")
@pytest.mark.parametrize(("row_norm", "theirs"), [(True, 500.0), (False, 50.0)])
def test_on_wine_the_transform_does_with_a_small_part_of_the_budget(*, row_norm: bool, theirs: float) -> None:
    assert WINE is not None
    rows, found = wine(WINE, np.random.default_rng(0), row_norm=row_norm), []
    for seed in range(20):
        fits = fitted(rows, (5.0, theirs), np.random.default_rng(seed), baseline=True)
        pair = (fits["DP-PMTOLSE, published", 5.0], fits["DP-OLSE, private radii", theirs])
        found.append([np.linalg.norm(coefficients - rows.truth) for coefficients in pair])
    ours, baseline = np.median(found, axis=0)
    assert ours < baseline
