"""Moments releases: S + noise with known entry variances."""

from typing import Any, Literal

import numpy as np
import pytest

from commingle.services.fit import Fit, PreparedMoments, fit_prepared
from commingle.shared import errors
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.schema import CategoricalAttribute, NumericAttribute
from commingle.shared.estimation.entry_noise import EntryNoise
from commingle.shared.estimation.system import build_system, centre
from commingle.shared.mechanisms.moments.fit import noise_bound, norm_quantile
from tests.shared.estimation.tables import Array, columns_of, make_table, moments_of, noiseless, oracle, require_said
from tests.world.categorical import release_of

TABLE = make_table(4000)
ENCODED = TABLE.encoded
S = ENCODED.T @ ENCODED
ESTIMATORS = ("ols", "adaptive_ridge", "shrunken", "constant")
MIXING = np.eye(len(S))
MIXING[1:4, 0] = [0.3, -0.2, 0.1]
MIXING[1:4, 1:4] = [[0.5, 0.1, 0.2], [0.1, 0.6, -0.1], [0.2, 0.3, 0.4]]
"""Encoded columns = MIXING @ published ones: one party whitens its three columns about their public centre."""
ABCY = columns_of("abcy")


def variances(sd: float, size: int = len(S)) -> Array:
    """Var of every entry: sd^2 on diagonal and linear ones, half of it elsewhere, none on the count."""
    variance = np.full((size, size), sd**2 / 2)
    np.fill_diagonal(variance, sd**2)
    variance[0] = variance[:, 0] = sd**2
    variance[0, 0] = 0.0
    return variance


def symmetric(variance: Array, random: np.random.Generator) -> Array:
    upper = np.triu(random.standard_normal(variance.shape) * np.sqrt(variance))
    return np.asarray(upper + np.triu(upper, 1).T)


def release(gram: Array, variance: Array, schema: Any = TABLE.schema) -> SecondMoments:
    plain = moments_of(gram, schema, noise=0.0, rows=round(gram[0, 0]), n=round(gram[0, 0]))
    changes = {"mechanism": "moments", "entry_variance": tuple(map(tuple, variance.tolist()))}
    return SecondMoments.model_validate(plain.model_dump() | changes)


def noisy(sd: float, seed: int = 1) -> SecondMoments:
    return release(S + symmetric(variances(sd), np.random.default_rng(seed)), variances(sd))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("estimator", ["ols", "adaptive_ridge", "shrunken"])
def test_without_noise_every_fit_is_least_squares(estimator: str, intercept: bool) -> None:
    exact = PreparedMoments.of(noisy(0.0), TABLE.schema)
    result = fit_prepared(exact, "pressure", estimator=estimator, intercept=intercept)
    np.testing.assert_allclose(result.coefficients, oracle(TABLE, intercept=intercept).params, rtol=1e-9)
    assert not any("cannot be told" in warning for warning in result.warnings)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("estimator", ["ols", "adaptive_ridge"])
def test_without_noise_intervals_are_those_of_least_squares_or_of_no_width(estimator: str, intercept: bool) -> None:
    def fitted(around: Literal["table", "population"]) -> Fit:
        exact = PreparedMoments.of(noisy(0.0), TABLE.schema)
        return fit_prepared(exact, "pressure", estimator=estimator, intercept=intercept, interval_for=around)

    expected = oracle(TABLE, intercept=intercept)
    population = fitted("population")
    np.testing.assert_allclose(population.covariance, expected.cov_params(), rtol=1e-7)
    np.testing.assert_allclose(population.intervals, expected.conf_int(), rtol=1e-7)
    np.testing.assert_allclose(fitted("table").standard_errors, 0.0, atol=1e-12)
    assert population.diagnostics.r_squared is not None
    if intercept:  # less 2 tr(H Omega), which is 0 here
        assert population.diagnostics.r_squared == pytest.approx(expected.rsquared, abs=1e-9)


def test_constant_is_the_mean_with_the_error_of_its_noise() -> None:
    prepared = PreparedMoments.of(noisy(40.0), TABLE.schema)
    result = fit_prepared(prepared, "pressure", estimator="constant", interval_for="table")
    # half range 100: one linear entry of standard deviation 40 over n = 4000
    np.testing.assert_allclose(result.standard_errors, [100 * 40 / 4000])
    assert abs(result.coefficients[0] - TABLE.rows["pressure"].mean()) < 4 * result.standard_errors[0]


