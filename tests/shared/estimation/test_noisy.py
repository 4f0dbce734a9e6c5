"""Releases with noise: what each estimator recovers, covers and warns about."""

from typing import Literal

import numpy as np
import pytest

from commingle.services.fit import ESTIMATORS, FitRequest, PreparedMoments, fit, fit_prepared
from commingle.shared.documents.schema import NumericAttribute
from tests.shared.estimation.tables import Array, make_table, moments_of, noiseless, rmgm

TABLE = make_table(40_000)
TRUTH = fit(noiseless(TABLE), TABLE.schema, FitRequest(target="pressure")).coefficients
BURIED = rmgm(TABLE, k=60, noise=5e4)
AB: tuple[NumericAttribute, ...] = tuple(NumericAttribute(name=c, lower=-1.0, upper=1.0) for c in "abcdy")


def test_debiased_recovers_the_coefficients_that_ols_attenuates() -> None:
    # age has variance 1/3 in encoded units, so 40000/1500/3 = 8.9 a row of the release, beside noise of variance 4
    moments = rmgm(TABLE, 1500, 4.0)
    debiased = fit(moments, TABLE.schema, FitRequest(target="pressure", estimator="debiased"))
    ols = fit(moments, TABLE.schema, FitRequest(target="pressure", estimator="ols"))
    assert debiased.coefficients[1] == pytest.approx(TRUTH[1], rel=0.1)
    assert (np.abs(debiased.coefficients - TRUTH) < 4 * debiased.standard_errors).all()
    assert ols.coefficients[1] == pytest.approx(TRUTH[1] * 8.9 / 12.9, rel=0.1)


def gaussian_grams(S: Array, k: int, noise: float, count: int, seed: int) -> Array:
    """G of `count` releases whose k rows are draws of N(0, S/k + V), the intercept first and noiseless."""
    rng = np.random.default_rng(seed)
    V = np.diag([0.0, *[noise] * (len(S) - 1)])
    P = rng.normal(size=(count, k, len(S))) @ np.linalg.cholesky(S / k + V).T
    return np.asarray(P.transpose(0, 2, 1) @ P)


def correlated_moments(n: int, residual_variance: float) -> tuple[Array, Array]:
    """S of n rows (1, a, b, c, d, y) and the coefficients of y on the others."""
    x = np.eye(5) * 0.1
    x[1, 2] = x[2, 1] = 0.06
    x[0, 0], x[0, 1:], x[1:, 0] = 1.0, 0.2, 0.2
    x[1:, 1:] += 0.04
    b = np.array([0.1, 0.5, -0.3, 0.2, 0.0])
    y = b @ x @ b + residual_variance
    S: Array = n * np.block([[x, (x @ b)[:, None]], [(x @ b)[None], np.array([[y]])]])
    return S, b


def coverage(estimator: str, truth: Array, grams: Array, *, k: int, noise: float, n: int) -> Array:
    """Share of 95 % intervals, per term, that hold the truth."""
    held = []
    for gram in grams:
        prepared = PreparedMoments.of(moments_of(gram, AB, noise=noise, rows=k, n=n), AB)
        low, high = fit_prepared(prepared, FitRequest(target="y", estimator=estimator)).intervals.T
        held.append((low < truth) & (truth < high))
    return np.asarray(np.mean(held, axis=0))


@pytest.mark.parametrize("estimator", ["measurement_error", "debiased"])
@pytest.mark.parametrize("noise", [2.0, 8.0])
def test_intervals_around_the_table_cover_at_the_stated_rate(estimator: str, noise: float) -> None:
    n, k = 100_000, 300
    S, b = correlated_moments(n, 0.05)
    rate = coverage(estimator, b, gaussian_grams(S, k, noise, 600, seed=5), k=k, noise=noise, n=n)
    # 600 repetitions at 0.95: standard error 0.009 per term, 0.004 for the mean of five
    assert rate.min() > 0.92
    assert 0.935 < rate.mean() < 0.975


def test_ols_intervals_cover_the_attenuated_coefficients_and_not_those_of_the_table() -> None:
    n, k, noise = 100_000, 300, 8.0
    S, b = correlated_moments(n, 0.05)
    grams = gaussian_grams(S, k, noise, 400, seed=6)
    noisy = S[:5, :5] + k * noise * np.diag([0.0, 1, 1, 1, 1]) + 1e-5 * n * np.eye(5)
    attenuated = np.asarray(np.linalg.solve(noisy, S[:5, 5]), dtype=np.float64)
    assert coverage("ols", attenuated, grams, k=k, noise=noise, n=n).min() > 0.92
    assert coverage("ols", b, grams, k=k, noise=noise, n=n)[2] < 0.8


