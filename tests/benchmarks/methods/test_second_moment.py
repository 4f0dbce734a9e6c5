"""What benchmarks compare: DP-PMTOLSE and DP-OLSE with the paper's own distance."""

import json
from collections.abc import Callable
from math import log, sqrt
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.methods.second_moment import (
    TIGHT,
    TRIANGLE,
    Radii,
    dp_olse,
    dp_pmtolse,
    loss_of_both,
    noisy_cross_moment,
    noisy_second_moment,
    radii_from_public,
    radii_from_rows,
)
from commingle.party_agent.private.regression.measuring import Exact, FloatingPoint
from commingle.party_agent.private.regression.problem import Floats, Sample, clip_sample, on_grid
from commingle.party_agent.private.regression.public_moment import PublicMoments, tail, transform
from commingle.shared.dp.noise import rounded_gaussian
from tests.party_agent.private.regression.cases import PUBLIC, RHO, Recording, ill_conditioned

WINE = Path(__file__).parents[4] / "shared" / "data" / "winequality_white.parquet"
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
    radii = radii_from_rows(x, y)
    spread = log(2 * 300 / 0.05)
    assert radii.row**2 == pytest.approx(np.trace(x.T @ x / 300) + 10 * spread)
    assert radii.label**2 == pytest.approx(np.mean(y**2) + spread)
    noise = Recording()
    dp_olse(clip_sample(x, y, row_bound=radii.row, label_bound=radii.label), RHO, noise, distance=distance)
    expected = [factor * radii.row**2, 2 * radii.row * radii.label]
    np.testing.assert_allclose(noise.deviations, np.array(expected) / sqrt(2 * RHO), rtol=1e-12)


def test_radii_taken_from_the_rows_depend_on_them_and_public_ones_on_public_numbers() -> None:
    x, y, _ = ill_conditioned(300)
    assert radii_from_rows(2 * x, y).row > radii_from_rows(x, y).row
    assert radii_from_public(PUBLIC, 300) == Radii(
        sqrt(np.trace(PUBLIC.features) + 10 * (tail(300) - 1)), sqrt(PUBLIC.label + tail(300) - 1)
    )


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
    radii = radii_from_rows(x, y)
    for seed in range(20):
        noise = FloatingPoint(np.random.default_rng(seed))
        fit = dp_pmtolse(transform(x, y, PUBLIC, make=clip_sample), PUBLIC, 2.0, noise, distance=TRIANGLE)
        ours.append(np.linalg.norm(fit.coefficients - beta))
        plain = clip_sample(x, y, row_bound=radii.row, label_bound=radii.label)
        theirs.append(np.linalg.norm(dp_olse(plain, 2.0, noise, distance=TRIANGLE).coefficients - beta))
    assert np.median(ours) < 0.5 * np.median(theirs)


def errors_on_wine(*, row_norms: bool, ours: float, theirs: float) -> tuple[float, float]:
    """Median distance to least squares of DP-PMTOLSE at rho `ours` and of DP-OLSE at rho `theirs`, 20 repeats."""
    table = pq.read_table(WINE)
    entries = json.loads((WINE.parent / "datasets.json").read_text())["datasets"]
    entry = next(e for e in entries if e["file"] == WINE.name)
    rows = np.column_stack([table[c].to_numpy() for c in (*entry["feature_columns"], entry["target_column"])])
    rows = np.random.default_rng(0).permutation(rows.astype(np.float64))
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)  # reads all rows, as the paper does
    x, y = rows[:, :-1], rows[:, -1]
    if row_norms:
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    public, x, y = PublicMoments.of(x[:249], y[:249]), x[249:], y[249:]
    truth, radii, found = np.linalg.lstsq(x, y)[0], radii_from_rows(x, y), []
    moved, plain = (
        transform(x, y, public, make=clip_sample),
        clip_sample(x, y, row_bound=radii.row, label_bound=radii.label),
    )
    for seed in range(20):
        noise = FloatingPoint(np.random.default_rng(seed))
        fits = (
            dp_pmtolse(moved, public, ours, noise, distance=TRIANGLE),
            dp_olse(plain, theirs, noise, distance=TRIANGLE),
        )
        found.append([float(np.linalg.norm(fit.coefficients - truth) / np.linalg.norm(truth)) for fit in fits])
    first, second = np.median(found, axis=0).tolist()
    return first, second


@pytest.mark.skipif(not WINE.exists(), reason="winequality_white is not on this machine")
@pytest.mark.parametrize(("row_norms", "theirs"), [(True, 500.0), (False, 50.0)])
def test_on_wine_the_transform_does_with_a_small_part_of_the_budget(*, row_norms: bool, theirs: float) -> None:
    ours, baseline = errors_on_wine(row_norms=row_norms, ours=5.0, theirs=theirs)
    assert ours < baseline
