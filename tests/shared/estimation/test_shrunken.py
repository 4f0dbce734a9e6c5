"""The default for prediction on noisy rows: close to the best estimator with signal, to the mean or better without.

Slopes given a release are held against normal laws written out; beliefs about bounded numbers against SciPy.
"""

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import chi2, multivariate_normal, norm, truncnorm

from commingle.services.fit import ESTIMATORS, PreparedMoments, fit_prepared
from commingle.shared.estimation.posterior import MOST_ODDS, NULL_LOSS, posterior_levels, posterior_mean
from commingle.shared.estimation.system import build_system
from commingle.shared.mechanisms.rows import shrunken
from commingle.shared.mechanisms.rows.fit import measure
from commingle.shared.mechanisms.rows.shrunken import (
    ALONE,
    R_SQUARED,
    Belief,
    Directions,
    Label,
    prior_log_odds,
    shrinkage,
)
from tests.shared.estimation.tables import Array, columns_of, make_table, moments_of, rmgm

AB = columns_of("abcdy")
N, K = 20_000, 60
TABLE = make_table(40_000)
ROWS = 60
LABEL = Label(total=np.array([1.4, 2.0, 3.1]), signal=np.array([0.4, 1.0, 2.1]))


def moments(b: Array, residual_variance: float, label_mean: float = 0.2) -> Array:
    """S of N rows (1, a, b, c, d, y) with features of variance 0.1, correlated 0.6 in pairs."""
    x = np.kron(np.eye(2), np.array([[0.1, 0.06], [0.06, 0.1]]))
    mean = np.append(np.ones(1), np.array([0.2, -0.3, 0.0, 0.5, label_mean]))
    covariance = np.block([[x, (x @ b)[:, None]], [(x @ b)[None], np.atleast_2d(b @ x @ b + residual_variance)]])
    S = np.outer(mean, mean)
    S[1:, 1:] += covariance
    return np.asarray(N * S)


def mean_scores(S: Array, noise: float, names: Iterable[str] = ESTIMATORS, repeats: int = 300) -> dict[str, float]:
    """Mean R^2 of these estimators on the table itself over releases of it."""
    draw, V = np.random.default_rng(3), np.diag([0.0, *[noise] * 5])
    root = np.linalg.cholesky(S / K + V + 1e-12 * np.eye(6)).T
    total = S[5, 5] - S[0, 5] ** 2 / S[0, 0]
    scores: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeats):
        P = draw.normal(size=(K, 6)) @ root
        prepared = PreparedMoments.of(moments_of(P.T @ P, AB, noise=noise, rows=K, n=N), AB)
        for name, found in scores.items():
            b = fit_prepared(prepared, "y", estimator=name).coefficients
            c = np.concatenate([-b, np.zeros(5 - len(b)), [1.0]])
            found.append(1 - float(c @ S @ c) / total)
    return {name: float(np.mean(found)) for name, found in scores.items()}


@pytest.mark.slow
@pytest.mark.parametrize("noise", [5.0, 50.0, 500.0])
def test_without_any_signal_it_stays_near_the_mean_where_other_estimators_do_not(noise: float) -> None:
    found = mean_scores(moments(np.zeros(4), 0.1), noise, ("shrunken", "constant", "ols"))
    # 0.021 below at noise 50, the worst of the three; a standard error of the paired difference is below 0.01
    assert found["shrunken"] > found["constant"] - 0.04
    assert found["shrunken"] - found["constant"] > 0.7 * (found["ols"] - found["constant"])


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1.0, 5.0, 20.0])
def test_with_signal_it_keeps_nine_tenths_of_what_the_best_estimator_gains(noise: float) -> None:
    found = mean_scores(moments(np.array([0.5, 0.4, -0.5, 0.3]), 0.05), noise)
    best = max(r2 for name, r2 in found.items() if name != "shrunken")
    assert best > 0.15
    assert found["shrunken"] - found["constant"] > 0.9 * (best - found["constant"])


@pytest.mark.slow
@pytest.mark.parametrize("label_mean", [-0.9, 0.0, 0.4])
def test_buried_mean_is_pulled_inside_the_bounds_and_beats_the_released_one(label_mean: float) -> None:
    found = mean_scores(moments(np.zeros(4), 0.05, label_mean), 5000.0, ("shrunken", "constant"))
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
    prepared = PreparedMoments.of(rmgm(TABLE, 1500, 0.01), TABLE.schema)
    strong, measured = (fit_prepared(prepared, "pressure", estimator=e, intercept=False) for e in ("shrunken", "ols"))
    found, expected = (f.predict(TABLE.rows, extrapolate=True) for f in (strong, measured))
    np.testing.assert_allclose(found, expected, rtol=0.05)


def directions(share: Array, seed: int = 0) -> Directions:
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(len(share), len(share)))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    z = draw.normal(0, 1.5, len(share))
    return Directions(np.eye(len(share)), 1 - share + 0.05, share, z, features)


def priors(d: Directions) -> list[tuple[float, float, Array]]:
    """(probability, total, covariance of zeta over tau^2) of everything that may be, written out one by one."""
    found = []
    shape = d.share * np.sqrt(d.share / d.noise)
    shapes = [(1 - ALONE, np.diag(shape))]
    shapes += [(ALONE / len(d.z), np.outer(u, u)) for u in d.features]
    steps = np.gradient(np.append(0.0, R_SQUARED))[1:]
    for (p, C), (r2, step), j in itertools.product(shapes, zip(R_SQUARED, steps, strict=True), range(3)):
        scaled = C / np.sum(np.diag(C) / d.share)
        explained = r2 * LABEL.signal[j] / LABEL.total[j]
        h = ROWS * explained / (1 - explained * np.trace(scaled)) * scaled
        tau2 = LABEL.total[j] * (1 - explained * np.trace(scaled))
        found.append((p * step / steps.sum() / 3, tau2, h))
    return found