@pytest.mark.parametrize("interval_for", ["table", "population"])
def test_dgm_intervals_cover_what_they_are_for(interval_for: Literal["table", "population"]) -> None:
    # few rows and little noise: the two differ most where the rows themselves are a small sample
    n, noise, repeats = 300, 0.05, 500
    rng = np.random.default_rng(7)
    S, b = correlated_moments(1, 0.05)
    held = []
    for _ in range(repeats):
        A = rng.normal(size=(n, 6)) @ np.linalg.cholesky(S).T
        A[:, 0] = 1.0
        A[:, 5] = A[:, :5] @ b + rng.normal(0, np.sqrt(0.05), n)
        P = A.copy()
        P[:, 1:] += rng.normal(0, np.sqrt(noise), (n, 5))
        moments = moments_of(P.T @ P, AB, noise=noise, rows=n, n=n, mechanism="dgm")
        truth = b if interval_for == "population" else np.linalg.lstsq(A[:, :5], A[:, 5], rcond=None)[0]
        low, high = fit(moments, AB, FitRequest(target="y", interval_for=interval_for)).intervals.T
        held.append((low < truth) & (truth < high))
    rate = np.mean(held, axis=0)
    assert rate.min() > 0.915
    assert 0.93 < rate.mean() < 0.98


def test_rmgm_population_intervals_are_wider_than_those_for_the_table() -> None:
    moments = rmgm(TABLE, 1500, 1.0)
    table = fit(moments, TABLE.schema, FitRequest(target="pressure"))
    population = fit(moments, TABLE.schema, FitRequest(target="pressure", interval_for="population"))
    assert (population.standard_errors > table.standard_errors).all()


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_expected_r_squared_is_right_on_average(estimator: str) -> None:
    n, k, noise = 100_000, 200, 15.0
    S, _ = correlated_moments(n, 0.05)
    expected, actual = [], []
    centred = S - np.outer(S[0], S[0]) / S[0, 0]
    for gram in gaussian_grams(S, k, noise, 400, seed=8):
        result = fit(moments_of(gram, AB, noise=noise, rows=k, n=n), AB, FitRequest(target="y", estimator=estimator))
        b = np.zeros(5)
        b[: len(result.coefficients)] = result.coefficients
        c = np.append(-b, 1.0)
        assert result.diagnostics.r_squared is not None
        expected.append(result.diagnostics.r_squared)
        actual.append(1 - c @ S @ c / centred[5, 5])
    assert np.mean(expected) == pytest.approx(np.mean(actual), abs=0.015)


@pytest.mark.parametrize("estimator", ["shrunken", "adaptive_ridge"])
def test_damped_estimators_stay_near_the_mean_where_ols_does_not(estimator: str) -> None:
    damped = fit(BURIED, TABLE.schema, FitRequest(target="pressure", estimator=estimator))
    plain = fit(BURIED, TABLE.schema, FitRequest(target="pressure", estimator="ols"))
    slopes = np.array([40.0, 2.5, 0.5, 1.0, 1.0]) / 100
    assert np.linalg.norm(damped.coefficients[1:] * slopes) < np.linalg.norm(plain.coefficients[1:] * slopes)
    assert np.isnan(damped.standard_errors).all()
    assert damped.interval_for == "none"


@pytest.mark.parametrize("estimator", sorted(set(ESTIMATORS) - {"constant"}))
def test_fit_without_signal_warns_that_it_is_no_better_than_the_mean(estimator: str) -> None:
    warnings = fit(BURIED, TABLE.schema, FitRequest(target="pressure", estimator=estimator)).warnings
    assert any("cannot be told from predicting the mean" in warning for warning in warnings)


def test_measurement_error_near_the_noise_floor_warns() -> None:
    result = fit(BURIED, TABLE.schema, FitRequest(target="pressure"))
    assert result.diagnostics.root is not None
    assert result.diagnostics.root < 1.3
    assert any("hardly any signal" in warning for warning in result.warnings)


def test_measurement_error_with_signal_does_not_warn() -> None:
    assert fit(rmgm(TABLE, 1500, 0.5), TABLE.schema, FitRequest(target="pressure")).warnings == ()


def test_ols_on_noise_says_that_its_intervals_do_not_cover_the_table() -> None:
    result = fit(rmgm(TABLE, 1500, 0.5), TABLE.schema, FitRequest(target="pressure", estimator="ols"))
    assert result.interval_for == "release"
    assert any("do not cover the coefficients of the private table" in warning for warning in result.warnings)


def test_debiased_beyond_the_noise_floor_withholds_standard_errors() -> None:
    result = fit(BURIED, TABLE.schema, FitRequest(target="pressure", estimator="debiased"))
    assert result.interval_for == "none"
    assert np.isnan(result.standard_errors).all()
    assert any("mean nothing" in warning for warning in result.warnings)


def test_measurement_error_without_intercept_recovers_the_slopes_of_a_model_through_the_origin() -> None:
    table = TABLE
    design = table.original[:, 1:]
    truth = np.linalg.lstsq(design[:, :-1], design[:, -1], rcond=None)[0]
    result = fit(rmgm(table, 1500, 0.5), table.schema, FitRequest(target="pressure", intercept=False))
    assert (np.abs(result.coefficients - truth) < 4 * result.standard_errors).all()
    np.testing.assert_allclose(result.coefficients[0], truth[0], rtol=0.2)
