"""Releases with noise: what each estimator recovers, covers and warns about.

Where rows were whitened the noise has any covariance: what undoing that may and may not change.
"""

from typing import Literal

import numpy as np
import pytest
import scipy.linalg

from commingle.services.fit import ESTIMATORS, Fit, PreparedMoments, fit_prepared
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.estimation.system import build_system, centre
from commingle.shared.mechanisms.rows.fit import measure
from tests.shared.estimation.tables import Array, columns_of, make_table, moments_of, noiseless, require_said, rmgm

TABLE = make_table(40_000)
TRUTH = fit_prepared(PreparedMoments.of(noiseless(TABLE), TABLE.schema), "pressure").coefficients
BURIED = rmgm(TABLE, k=60, noise=5e4)
AB = columns_of("abcdy")
SMALLER = make_table(20_000)
SCHEMA = SMALLER.schema
S = SMALLER.encoded.T @ SMALLER.encoded
P = 7
RNG = np.random.default_rng(3)
# encoded = T @ published: parties (age, dose), (sex, site) and (pressure), each about its own centre
T = scipy.linalg.block_diag([1.0], RNG.normal(size=(2, 2)), RNG.normal(size=(3, 3)) + 2 * np.eye(3), [0.3])
T[1:, 0] = RNG.uniform(-0.3, 0.3, P - 1)
# the same, but one party holds age, dose and the label: their noise is shared
SHARED = np.eye(P)
SHARED[np.ix_([1, 2, 6], [1, 2, 6])] = [[0.5, 0.1, 0.2], [0.1, 0.6, -0.1], [0.2, 0.3, 0.4]]


def test_debiased_recovers_the_coefficients_that_ols_attenuates() -> None:
    # age has variance 1/3 in encoded units, so 40000/1500/3 = 8.9 a row of the release, beside noise of variance 4
    moments = rmgm(TABLE, 1500, 4.0)
    debiased = fit_prepared(PreparedMoments.of(moments, TABLE.schema), "pressure", estimator="debiased")
    ols = fit_prepared(PreparedMoments.of(moments, TABLE.schema), "pressure", estimator="ols")
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
        low, high = fit_prepared(prepared, "y", estimator=estimator, interval_for="table").intervals.T
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
        low, high = fit_prepared(PreparedMoments.of(moments, AB), "y", interval_for=interval_for).intervals.T
        held.append((low < truth) & (truth < high))
    rate = np.mean(held, axis=0)
    assert rate.min() > 0.915
    assert 0.93 < rate.mean() < 0.98


def test_rmgm_population_intervals_are_wider_than_those_for_the_table() -> None:
    moments = rmgm(TABLE, 1500, 1.0)
    table = fit_prepared(PreparedMoments.of(moments, TABLE.schema), "pressure", interval_for="table")
    population = fit_prepared(PreparedMoments.of(moments, TABLE.schema), "pressure", interval_for="population")
    assert (population.standard_errors > table.standard_errors).all()


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_expected_r_squared_is_right_on_average(estimator: str) -> None:
    n, k, noise = 100_000, 200, 15.0
    S, _ = correlated_moments(n, 0.05)
    expected, actual = [], []
    centred = S - np.outer(S[0], S[0]) / S[0, 0]
    for gram in gaussian_grams(S, k, noise, 400, seed=8):
        result = fit_prepared(
            PreparedMoments.of(moments_of(gram, AB, noise=noise, rows=k, n=n), AB), "y", estimator=estimator
        )
        b = np.zeros(5)
        b[: len(result.coefficients)] = result.coefficients
        c = np.append(-b, 1.0)
        assert result.diagnostics.r_squared is not None
        expected.append(result.diagnostics.r_squared)
        actual.append(1 - c @ S @ c / centred[5, 5])
    assert np.mean(expected) == pytest.approx(np.mean(actual), abs=0.015)