def test_covariance_of_the_noise_is_that_of_draws() -> None:
    random = np.random.default_rng(2)
    variance = np.abs(symmetric(np.ones((5, 5)), random))
    noise = EntryNoise(variance, random.standard_normal((5, 4)))
    c = random.standard_normal(4)
    draws = [noise.basis.T @ symmetric(variance, random) @ noise.basis for _ in range(40_000)]
    expected = np.cov(np.array([(E @ c)[:3] for E in draws]).T)
    # 40000 draws: relative standard error of a variance 0.7 %
    np.testing.assert_allclose(noise.covariance(c), expected, atol=0.04 * float(np.abs(expected).max()))
    Q = np.outer(c, c)
    assert noise.form_variance(Q) == pytest.approx(np.var([np.sum(Q * E) for E in draws]), rel=0.04)


def whitened(sd: float, seed: int = 1) -> PreparedMoments:
    """A release whose noise was added to the moments of the whitened columns, undone."""
    back = np.linalg.inv(MIXING)
    noise = symmetric(variances(sd), np.random.default_rng(seed))
    return PreparedMoments.of(release(back @ S @ back.T + noise, variances(sd)), TABLE.schema).map_columns(MIXING)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_without_noise_whitening_changes_no_fit(estimator: str, intercept: bool) -> None:
    intercept = intercept or estimator == "constant"
    plain, undone = (
        fit_prepared(prepared, "pressure", estimator=estimator, intercept=intercept)
        for prepared in (PreparedMoments.of(noisy(0.0), TABLE.schema), whitened(0.0))
    )
    np.testing.assert_allclose(undone.coefficients, plain.coefficients, rtol=1e-7)
    np.testing.assert_allclose(undone.standard_errors, plain.standard_errors, rtol=1e-7, atol=1e-9)


def test_noise_of_an_undone_whitening_is_that_of_draws() -> None:
    """Some of the party's columns are not in the system, but their noise is."""
    c = np.array([0.3, -1.0, 0.5, 1.0])
    systems = [build_system(whitened(3.0, seed), 6, (1, 5), intercept=True) for seed in range(2000)]
    moved = [np.column_stack([system.xx, system.xy]) @ c for system in systems]
    stated = systems[0].entries
    assert stated is not None
    # 2000 draws: relative standard error of a variance 3.2 %
    expected = stated.covariance(c)
    np.testing.assert_allclose(np.cov(np.array(moved).T), expected, atol=0.1 * float(np.abs(expected).max()))


def test_ols_intervals_of_whitened_moments_cover_at_the_stated_rate() -> None:
    exact = PreparedMoments.of(noisy(0.0), TABLE.schema)
    truth, held = fit_prepared(exact, "pressure", estimator="ols").coefficients, []
    for seed in range(300):
        low, high = fit_prepared(whitened(8.0, seed), "pressure", estimator="ols", interval_for="table").intervals.T
        held.append((low < truth) & (truth < high))
    # 300 repetitions at 0.95: standard error 0.013 per term, 0.006 for the mean
    assert np.mean(held, axis=0).min() > 0.91
    assert 0.93 < np.mean(held) < 0.98


@pytest.mark.parametrize("intercept", [True, False])
def test_bound_holds_the_noise_in_the_centred_moments_in_95_of_100_releases(intercept: bool) -> None:
    columns, schema = (1, 2, 3, 4, 5), TABLE.schema
    exact = centre(build_system(PreparedMoments.of(noisy(0.0), schema), 6, columns, intercept=intercept)).X
    held = []
    for seed in range(400):
        system = build_system(PreparedMoments.of(noisy(20.0, seed), schema), 6, columns, intercept=intercept)
        c = centre(system)
        assert system.entries is not None
        held.append(np.linalg.norm(c.X - exact, 2) <= noise_bound(system.entries, c))
    # standard error of the share 0.011, and about as much from the bound's own 200 draws
    assert 0.90 < np.mean(held) < 0.99


def test_bound_is_the_same_whoever_computes_it() -> None:
    first = fit_prepared(PreparedMoments.of(noisy(30.0), TABLE.schema), "pressure", estimator="adaptive_ridge")
    norm_quantile.cache_clear()
    again = fit_prepared(PreparedMoments.of(noisy(30.0), TABLE.schema), "pressure", estimator="adaptive_ridge")
    assert first.diagnostics == again.diagnostics


def sample(n: int, random: np.random.Generator) -> Array:
    """Rows (1, a, b, c, y) with y = 0.1 + 0.5 a - 0.3 b + noise; a and b correlated, means not 0."""
    x = random.uniform(-0.8, 0.8, (n, 3)) + np.array([0.1, -0.1, 0.2])
    x[:, 1] = 0.5 * x[:, 1] + 0.4 * x[:, 0]
    return np.column_stack([np.ones(n), x, 0.1 + x @ [0.5, -0.3, 0.0] + random.normal(0, 0.3, n)])


