"""The privacy loss of one posterior sample, by its exact curve (docs/proofs/regression.md, 4)."""

from math import log1p, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from commingle.party_agent.private.regression.posterior import (
    coefficient_bound,
    loss_tail,
    positive_root,
    proved_root,
    ridge_fit,
    sample_posterior,
)
from commingle.party_agent.private.regression.problem import Floats, Sample, clip_sample
from tests.party_agent.private.regression.cases import with_row

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
