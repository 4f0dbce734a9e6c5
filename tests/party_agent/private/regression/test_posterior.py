"""The privacy loss of a posterior sample by its exact curve; and all that AdaOPS publishes, by quadrature over draws.

docs/proofs/regression.md, 4 and 4.5.
"""

from collections.abc import Iterator
from math import log, log1p, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from commingle.party_agent.private.regression.measuring import Measure, NoiseCalibration, Parts
from commingle.party_agent.private.regression.posterior import (
    adaops,
    coefficient_bound,
    floor_sensitivity,
    loss_tail,
    noisy_floor,
    positive_root,
    proved_constants,
    proved_root,
    ridge_fit,
    sample_posterior,
)
from commingle.party_agent.private.regression.problem import Floats, Sample, clip_sample
from tests.party_agent.private.regression.cases import linear_sample, privacy, with_row

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
