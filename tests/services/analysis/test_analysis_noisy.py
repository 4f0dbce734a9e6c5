"""What the analyses recover, cover and refuse where there is noise."""

from collections.abc import Iterator

import numpy as np
import pytest

from commingle.services.analysis import compare, lasso_path, partial_correlations, pca, ridge_path, two_stage
from commingle.services.errors import NoSignalError
from commingle.services.fit import PreparedMoments, fit_prepared
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.posterior import posterior_mode, regularised
from tests.shared.estimation.tables import make_table, moments_of, rmgm
from tests.shared.estimation.test_noisy_moments import release, symmetric, variances
from tests.world.categorical import release_of

N = 100_000
BURIED = PreparedMoments.of(rmgm(make_table(40_000), k=60, noise=5e4), make_table(10).schema)


def schema(names: str) -> tuple[NumericAttribute, ...]:
    """One attribute on [-1, 1] per letter."""
    return tuple(NumericAttribute(name=name, lower=-1.0, upper=1.0) for name in names)


def releases(
    names: str, covariance: Array, *, k: int, noise: float, n: int, count: int, seed: int
) -> Iterator[PreparedMoments]:
    """Releases whose rows are draws of N(0, S/k + V), what rmgm publishes; S of n rows with means of 0.2."""
    rng, p = np.random.default_rng(seed), len(covariance)
    S = np.full((p + 1, p + 1), 0.04)
    S[0], S[:, 0], S[0, 0] = 0.2, 0.2, 1.0
    S[1:, 1:] += covariance
    root = np.linalg.cholesky(n * S / k + np.diag([0.0, *[noise] * p])).T
    for _ in range(count):
        P = rng.normal(size=(k, p + 1)) @ root
        yield PreparedMoments.of(moments_of(P.T @ P, schema(names), noise=noise, rows=k, n=n), schema(names))


def related(slopes: Array, *, residual_variance: float = 0.05) -> Array:
    """Covariance of q features of variance 0.1, neighbours correlated by 0.4, and y = features @ slopes + error."""
    q = len(slopes)
    x = 0.1 * (np.eye(q) + 0.4 * (np.eye(q, k=1) + np.eye(q, k=-1)))
    y = slopes @ x @ slopes + residual_variance
    return np.block([[x, (x @ slopes)[:, None]], [(x @ slopes)[None], np.array([[y]])]])


def test_wald_test_rejects_a_true_hypothesis_as_often_as_it_says() -> None:
    covariance = related(np.array([0.5, 0.0, 0.0]))
    found = [
        compare(prepared, "y", None, ["a"]).p_value
        for prepared in releases("abcy", covariance, k=200, noise=4.0, n=N, count=600, seed=11)
    ]
    # at 0.05, 600 repetitions: standard error 0.009
    assert 0.025 < np.mean(np.array(found) < 0.05) < 0.08


def test_wald_test_finds_what_is_there() -> None:
    (prepared,) = releases("abcy", related(np.array([0.5, 0.4, 0.0])), k=400, noise=2.0, n=N, count=1, seed=12)
    found = compare(prepared, "y", None, ["a"])
    assert found.p_value < 1e-6
    assert found.r_squared_larger is not None
    assert found.r_squared_smaller is not None
    assert found.r_squared_larger > found.r_squared_smaller + 0.05


def test_comparison_gives_no_r_squared_where_noise_hides_it() -> None:
    (prepared,) = releases("abcy", related(np.array([0.5, 0.4, 0.0])), k=400, noise=300.0, n=N, count=1, seed=12)
    assert fit_prepared(prepared, "y").diagnostics.hides_r_squared
    found = compare(prepared, "y", None, ["a"])
    assert found.r_squared_larger is None
    assert np.isnan(found.table().columns[0].numbers[1])