def likelihood(z: Array, rest: float, tau2: float, h: Array) -> float:
    """Of z ~ N(0, tau^2 (I + h)) and a residual tau^2 chi^2."""
    normal = multivariate_normal(np.zeros(len(z)), tau2 * (np.eye(len(z)) + h)).logpdf(z)
    return float(np.exp(normal + chi2(ROWS - len(z)).logpdf(rest / tau2)) / tau2)


@pytest.mark.parametrize("share", [np.array([0.9, 0.5, 0.1]), np.array([0.3]), np.array([0.02, 0.8, 0.4, 0.4])])
def test_slopes_are_those_of_normal_laws_written_out(share: Array) -> None:
    d = directions(share)
    rest, q = 70.0, len(share)
    # the levels of the label's variance are equally likely given yy: each is compared with no signal at its own
    odds, zeta = 0.0, np.zeros(q)
    for index, (p, tau2, h) in enumerate(priors(d)):
        none = likelihood(d.z, rest, float(LABEL.total[index % 3]), np.zeros((q, q)))
        weight = p * likelihood(d.z, rest, tau2, h) / none
        odds += weight
        zeta += weight * h @ np.linalg.solve(np.eye(q) + h, d.z)
    [log_bayes], [left], [alone] = Belief.of(d, ROWS, LABEL).given(d.z[None], np.array([d.z @ d.z + rest]))
    assert np.exp(log_bayes) == pytest.approx(odds, rel=1e-9)
    np.testing.assert_allclose(left * d.z + alone * (d.features @ d.z) @ d.features, zeta / odds, rtol=1e-9)


def test_table_without_signal_loses_what_is_allowed_on_other_draws() -> None:
    d = directions(np.array([0.5, 0.6, 0.7, 0.8]))
    b = Belief.of(d, ROWS, LABEL)
    log_odds = prior_log_odds(b)
    draw, repeats, lost = np.random.default_rng(5), 4000, []
    for total, signal in zip(LABEL.total, LABEL.signal, strict=True):
        z = draw.normal(0, np.sqrt(total), (repeats, 4))
        yy = (z**2).sum(axis=1) + total * draw.chisquare(ROWS - 4, repeats)
        log_bayes, left, alone = b.given(z, yy)
        zeta = expit(log_bayes + log_odds)[:, None] * (left * z + (alone * (z @ d.features.T)) @ d.features)
        lost.append(np.mean(np.sum(zeta**2 / d.price(ROWS), axis=1)) / ROWS / signal)
    # 4000 draws here and 128 evenly spread ones there are within a tenth of each other
    assert np.mean(lost) == pytest.approx(NULL_LOSS, rel=0.25)


def test_odds_are_the_most_where_there_is_little_to_lose_and_small_where_there_is_much() -> None:
    d = directions(np.full(4, 0.9))
    some, many = (prior_log_odds(Belief.of(d, rows, LABEL)) for rows in (ROWS, 100_000))
    assert some < np.log(MOST_ODDS) - 1
    assert many == pytest.approx(np.log(MOST_ODDS))


# further out the oracle itself loses its digits
@pytest.mark.parametrize(
    ("x", "s"), [(-30.0, 3.0), (-1.2, 0.4), (-1.2, 0.05), (0.0, 0.01), (0.9, 3.0), (2.5, 0.4), (12.0, 0.4), (12.0, 3.0)]
)
def test_posterior_mean_is_that_of_a_truncated_normal(x: float, s: float) -> None:
    expected = truncnorm.mean((-1 - x) / s, (1 - x) / s, loc=x, scale=s)
    assert posterior_mean(np.array([x]), s, -1.0, 1.0)[0] == pytest.approx(np.clip(expected, -1, 1), abs=1e-6)


@pytest.mark.parametrize(("x", "s"), [(0.2, 1e-15), (1e6, 1.0), (-1e6, 1.0), (0.0, 1e6), (5.0, 1e-3)])
def test_posterior_mean_stays_between_the_bounds_at_any_scale(x: float, s: float) -> None:
    [mean] = posterior_mean(np.array([x]), s, -1.0, 1.0)
    assert -1 <= mean <= 1
    if abs(x) < 1 and s < 1:
        assert mean == pytest.approx(x)


@pytest.mark.parametrize("truth", [-1.0, -0.95, -0.6, 0.0, 1.0])
@pytest.mark.parametrize("s", [0.05, 0.36, 1.0, 4.0])
def test_posterior_mean_has_no_larger_risk_than_the_observation(truth: float, s: float) -> None:
    x = truth + s * np.linspace(-7, 7, 4001)
    weights = norm.pdf(x, truth, s) / norm.pdf(x, truth, s).sum()
    risk = float(weights @ (posterior_mean(x, s, -1.0, 1.0) - truth) ** 2)
    assert risk <= s**2 * (1 + 1e-6)


@pytest.mark.parametrize("x", [-6.0, 0.3, 9.0])
def test_levels_are_quantiles_of_the_truncated_normal(x: float) -> None:
    levels = posterior_levels(x, 1.0, 0.0, 5.0, 3)
    expected = truncnorm.ppf([1 / 6, 1 / 2, 5 / 6], -x, 5 - x, loc=x)
    np.testing.assert_allclose(levels, expected, atol=1e-6)