@pytest.mark.slow
@pytest.mark.parametrize("intercept", [True, False])
def test_ols_intervals_cover_at_the_stated_rate(intercept: bool) -> None:
    random, first, variance = np.random.default_rng(4), 0 if intercept else 1, variances(15.0, 5)
    limit = sample(2_000_000, random)[:, first:]
    population = np.linalg.solve(limit[:, :-1].T @ limit[:, :-1], limit[:, :-1].T @ limit[:, -1])
    held: list[Any] = []
    ratios = []
    for _ in range(400):
        S = (A := sample(3000, random)).T @ A
        truths: dict[Literal["table", "population"], Any] = {
            "table": np.linalg.solve(S[first:-1, first:-1], S[first:-1, -1]),
            "population": population,
        }
        moments = release(S + symmetric(variance, random), variance, ABCY)
        for around, truth in truths.items():
            result = fit_prepared(PreparedMoments.of(moments, ABCY), "y", intercept=intercept, interval_for=around)
            assert (result.estimator, result.interval_for) == ("ols", around)
            held.append((result.intervals[:, 0] < truth) & (truth < result.intervals[:, 1]))
        ratios.append(result.diagnostics.signal_to_noise)
    assert np.median(np.array(ratios, dtype=float)) > 2
    for rate in (np.mean(held[::2], axis=0), np.mean(held[1::2], axis=0)):
        # 400 repetitions at 0.95: standard error 0.011 per term, 0.006 for the mean
        assert rate.min() > 0.915
        assert 0.93 < rate.mean() < 0.98


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_expected_r_squared_and_its_error_are_right_on_average(estimator: str) -> None:
    random = np.random.default_rng(5)
    A = sample(2000, random)
    exact, variance = A.T @ A, variances(15.0, 5)
    spread = np.var(A[:, -1]) * len(A)
    expected, actual, error = [], [], []
    for _ in range(300):
        prepared = PreparedMoments.of(release(exact + symmetric(variance, random), variance, ABCY), ABCY)
        result = fit_prepared(prepared, "y", estimator=estimator)
        c = np.append(np.zeros(4), 1.0)
        c[: len(result.coefficients)] = -result.coefficients
        d = result.diagnostics
        assert d.r_squared is not None
        assert d.r_squared_error is not None
        expected.append(d.r_squared)
        error.append(d.r_squared_error)
        actual.append(1 - c @ exact @ c / spread)
    # standard error of the mean difference below 0.006
    assert np.mean(expected) == pytest.approx(np.mean(actual), abs=0.02)
    if estimator == "ols":
        assert np.std(np.array(expected) - actual) == pytest.approx(np.mean(error), rel=0.35)


def test_default_estimator_has_standard_errors_on_either_kind_of_release() -> None:
    assert fit_prepared(PreparedMoments.of(noisy(5.0), TABLE.schema), "pressure").estimator == "ols"
    assert fit_prepared(PreparedMoments.of(noiseless(TABLE), TABLE.schema), "pressure").estimator == "measurement_error"


@pytest.mark.parametrize("estimator", ["measurement_error", "debiased"])
def test_estimator_for_noisy_rows_is_refused_and_names_the_one_to_use(estimator: str) -> None:
    with pytest.raises(errors.EstimatorKindError, match="noisy moments") as caught:
        fit_prepared(PreparedMoments.of(noisy(5.0), TABLE.schema), "pressure", estimator=estimator)
    assert "Use ols" in caught.value.diagnostics()


@pytest.mark.parametrize("overlap", [None, 0.9])
def test_features_in_which_hardly_anybody_differs_are_named(overlap: float | None) -> None:
    draw, n = np.random.default_rng(0), 3000
    stage = CategoricalAttribute(name="stage", levels=("i", "ii", "iii"))
    numbers = [NumericAttribute(name=name, lower=0, upper=100) for name in ("age", "dose", "y")]
    age = draw.uniform(0, 100, n)
    cells = {
        "age": age.tolist(),
        "dose": [50.0] * n,
        "stage": draw.choice(["i", "ii"], n).tolist(),
        "y": np.clip(age + draw.normal(0, 5, n), 0, 100).tolist(),
    }
    found = fit_prepared(release_of((*numbers[:2], stage, numbers[2]), (2, 2), cells, overlap=overlap, seed=1), "y")
    assert any("Hardly any person differs from the others in dose, stage[iii]." in said for said in found.warnings)


def test_unknown_estimator_lists_those_that_apply() -> None:
    with pytest.raises(errors.UnknownEstimatorError) as caught:
        fit_prepared(PreparedMoments.of(noisy(5.0), TABLE.schema), "pressure", estimator="old")
    assert "measurement_error" not in caught.value.diagnostics()


CLEAR, FAINT, BURIED = noisy(5.0), noisy(60.0), noisy(2000.0)
"""Of the last the least eigenvalue of the features, centred, is negative."""
NOTHING = "cannot be told from predicting the mean"


