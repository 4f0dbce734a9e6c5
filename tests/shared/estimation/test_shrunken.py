"""The default for prediction: close to the best estimator with signal, to the mean or better without."""

import numpy as np
import pytest

from commingle.services.fit import ESTIMATORS, FitRequest, PreparedMoments, fit, fit_prepared
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.estimation.system import build_system
from commingle.shared.mechanisms.rows import shrunken
from commingle.shared.mechanisms.rows.belief import Belief, shrinkage
from commingle.shared.mechanisms.rows.signal import measure
from tests.shared.estimation.tables import Array, make_table, moments_of, rmgm

AB: tuple[NumericAttribute, ...] = tuple(NumericAttribute(name=c, lower=-1.0, upper=1.0) for c in "abcdy")
N, K = 20_000, 60
TABLE = make_table(40_000)


def moments(b: Array, residual_variance: float, label_mean: float = 0.2) -> Array:
    """S of N rows (1, a, b, c, d, y) with features of variance 0.1, correlated 0.6 in pairs."""
    x = np.kron(np.eye(2), np.array([[0.1, 0.06], [0.06, 0.1]]))
    mean = np.append(np.ones(1), np.array([0.2, -0.3, 0.0, 0.5, label_mean]))
    covariance = np.block([[x, (x @ b)[:, None]], [(x @ b)[None], np.atleast_2d(b @ x @ b + residual_variance)]])
    S = np.outer(mean, mean)
    S[1:, 1:] += covariance
    return np.asarray(N * S)


def mean_scores(S: Array, noise: float, repeats: int = 300) -> dict[str, float]:
    """Mean R^2 on the table itself over releases of it."""
    draw, V = np.random.default_rng(3), np.diag([0.0, *[noise] * 5])
    root = np.linalg.cholesky(S / K + V + 1e-12 * np.eye(6)).T
    total = S[5, 5] - S[0, 5] ** 2 / S[0, 0]
    scores: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    for _ in range(repeats):
        P = draw.normal(size=(K, 6)) @ root
        prepared = PreparedMoments.of(moments_of(P.T @ P, AB, noise=noise, rows=K, n=N), AB)
        for name, found in scores.items():
            b = fit_prepared(prepared, FitRequest(target="y", estimator=name)).coefficients
            c = np.concatenate([-b, np.zeros(5 - len(b)), [1.0]])
            found.append(1 - float(c @ S @ c) / total)
    return {name: float(np.mean(found)) for name, found in scores.items()}


@pytest.mark.parametrize("noise", [5.0, 50.0, 500.0])
def test_without_any_signal_it_stays_near_the_mean_where_other_estimators_do_not(noise: float) -> None:
    found = mean_scores(moments(np.zeros(4), 0.1), noise)
    # 0.021 below at noise 50, the worst of the three; a standard error of the paired difference is below 0.01
    assert found["shrunken"] > found["constant"] - 0.04
    assert found["shrunken"] - found["constant"] > 0.7 * (found["ols"] - found["constant"])


@pytest.mark.parametrize("noise", [1.0, 5.0, 20.0])
def test_with_signal_it_keeps_nine_tenths_of_what_the_best_estimator_gains(noise: float) -> None:
    found = mean_scores(moments(np.array([0.5, 0.4, -0.5, 0.3]), 0.05), noise)
    best = max(r2 for name, r2 in found.items() if name != "shrunken")
    assert best > 0.15
    assert found["shrunken"] - found["constant"] > 0.9 * (best - found["constant"])


@pytest.mark.parametrize("label_mean", [-0.9, 0.0, 0.4])
def test_buried_mean_is_pulled_inside_the_bounds_and_beats_the_released_one(label_mean: float) -> None:
    found = mean_scores(moments(np.zeros(4), 0.05, label_mean), noise=5000.0)
    assert found["shrunken"] > found["constant"]


def test_basis_makes_noise_and_moments_diagonal_and_what_is_left_lies_between_none_and_all() -> None:
    prepared = PreparedMoments.of(rmgm(TABLE, 300, 2.0), TABLE.schema)
    chosen = tuple(i for name in ("age", "dose", "sex", "site") for i in prepared.columns[name])
    system = build_system(prepared, prepared.columns["pressure"][0], chosen, intercept=True)
    c = measure(system).centred
    d = shrunken.directions(system, c)
    np.testing.assert_allclose(d.basis.T @ c.X @ d.basis, np.eye(5), atol=1e-9)
    np.testing.assert_allclose(d.basis.T @ (c.rows * c.V) @ d.basis, np.diag(d.noise), atol=1e-9)
    left = shrinkage(Belief.of(d, c.rows, shrunken.label_variance(system, c, 0.0)), c.yy)
    eigenvalues = np.linalg.eigvalsh(left)
    assert eigenvalues[0] > 0
    assert eigenvalues[-1] < 1


@pytest.mark.parametrize("mean", [0.0, 0.9, 1.0])
def test_label_varies_no_more_than_its_mean_lets_it(mean: float) -> None:
    prepared = PreparedMoments.of(rmgm(TABLE, 300, 50.0), TABLE.schema)
    system = build_system(prepared, prepared.columns["pressure"][0], prepared.columns["age"], intercept=True)
    variance = shrunken.label_variance(system, measure(system).centred, mean)
    assert (variance.signal > 0).all()
    assert (variance.signal <= max(1 - mean**2, 0.02) * system.n / system.rows).all()
    np.testing.assert_allclose(variance.total, variance.signal + system.v_yy)


def test_fit_without_an_intercept_recovers_a_strong_signal() -> None:
    request = FitRequest(target="pressure", estimator="shrunken", intercept=False)
    strong = fit(rmgm(TABLE, 1500, 0.01), TABLE.schema, request)
    measured = fit(
        rmgm(TABLE, 1500, 0.01), TABLE.schema, FitRequest(target="pressure", estimator="ols", intercept=False)
    )
    found, expected = (f.predict(TABLE.rows, extrapolate=True) for f in (strong, measured))
    np.testing.assert_allclose(found, expected, rtol=0.05)


def test_same_release_gives_the_same_fit() -> None:
    one, two = (
        fit(rmgm(TABLE, 60, 50.0), TABLE.schema, FitRequest(target="pressure", estimator="shrunken")) for _ in "ab"
    )
    assert (one.coefficients == two.coefficients).all()