@pytest.mark.slow
def test_partial_correlations_are_covered_at_the_stated_rate() -> None:
    covariance = related(np.array([0.5, -0.3, 0.0]))
    P = np.linalg.inv(covariance)
    truth = -P / np.sqrt(np.outer(np.diag(P), np.diag(P)))
    above = np.triu_indices(4, 1)
    held = []
    for prepared in releases("abcy", covariance, k=300, noise=2.0, n=N, count=400, seed=13):
        found = partial_correlations(prepared, interval_for="table")
        held.append(np.abs(found.values - truth)[above] < 1.96 * found.standard_errors[above])
    # 400 repetitions at 0.95: standard error 0.011 per pair
    assert np.mean(held, axis=0).min() > 0.91
    assert 0.93 < np.mean(held) < 0.97


@pytest.mark.slow
def test_two_stages_are_covered_where_least_squares_is_biased() -> None:
    # d = 0.8 z + u + ..., y = 0.5 d - u: the unseen u biases the plain fit downwards
    z, u, e = 0.2, 0.05, 0.02
    d = 0.64 * z + u + e
    covariance = np.array(
        [[z, 0.8 * z, 0.4 * z], [0.8 * z, d, 0.5 * d - u], [0.4 * z, 0.5 * d - u, 0.25 * d - u + u + 0.05]]
    )
    held, biased = [], []
    for prepared in releases("zdy", covariance, k=300, noise=4.0, n=N, count=400, seed=14):
        fit = two_stage(prepared, "y", endogenous=["d"], instruments=["z"], interval_for="table").fit
        low, high = fit.intervals[1]
        held.append(low < 0.5 < high)
        biased.append(fit_prepared(prepared, "y", features=("d",), interval_for="table").intervals[1, 1] < 0.5)
    # 400 repetitions at 0.95: standard error 0.011
    assert 0.92 < np.mean(held) < 0.98
    assert np.mean(biased) > 0.9


def test_weak_instrument_is_warned_of() -> None:
    found = two_stage(BURIED, "pressure", endogenous=["dose"], instruments=["sex"])
    assert any("hardly explain dose" in warning for warning in found.fit.warnings)


@pytest.mark.slow
def test_lasso_at_the_noise_penalty_lets_no_unrelated_feature_in() -> None:
    entered = []
    for prepared in releases("abcdefy", related(np.zeros(6)), k=300, noise=4.0, n=N, count=200, seed=15):
        floor = lasso_path(prepared, "y", penalties=[1.0]).noise_penalty
        assert floor is not None
        entered.append(lasso_path(prepared, "y", penalties=[floor]).coefficients[0, 1:].any())
    # promised at most 0.05, 200 repetitions: standard error 0.015; less than that by half would be a needless penalty
    assert 0.005 < np.mean(entered) < 0.09


@pytest.mark.slow
@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_expected_r_squared_along_a_path_is_right_on_average(l1_ratio: float) -> None:
    slopes = np.array([0.6, 0.0, -0.3, 0.0])
    covariance = related(slopes)
    penalties = [1.0, 0.3, 0.1, 0.03]
    expected, actual = [], []
    for prepared in releases("abcdy", covariance, k=300, noise=4.0, n=N, count=300, seed=16):
        path = (
            lasso_path(prepared, "y", l1_ratio=l1_ratio, penalties=penalties)
            if l1_ratio
            else ridge_path(prepared, "y", penalties=penalties)
        )
        c = np.column_stack([-path.coefficients[:, 1:], np.ones(4)])
        expected.append(path.r_squared)
        actual.append(1 - np.einsum("ij,jk,ik->i", c, covariance, c) / covariance[-1, -1])
    np.testing.assert_allclose(np.mean(expected, axis=0), np.mean(actual, axis=0), atol=0.03)


def test_components_have_the_variances_of_the_table_and_not_those_of_the_noise() -> None:
    covariance = related(np.array([0.5, 0.5, 0.5]))
    truth = np.linalg.eigvalsh(covariance)[::-1]
    found = [
        pca(prepared, standardise=False).variances
        for prepared in releases("abcy", covariance, k=2000, noise=1.0, n=N, count=40, seed=17)
    ]
    # noise of 1 a row adds k/n = 0.02 per subject; the estimates' own error is 0.001 in the mean of 40
    np.testing.assert_allclose(np.mean(found, axis=0), truth, atol=0.004)