@pytest.mark.parametrize("estimator", ["shrunken", "adaptive_ridge"])
def test_damped_estimators_stay_near_the_mean_where_ols_does_not(estimator: str) -> None:
    damped = fit_prepared(PreparedMoments.of(BURIED, TABLE.schema), "pressure", estimator=estimator)
    plain = fit_prepared(PreparedMoments.of(BURIED, TABLE.schema), "pressure", estimator="ols")
    slopes = np.array([40.0, 2.5, 0.5, 1.0, 1.0]) / 100
    assert np.linalg.norm(damped.coefficients[1:] * slopes) < np.linalg.norm(plain.coefficients[1:] * slopes)


HELPS = rmgm(TABLE, 1500, 0.5)
NOTHING = "cannot be told from predicting the mean"


@pytest.mark.parametrize(
    ("moments", "estimator", "interval_for", "said"),
    [
        (BURIED, "measurement_error", "table", [NOTHING, "hardly any signal"]),
        (BURIED, "debiased", "none", [NOTHING, "mean nothing"]),
        (BURIED, "ols", "release", [NOTHING, "do not cover the coefficients of the private table"]),
        (BURIED, "shrunken", "none", [NOTHING]),
        (BURIED, "adaptive_ridge", "none", [NOTHING]),
        (HELPS, "measurement_error", "table", []),
        (HELPS, "ols", "release", ["do not cover the coefficients of the private table"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fit_says_what_noise_does_to_it_and_withholds_errors_that_mean_nothing(
    moments: SecondMoments, estimator: str, interval_for: str, said: list[str]
) -> None:
    prepared = PreparedMoments.of(moments, TABLE.schema)
    result = fit_prepared(prepared, "pressure", estimator=estimator, interval_for="table")
    require_said(result, interval_for, said)
    assert result.diagnostics.root is not None
    assert moments is HELPS or result.diagnostics.root < 1.3


def test_measurement_error_without_intercept_recovers_the_slopes_of_a_model_through_the_origin() -> None:
    table = TABLE
    design = table.original[:, 1:]
    truth = np.linalg.lstsq(design[:, :-1], design[:, -1], rcond=None)[0]
    result = fit_prepared(PreparedMoments.of(HELPS, table.schema), "pressure", intercept=False)
    assert (np.abs(result.coefficients - truth) < 4 * result.standard_errors).all()
    np.testing.assert_allclose(result.coefficients[0], truth[0], rtol=0.2)


def whitened(k: int, noise: float, transform: Array, *, seed: int = 1) -> PreparedMoments:
    """A release whose whitened columns T^-1 x got equal noise, undone."""
    rng, back = np.random.default_rng(seed), np.linalg.inv(transform)
    sketch = rng.normal(size=(k, P)) @ np.linalg.cholesky(back @ S @ back.T / k).T
    sketch[:, 1:] += rng.normal(0, np.sqrt(noise), (k, P - 1))
    return prepared_of(sketch.T @ sketch, k, noise).map_columns(transform)


def prepared_of(gram: Array, k: int, noise: float) -> PreparedMoments:
    return PreparedMoments.of(moments_of(gram, SCHEMA, noise=noise, rows=k, n=20_000), SCHEMA)


def fitted(prepared: PreparedMoments, estimator: str = "measurement_error", **options: object) -> Fit:
    return fit_prepared(prepared, "pressure", estimator=estimator, **options)  # type: ignore[arg-type] # by name


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("estimator", sorted(set(ESTIMATORS) - {"constant"}))
@pytest.mark.parametrize("transform", [T, SHARED], ids=["by party", "with the label"])
def test_without_noise_every_estimator_is_what_it_is_unwhitened(
    estimator: str, transform: Array, intercept: bool
) -> None:
    plain = PreparedMoments.of(noiseless(SMALLER), SCHEMA)
    published = plain.map_columns(np.asarray(np.linalg.inv(transform), np.float64))
    there_and_back = published.map_columns(transform)
    np.testing.assert_allclose(
        fitted(there_and_back, estimator, intercept=intercept).coefficients,
        fitted(plain, estimator, intercept=intercept).coefficients,
        rtol=1e-8,
    )


@pytest.mark.parametrize("transform", [T, SHARED], ids=["by party", "with the label"])
def test_root_is_the_smallest_generalised_eigenvalue_over_the_noise_covariance(transform: Array) -> None:
    prepared = whitened(400, 3.0, transform)
    system = build_system(prepared, 6, (1, 2, 3, 4, 5), intercept=True)
    found, c = measure(system), centre(system)
    joint = np.block([[c.X, c.g[:, None]], [c.g[None], np.array([[c.yy]])]])
    V = prepared.V[1:, 1:]
    assert found.root == pytest.approx(scipy.linalg.eigh(joint, V, eigvals_only=True)[0] / 400, rel=1e-9)
    expected = scipy.linalg.eigh(c.X, c.V, eigvals_only=True)[0] / 399
    assert found.feature_root == pytest.approx(expected, rel=1e-9)


def test_measurement_error_of_a_noisy_release_does_not_depend_on_the_basis_of_the_features() -> None:
    # S, G and V in another basis of (age, dose): slopes must follow the basis, errors with them
    prepared, turn = whitened(400, 3.0, T), np.eye(P)
    turn[1:3, 1:3] = [[1.0, 0.7], [-0.4, 1.0]]
    turned = prepared.map_columns(turn)
    a, b = fitted(prepared), fitted(turned)
    scale = np.array([40.0, 2.5])  # encoded units of age and dose
    slopes = turn[1:3, 1:3].T @ (b.coefficients[1:3] * scale)
    np.testing.assert_allclose(slopes / scale, a.coefficients[1:3], rtol=1e-9)
    np.testing.assert_allclose(b.coefficients[3:], a.coefficients[3:], rtol=1e-9)
    np.testing.assert_allclose(b.standard_errors[3:], a.standard_errors[3:], rtol=1e-9)


def test_measurement_error_with_shared_noise_does_not_depend_on_a_shift_of_the_label_by_a_feature() -> None:
    # y' = y + 0.5 age: the coefficient of age grows by exactly that, nothing else moves
    prepared, shift = whitened(400, 3.0, SHARED), np.eye(P)
    shift[6, 1] = 0.5
    a, b = fitted(prepared), fitted(prepared.map_columns(shift))
    change = np.zeros(6)
    change[1] = 0.5 * 100 / 40  # in original units of pressure per year
    change[0] = -change[1] * 58
    np.testing.assert_allclose(b.coefficients - a.coefficients, change, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(b.covariance, a.covariance, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("estimator", ["measurement_error", "debiased"])
@pytest.mark.parametrize("transform", [T, SHARED], ids=["by party", "with the label"])
def test_intervals_of_whitened_releases_cover_at_the_stated_rate(estimator: str, transform: Array) -> None:
    truth = fitted(PreparedMoments.of(noiseless(SMALLER), SCHEMA)).coefficients
    held = []
    for seed in range(400):
        low, high = fitted(whitened(400, 0.5, transform, seed=seed), estimator).intervals.T
        held.append((low < truth) & (truth < high))
    # 400 repeats at 0.95: standard error 0.011
    assert (np.abs(np.mean(held, axis=0) - 0.95) < 0.045).all()


@pytest.mark.parametrize("transform", [np.eye(P), SHARED], ids=["plain", "noise shared with the label"])
def test_noise_alone_is_taken_for_signal_at_the_stated_rate(transform: Array) -> None:
    rejected = []
    for seed in range(1000):
        sketch = np.random.default_rng(seed).normal(size=(200, P))
        prepared = prepared_of(sketch.T @ sketch, 200, 1.0).map_columns(transform)
        signal = measure(build_system(prepared, 6, (1, 2, 3, 4, 5), intercept=True))
        rejected.append(signal.f_p_value < 0.05)
    # 1000 repeats at 0.05: standard error 0.007
    assert 0.03 < np.mean(rejected) < 0.075


def test_damped_fit_of_shared_noise_alone_shrinks_towards_nothing() -> None:
    # the noise of label and features alone has slopes of about 0.5; plain least squares takes them for signal
    prepared = whitened(300, 1e5, SHARED)
    plain, damped, shrunken = (fitted(prepared, e).coefficients[1:3] for e in ("ols", "adaptive_ridge", "shrunken"))
    assert np.abs(damped).max() < 0.25 * np.abs(plain).max()
    assert np.abs(shrunken).max() < 0.25 * np.abs(plain).max()
