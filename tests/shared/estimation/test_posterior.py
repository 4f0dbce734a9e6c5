"""The posterior mode: possible, exact where there is no noise, the same in any order and unit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal, wishart

from commingle.services.fit import PreparedMoments, fit_prepared
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.estimation.posterior import (
    EntryLikelihood,
    Likelihood,
    Objective,
    WishartLikelihood,
    exponent,
    likelihood_of,
    posterior_mode,
    prior_loss,
    regularised,
    search,
)
from tests.shared.estimation.tables import Array, columns_of, make_table, noiseless, rmgm
from tests.shared.estimation.test_noisy_moments import noisy, release, symmetric, variances

N = 3000
ABCDY = columns_of("abcdy")
TABLE = make_table(4000)


def table_moments(*, related: bool = True) -> Array:
    """M = S / n (6, 6) of four correlated features, means not 0, and a label."""
    x = 0.08 * (0.6 * np.eye(4) + 0.4)
    b = np.array([0.8, -0.5, 0.0, 0.3]) if related else np.zeros(4)
    C = np.block([[x, (x @ b)[:, None]], [(x @ b)[None], np.full((1, 1), b @ x @ b + 0.05)]])
    mean = np.array([1.0, 0.3, -0.2, 0.0, 0.5, -0.4])
    M = np.outer(mean, mean)
    M[1:, 1:] += C
    return M


def entries(sd: float, seed: int = 0, *, related: bool = True, basis: Array | None = None) -> EntryLikelihood:
    """A release of N rows whose entries have noise of about that standard deviation."""
    B, variance = np.eye(6) if basis is None else basis, variances(sd, 6)
    noise = symmetric(variance, np.random.default_rng(seed))
    return EntryLikelihood.of(N * B @ table_moments(related=related) @ B.T + noise, variance, n=N, basis=B)


def rows(noise: float, k: int = 200, seed: int = 0) -> WishartLikelihood:
    V = np.diag([0.0, *[noise] * 5])
    random = np.random.default_rng(seed)
    P = random.multivariate_normal(np.zeros(6), N / k * table_moments() + V, size=k)
    return WishartLikelihood.of(P.T @ P, V, rows=k, n=N)


def height(likelihood: Likelihood, F: Array) -> float:
    """What the mode minimises, of M = F F^T."""
    return likelihood.loss(F @ F.T)[0] + prior_loss(F)[0] - 2 * exponent(5) * float(np.log(np.diag(F)[1:]).sum())


def covariance(M: Array) -> Array:
    return np.asarray((M - np.outer(M[0], M[0]))[1:, 1:])


@pytest.mark.parametrize("likelihood", [entries(300.0), entries(1e6), rows(2.0), rows(1e5)])
def test_mode_is_possible_whatever_the_noise(likelihood: Likelihood) -> None:
    M = posterior_mode(likelihood)
    assert M[0, 0] == 1
    assert np.linalg.eigvalsh(covariance(M))[0] > 0
    np.testing.assert_array_equal(M, M.T)
    assert np.diag(M).max() < 1.2  # squares of values in [-1, 1]


@pytest.mark.parametrize(
    ("likelihood", "atol"), [*((entries(sd), 10 * sd / N) for sd in (1.0, 1e-3, 1e-6)), (rows(1e-4, k=100_000), 0.006)]
)
def test_mode_goes_to_the_exact_moments_as_the_noise_goes_to_nothing(likelihood: Likelihood, atol: float) -> None:
    # the noise of an entry per subject, and what the prior moves it by: a e^2 over the least variance; 100,000 rows
    # know an entry of 0.1 to sqrt(2 / k) of it
    np.testing.assert_allclose(posterior_mode(likelihood), table_moments(), atol=atol)


@pytest.mark.parametrize("likelihood", [entries(40.0), entries(3000.0), rows(3.0), rows(3000.0)])
def test_derivative_is_that_of_finite_differences(likelihood: Likelihood) -> None:
    objective = Objective.of(likelihood)
    x = np.random.default_rng(1).normal(0, 0.3, objective.size) / objective.unit * 0.1
    value, slope = objective(x)
    assert np.isfinite(value)

    def at(point: Array) -> float:
        return objective(point)[0]

    found = approx_fprime(x, at, 1e-7)
    np.testing.assert_allclose(found, slope, rtol=1e-3, atol=1e-4 * float(np.abs(slope).max()))


@pytest.mark.parametrize("likelihood", [entries(40.0), entries(400.0), rows(3.0), rows(300.0)])
def test_nothing_near_the_mode_is_likelier(likelihood: Likelihood) -> None:
    L, random = np.asarray(np.linalg.cholesky(posterior_mode(likelihood))), np.random.default_rng(2)
    for size in (0.3, 0.03, 0.003):
        change: Array = np.tril(random.normal(0, size, (20, 6, 6)), -1) * np.diag(L)
        assert min(height(likelihood, L + each) for each in change) > height(likelihood, L) - 1e-6


@pytest.mark.parametrize("noise", [30.0, 300.0, 3000.0])
def test_means_of_rows_are_drawn_into_their_bounds_as_their_prior_says(noise: float) -> None:
    likelihood = rows(noise)
    released, variance = likelihood.rough[0, 1:], noise / N  # of a mean, but for what the rows scatter
    # the other terms of the prior and the covariance that is believed move them by little
    np.testing.assert_allclose(posterior_mode(likelihood)[0, 1:], released / (1 + 2 * variance), atol=0.1)


@pytest.mark.parametrize("likelihood", [entries(300.0), entries(1e4), rows(30.0), rows(3000.0), rows(1e5)])
def test_ten_steps_leave_little_to_gain_and_forty_nothing(likelihood: Likelihood) -> None:
    ten, forty, least = (
        height(likelihood, np.asarray(np.linalg.cholesky(search(likelihood, steps=steps)))) for steps in (10, 40, 1000)
    )
    assert ten < least + 0.5
    assert forty < least + 0.01


@pytest.mark.parametrize("build", [entries, rows])
def test_mode_is_the_same_in_any_order_of_the_columns(build: Any) -> None:
    order = np.array([0, 3, 5, 1, 4, 2])
    plain = build(60.0)
    if isinstance(plain, EntryLikelihood):
        variance = variances(60.0, 6)
        shuffled: Likelihood = EntryLikelihood.of(
            N * plain.released[np.ix_(order, order)], variance[np.ix_(order, order)], n=N
        )
    else:
        block = np.ix_(order, order)
        shuffled = WishartLikelihood.of(plain.gram[block], plain.V[block], rows=plain.rows, n=plain.n)
    np.testing.assert_allclose(
        posterior_mode(shuffled), posterior_mode(plain)[np.ix_(order, order)], atol=2e-4 * np.abs(plain.rough).max()
    )


def test_fit_is_the_same_whatever_the_units_of_the_schema() -> None:
    S, variance = N * table_moments(), variances(60.0, 6)
    gram = S + symmetric(variance, np.random.default_rng(3))
    other = tuple(replace_bounds(a, 10 * (i + 1)) for i, a in enumerate(ABCDY))
    one, two = (
        fit_prepared(PreparedMoments.of(release(gram, variance, schema), schema), "y", estimator="shrunken")
        for schema in (ABCDY, other)
    )
    scale = 50 / np.array([10.0, 20.0, 30.0, 40.0])
    np.testing.assert_allclose(two.coefficients[1:], one.coefficients[1:] * scale, rtol=1e-9)


def replace_bounds(attribute: NumericAttribute, reach: float) -> NumericAttribute:
    return attribute.model_copy(update={"lower": -reach, "upper": reach})


def test_likelihood_of_entries_that_share_noise_is_that_of_their_joint_law() -> None:
    random = np.random.default_rng(4)
    B = np.eye(6)
    B[1:4, 1:4], B[1:4, 0] = random.normal(size=(3, 3)), random.normal(size=3)
    likelihood, variance = entries(60.0, basis=B), variances(60.0, 6)
    undo = np.linalg.inv(B)
    above = [(i, j) for i in range(6) for j in range(i, 6)][1:]
    noise = []
    for i, j in above:  # what one entry of E does to all entries of the unmixed moments
        E = np.zeros((6, 6))
        E[i, j] = E[j, i] = np.sqrt(variance[i, j])
        noise.append([(undo @ E @ undo.T)[k, m] / N for k, m in above])
    law = multivariate_normal(mean=np.zeros(20), cov=np.array(noise).T @ np.array(noise))
    at, elsewhere = table_moments(), table_moments(related=False)
    gaps = [np.array([(likelihood.rough - M)[k, m] for k, m in above]) for M in (at, elsewhere)]
    expected = law.logpdf(gaps[1]) - law.logpdf(gaps[0])
    assert likelihood.loss(at)[0] - likelihood.loss(elsewhere)[0] == pytest.approx(expected, rel=1e-9)


def test_likelihood_of_rows_is_that_of_the_wishart_law() -> None:
    likelihood, k = rows(3.0), 200
    at, elsewhere = table_moments(), table_moments(related=False)
    expected = [wishart(k, N / k * M + likelihood.V).logpdf(likelihood.gram) for M in (at, elsewhere)]
    found = [likelihood.loss(M)[0] for M in (at, elsewhere)]
    assert found[0] - found[1] == pytest.approx(expected[1] - expected[0], rel=1e-9)


def test_mode_is_nearer_to_the_table_than_what_was_released() -> None:
    found, released = [], []
    for seed in range(20):
        likelihood = entries(150.0, seed)
        truth = covariance(table_moments())
        found.append(np.linalg.norm(covariance(posterior_mode(likelihood)) - truth))
        released.append(np.linalg.norm(covariance(likelihood.rough) - truth))
    assert np.mean(found) < 0.8 * np.mean(released)


@pytest.mark.parametrize("moments", [noiseless(TABLE), release(TABLE.encoded.T @ TABLE.encoded, variances(0.0, 7))])
def test_release_without_noise_is_its_own_mode(moments: Any) -> None:
    prepared = PreparedMoments.of(moments, TABLE.schema)
    assert regularised(prepared) is prepared


@pytest.mark.parametrize("kind", ["moments", "rows"])
def test_mode_is_searched_once_for_a_release(kind: str) -> None:
    posterior_mode.cache_clear()
    S = TABLE.encoded.T @ TABLE.encoded
    moments = release(S, variances(20.0)) if kind == "moments" else rmgm(TABLE, 300, 2.0)
    one, two = (regularised(PreparedMoments.of(moments, TABLE.schema)) for _ in "ab")
    assert posterior_mode.cache_info().misses == 1
    np.testing.assert_array_equal(one.gram, two.gram)
    assert not one.V.any()
    assert one.rows == one.n
    other = replace(PreparedMoments.of(moments, TABLE.schema), n=one.n + 1)
    regularised(other)
    assert posterior_mode.cache_info().misses == 2


@pytest.mark.parametrize("sd", [30.0, 300.0])
def test_slopes_without_signal_are_shrunk_to_the_mean(sd: float) -> None:
    S, variance, losses = N * table_moments(related=False), variances(sd, 6), []
    for seed in range(100):
        gram = S + symmetric(variance, np.random.default_rng(seed))
        found = fit_prepared(PreparedMoments.of(release(gram, variance, ABCDY), ABCDY), "y", estimator="shrunken")
        c = np.append(-found.coefficients, 1.0)
        losses.append(float(c @ table_moments(related=False) @ c) / 0.05 - 1)
    constant = sd**2 / N**2 / 0.05  # the error of the released mean
    assert np.mean(losses) < constant + 0.03


def test_moments_of_whitened_columns_are_as_likely_as_those_that_were_published() -> None:
    plain = PreparedMoments.of(noisy(30.0), TABLE.schema)
    p = len(plain.gram)
    T = np.eye(p) + 0.3 * np.random.default_rng(4).standard_normal((p, p))
    T[0] = np.eye(p)[0]
    mapped = plain.map_columns(T)
    of = [likelihood_of(prepared) for prepared in (plain, mapped)]
    for seed in range(5):
        M = regularised(plain).gram / plain.n + np.diag(np.random.default_rng(seed).uniform(0, 0.1, p))
        assert of[1].loss(T @ M @ T.T)[0] == pytest.approx(of[0].loss(M)[0], rel=1e-9)
    np.testing.assert_allclose(of[1].rough, T @ of[0].rough @ T.T, rtol=1e-8, atol=1e-8)