def test_components_and_paths_of_noisy_moments_read_one_posterior_mode() -> None:
    table = make_table(4000)
    S = table.encoded.T @ table.encoded
    noise = symmetric(variances(60.0), np.random.default_rng(0))
    prepared = PreparedMoments.of(release(S + noise, variances(60.0)), table.schema)
    posterior_mode.cache_clear()
    found, path = pca(prepared, standardise=False), ridge_path(prepared, "pressure", penalties=[1e-9])
    assert posterior_mode.cache_info().misses == 1
    mode = regularised(prepared)
    C = mode.gram[1:, 1:] / mode.n - np.outer(mode.gram[0, 1:], mode.gram[0, 1:]) / mode.n**2
    np.testing.assert_allclose(found.variances, np.linalg.eigvalsh(C)[::-1] * mode.n / (mode.n - 1), rtol=1e-9)
    slopes = np.linalg.solve(C[:-1, :-1], C[:-1, -1]) * mode.scale[-1] / mode.scale[1:-1]
    np.testing.assert_allclose(path.coefficients[0, 1:], slopes, rtol=1e-6)


def test_path_of_a_buried_release_warns_and_stays_finite() -> None:
    path = ridge_path(BURIED, "pressure")
    assert np.isfinite(path.coefficients).all()
    assert any("less than the noise" in warning for warning in path.warnings)
    assert any("cannot be told from predicting the mean" in warning for warning in path.warnings)


def test_buried_components_are_named() -> None:
    found = pca(BURIED)
    assert (found.variances >= 0).all()
    assert any("cannot be told from noise" in warning for warning in found.warnings)


def test_partial_correlations_of_a_buried_release_are_refused() -> None:
    with pytest.raises(NoSignalError, match="no variance"):
        partial_correlations(BURIED)


@pytest.mark.parametrize("order", [1, -1])
def test_components_warn_where_shared_people_differ_and_say_who_has_a_value(order: int) -> None:
    draw = np.random.default_rng(4)
    stage, ill = draw.choice(3, 3000), draw.random(3000)
    cells = {
        "stage": np.array(["i", "ii", "iii"])[stage].tolist(),
        "smoker": np.array(["no", "yes", None])[np.where(ill < 0.2 * stage, 2, draw.choice(2, 3000))].tolist(),
    }
    attributes = (
        CategoricalAttribute(name="stage", levels=("i", "ii", "iii")),
        BinaryAttribute(name="smoker", levels=("no", "yes"), missing="indicator"),
    )
    found = pca(release_of(attributes[::order], (1, 1), cells, epsilon=20.0, seed=1))
    assert "smoker: about 2,3" in found.subjects[0]
    assert "hold for all if who lacks one does not depend on values" in found.subjects[0]
    assert any("who is missing depends on values" in warning for warning in found.warnings)


def test_people_who_have_both_of_two_attributes_are_compared_with_those_who_have_one() -> None:
    draw = np.random.default_rng(4)
    smoker, ill = draw.choice(2, 3000), draw.random(3000)
    cells = {
        "smoker": np.array(["no", "yes", None])[np.where(draw.random(3000) < 0.3, 2, smoker)].tolist(),
        "ill": np.array(["no", "yes", None])[np.where(draw.random(3000) < 0.1 + 0.6 * smoker, 2, ill < 0.5)].tolist(),
    }
    attributes = [BinaryAttribute(name=name, levels=("no", "yes"), missing="indicator") for name in cells]
    found = pca(release_of(attributes, (1, 1), cells, epsilon=20.0, seed=1))
    assert any(
        warning.startswith("Those with smoker who are among those with ill differ from all those with smoker")
        for warning in found.warnings
    )
