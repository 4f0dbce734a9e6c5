"""Moments whose noise has any covariance: what undoing a whitening may and may not change."""

import numpy as np
import pytest
import scipy.linalg
from scipy.special import fdtri

from commingle.services.fit import ESTIMATORS, Fit, FitRequest, PreparedMoments, fit_prepared
from commingle.shared.estimation.system import build_system, centre
from commingle.shared.mechanisms.rows.signal import measure
from tests.shared.estimation.tables import Array, make_table, moments_of, noiseless

TABLE = make_table(20_000)
SCHEMA = TABLE.schema
S = TABLE.encoded.T @ TABLE.encoded
P = 7
RNG = np.random.default_rng(3)
# encoded = T @ published: parties (age, dose), (sex, site) and (pressure), each about its own centre
T = scipy.linalg.block_diag([1.0], RNG.normal(size=(2, 2)), RNG.normal(size=(3, 3)) + 2 * np.eye(3), [0.3])
T[1:, 0] = RNG.uniform(-0.3, 0.3, P - 1)
# the same, but one party holds age, dose and the label: their noise is shared
SHARED = np.eye(P)
SHARED[np.ix_([1, 2, 6], [1, 2, 6])] = [[0.5, 0.1, 0.2], [0.1, 0.6, -0.1], [0.2, 0.3, 0.4]]


def whitened(k: int, noise: float, transform: Array, *, seed: int = 1) -> PreparedMoments:
    """A release whose whitened columns T^-1 x got equal noise, undone."""
    rng, back = np.random.default_rng(seed), np.linalg.inv(transform)
    sketch = rng.normal(size=(k, P)) @ np.linalg.cholesky(back @ S @ back.T / k).T
    sketch[:, 1:] += rng.normal(0, np.sqrt(noise), (k, P - 1))
    return prepared_of(sketch.T @ sketch, k, noise).map_columns(transform)


def prepared_of(gram: Array, k: int, noise: float) -> PreparedMoments:
    return PreparedMoments.of(moments_of(gram, SCHEMA, noise=noise, rows=k, n=20_000), SCHEMA)


def fitted(prepared: PreparedMoments, estimator: str = "measurement_error", **options: object) -> Fit:
    return fit_prepared(prepared, FitRequest(target="pressure", estimator=estimator, **options))  # type: ignore[arg-type] # by name


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("estimator", sorted(set(ESTIMATORS) - {"constant"}))
@pytest.mark.parametrize("transform", [T, SHARED], ids=["by party", "with the label"])
def test_without_noise_every_estimator_is_what_it_is_unwhitened(
    estimator: str, transform: Array, intercept: bool
) -> None:
    plain = PreparedMoments.of(noiseless(TABLE), SCHEMA)
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
    truth = fitted(PreparedMoments.of(noiseless(TABLE), SCHEMA)).coefficients
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
        rejected.append(signal.f_statistic > fdtri(5, signal.f_degrees, 0.95))
    # 1000 repeats at 0.05: standard error 0.007
    assert 0.03 < np.mean(rejected) < 0.075


def test_damped_fit_of_shared_noise_alone_shrinks_towards_nothing() -> None:
    # the noise of label and features alone has slopes of about 0.5; plain least squares takes them for signal
    prepared = whitened(300, 1e5, SHARED)
    plain, damped, shrunken = (fitted(prepared, e).coefficients[1:3] for e in ("ols", "adaptive_ridge", "shrunken"))
    assert np.abs(damped).max() < 0.25 * np.abs(plain).max()
    assert np.abs(shrunken).max() < 0.25 * np.abs(plain).max()