@pytest.mark.parametrize(
    ("moments", "estimator", "interval_for", "said"),
    [
        (CLEAR, "ols", "table", []),
        (FAINT, "ols", "table", ["any standard errors rough"]),
        (BURIED, "ols", "none", [NOTHING, "mean nothing"]),
        (CLEAR, "adaptive_ridge", "table", []),
        (BURIED, "adaptive_ridge", "none", [NOTHING, "damped by"]),
        (BURIED, "shrunken", "none", [NOTHING]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fit_says_what_noise_does_to_it_and_withholds_errors_that_mean_nothing(
    moments: SecondMoments, estimator: str, interval_for: str, said: list[str]
) -> None:
    prepared = PreparedMoments.of(moments, TABLE.schema)
    result = fit_prepared(prepared, "pressure", estimator=estimator, interval_for="table")
    require_said(result, interval_for, said)
    ratio = result.diagnostics.signal_to_noise
    assert ratio is not None
    assert ((ratio > 2), (ratio > 0)) == (moments is CLEAR, moments is not BURIED)
    if (moments, estimator) == (CLEAR, "adaptive_ridge"):  # nothing is damped
        plain = fit_prepared(prepared, "pressure", interval_for="table")
        np.testing.assert_allclose(result.covariance, plain.covariance, rtol=1e-9)


def test_shrunken_is_hardly_worse_than_the_mean_where_nothing_is_associated() -> None:
    A = sample(3000, np.random.default_rng(6))
    A[:, -1] = np.random.default_rng(7).permutation(A[:, -1])
    losses, random, variance = [], np.random.default_rng(8), variances(60.0, 5)
    for _ in range(120):
        moments = release(A.T @ A + symmetric(variance, random), variance, ABCY)
        fits = [
            fit_prepared(PreparedMoments.of(moments, ABCY), "y", estimator=e) for e in ("shrunken", "constant", "ols")
        ]
        columns = {a.name: A[:, i + 1] for i, a in enumerate(ABCY)}
        losses.append([np.var(A[:, -1] - f.predict(columns, extrapolate=True)) / np.var(A[:, -1]) for f in fits])
    shrunken, constant, ols = np.mean(losses, axis=0)
    # standard error of the difference below 0.0065
    assert shrunken - constant < 0.03
    assert ols - constant > 0.06


def test_shrunken_beats_the_mean_where_there_is_signal_that_ols_cannot_use() -> None:
    y, losses = TABLE.rows["pressure"], []
    for seed in range(30):
        fits = [
            fit_prepared(PreparedMoments.of(noisy(150.0, seed), TABLE.schema), "pressure", estimator=e)
            for e in ESTIMATORS
        ]
        losses.append([np.mean((y - f.predict(TABLE.rows, extrapolate=True)) ** 2) / y.var() for f in fits])
    ols, damped, shrunken, constant = np.mean(losses, axis=0)
    assert max(damped, shrunken) < 0.9 * constant
    assert constant < ols


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 3999},
        {"entry_variance": ((0.0,),)},
        {"entry_variance": tuple(map(tuple, (variances(1.0) + np.triu(np.ones(S.shape), 1)).tolist()))},
        {"entry_variance": tuple(map(tuple, (variances(1.0) + 1.0).tolist()))},
    ],
    ids=["another count", "too few", "not symmetric", "noisy count"],
)
def test_moments_that_contradict_themselves_are_refused(changes: dict[str, Any]) -> None:
    document = SecondMoments.model_validate(noisy(1.0).model_dump() | changes)
    with pytest.raises(errors.MomentsMismatchError):
        PreparedMoments.of(document, TABLE.schema)


def test_summary_and_json_of_a_moments_fit_name_it() -> None:
    result = fit_prepared(PreparedMoments.of(noisy(5.0), TABLE.schema), "pressure")
    assert result.to_dict()["mechanism"] == "moments"
    assert "mechanism moments" in result.summary()
    assert "published rows" not in result.summary()


@pytest.mark.parametrize(("ratio", "told"), [(1.9996, "1.99"), (1.96, "1.96")])
def test_signal_that_is_just_too_faint_is_told_as_less_than_enough(ratio: float, told: str) -> None:
    def stating(sd: float) -> Fit:
        return fit_prepared(PreparedMoments.of(release(S, variances(sd)), TABLE.schema), "pressure")

    found = stating(1.0).diagnostics.signal_to_noise
    assert found is not None
    faint = stating(found / ratio)
    assert faint.diagnostics.signal_to_noise == pytest.approx(ratio, abs=1e-4)
    require_said(
        faint, "population", [f"varies only {told} times as much as the noise may (signal_to_noise; 2 is enough)"]
    )
