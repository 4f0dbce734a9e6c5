"""Analyses of a release without noise: those of scikit-learn and statsmodels on the rows; what is refused."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.decomposition import PCA
from sklearn.linear_model import ElasticNet, Ridge
from statsmodels.sandbox.regression.gmm import IV2SLS

from commingle.services.analysis import compare, lasso_path, partial_correlations, pca, ridge_path, two_stage
from commingle.services.errors import InstrumentsError, NestedError, NoSignalError, PenaltyError
from commingle.services.fit import PreparedMoments, fit_prepared
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.errors import (
    CategoricalTargetError,
    ConfidenceError,
    FeaturesError,
    TargetAmongFeaturesError,
    UnknownAttributeError,
)
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.method import IntervalFor
from tests.shared.estimation.tables import TERMS, Table, make_table, moments_of, noiseless

TABLE = make_table(400)
EXACT = PreparedMoments.of(noiseless(TABLE), TABLE.schema)
LABELS = (*TERMS[1:], "pressure")


def on_standardised_rows(model: Any) -> Array:
    """Intercept and slopes in original units of a scikit-learn model fitted to columns of variance 1."""
    columns = TABLE.original[:, 1:]
    means, deviations = columns.mean(axis=0), columns.std(axis=0)
    Z = (columns - means) / deviations
    slopes = model.fit(Z[:, :-1], Z[:, -1]).coef_ * deviations[-1] / deviations[:-1]
    return np.append(means[-1] - means[:-1] @ slopes, slopes)


@pytest.mark.parametrize("penalty", [10.0, 0.3, 1e-3])
def test_ridge_without_noise_is_that_of_the_rows(penalty: float) -> None:
    path = ridge_path(EXACT, "pressure", penalties=[penalty])
    assert path.terms == TERMS
    expected = on_standardised_rows(Ridge(alpha=penalty * len(TABLE.original), fit_intercept=False))
    np.testing.assert_allclose(path.coefficients[0], expected, rtol=1e-9)


@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
def test_lasso_and_elastic_net_without_noise_are_those_of_the_rows(l1_ratio: float) -> None:
    penalties = [0.5, 0.1, 0.01]
    path = lasso_path(EXACT, "pressure", l1_ratio=l1_ratio, penalties=penalties[::-1])
    np.testing.assert_array_equal(path.penalties, penalties)
    for penalty, coefficients in zip(penalties, path.coefficients, strict=True):
        model = ElasticNet(alpha=penalty, l1_ratio=l1_ratio, fit_intercept=False, tol=1e-10, max_iter=100_000)
        np.testing.assert_allclose(coefficients, on_standardised_rows(model), atol=1e-4)


def test_default_lasso_path_begins_where_the_first_feature_enters() -> None:
    path = lasso_path(EXACT, "pressure")
    np.testing.assert_allclose(path.coefficients[0, 1:], 0, atol=1e-9)
    assert np.count_nonzero(path.coefficients[1, 1:]) == 1
    assert np.count_nonzero(path.coefficients[-1, 1:]) == 5


def test_end_of_the_ridge_path_without_noise_is_least_squares_with_its_expected_r_squared() -> None:
    path = ridge_path(EXACT, "pressure", penalties=[1e-9])
    fit = fit_prepared(EXACT, "pressure")
    assert fit.diagnostics.r_squared is not None
    np.testing.assert_allclose(path.coefficients[0], fit.coefficients, rtol=1e-7)
    assert path.r_squared[0] == pytest.approx(fit.diagnostics.r_squared, abs=1e-7)
    np.testing.assert_allclose(path.predict(TABLE.rows), fit.predict(TABLE.rows), rtol=1e-7)


@pytest.mark.parametrize("standardise", [True, False])
def test_components_without_noise_are_those_of_the_rows(standardise: bool) -> None:
    rows = TABLE.encoded[:, 1:]
    expected = PCA().fit(rows / rows.std(axis=0, ddof=1) if standardise else rows)
    found = pca(EXACT, standardise=standardise)
    assert found.labels == LABELS
    np.testing.assert_allclose(found.variances, expected.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(found.shares, expected.explained_variance_ratio_, rtol=1e-9)
    np.testing.assert_allclose(np.abs(found.loadings), np.abs(expected.components_), atol=1e-8)
    assert np.isnan(found.signal_to_noise).all()


def test_partial_correlations_without_noise_follow_from_the_t_values_of_least_squares() -> None:
    found = partial_correlations(EXACT, interval_for="table")
    assert found.labels == LABELS
    fit = sm.OLS(TABLE.original[:, -1], TABLE.original[:, :-1]).fit()
    t = fit.tvalues[1:]
    expected = t / np.sqrt(t**2 + fit.df_resid)
    np.testing.assert_allclose(found.values[-1, :-1], expected, rtol=1e-8)
    np.testing.assert_allclose(found.standard_errors[-1, :-1], (1 - expected**2) / np.sqrt(399), rtol=1e-8)


def test_partial_correlations_of_dgm_without_noise_have_no_error_around_the_table() -> None:
    prepared = PreparedMoments.of(noiseless(TABLE, "dgm"), TABLE.schema)
    errors = partial_correlations(prepared, interval_for="table").standard_errors[np.triu_indices(6, 1)]
    np.testing.assert_allclose(errors, 0, atol=1e-7)


def test_comparison_without_noise_is_the_f_test() -> None:
    y, design = TABLE.original[:, -1], TABLE.original[:, :-1]
    expected = sm.OLS(y, design).fit().compare_f_test(sm.OLS(y, design[:, :3]).fit())
    found = compare(EXACT, "pressure", None, ["age", "dose"], interval_for="table")
    assert found.terms == ("sex[male]", "site[east]", "site[south]")
    assert found.statistic == pytest.approx(expected[0], rel=1e-8)
    assert found.p_value == pytest.approx(expected[1], rel=1e-6)
    assert found.degrees_of_freedom == (3, 394)


def test_comparison_with_the_mean_alone_is_the_f_test_of_the_whole_fit() -> None:
    found = compare(EXACT, "pressure", ["age", "site"], [], interval_for="table")
    fit = sm.OLS(TABLE.original[:, -1], TABLE.original[:, [0, 1, 4, 5]]).fit()
    assert found.statistic == pytest.approx(fit.fvalue, rel=1e-8)
    assert found.r_squared_smaller == pytest.approx(0, abs=0.02)


def instrumented(n: int = 500, seed: int = 3) -> Table:
    """The dose follows age, and both dose and pressure something unseen."""
    table, rng = make_table(n), np.random.default_rng(seed)
    unseen = rng.normal(size=n)
    dose = 0.02 * table.rows["age"] + 0.4 * (table.rows["site"] == "east") + 0.3 * unseen + rng.normal(0, 0.1, n)
    pressure = 100 + 20 * dose + 6 * (table.rows["sex"] == "male") + 9 * unseen
    return Table({**table.rows, "dose": dose, "pressure": pressure})


@pytest.mark.parametrize("mechanism", ["rmgm", "dgm"])
def test_two_stages_without_noise_are_those_of_the_rows(mechanism: Any) -> None:
    table = instrumented()
    prepared = PreparedMoments.of(noiseless(table, mechanism), table.schema)
    found = two_stage(
        prepared,
        "pressure",
        endogenous=["dose"],
        exogenous=["sex"],
        instruments=["age", "site"],
        interval_for="table" if mechanism == "rmgm" else "population",
        confidence_level=0.9,
    )
    design = table.original
    expected = IV2SLS(design[:, -1], design[:, [0, 2, 3]], design[:, [0, 3, 1, 4, 5]]).fit()
    assert found.fit.terms == ("(intercept)", "dose", "sex[male]")
    np.testing.assert_allclose(found.fit.coefficients, expected.params, rtol=1e-8)
    np.testing.assert_allclose(found.fit.covariance, expected.cov_params(), rtol=1e-7)
    np.testing.assert_allclose(found.fit.intervals, expected.conf_int(alpha=0.1), rtol=1e-7)
    assert found.first_stages[0].statistic > 100
    assert found.fit.warnings == ()


IV: dict[str, Any] = {"endogenous": ["dose"], "instruments": ["age"]}


@pytest.mark.parametrize(
    ("analyse", "asked", "error", "says"),
    [
        *(
            (ridge_path, {"target": "pressure", "penalties": penalties}, PenaltyError, "penalties")
            for penalties in ([], [0.0], [-1.0], [float("nan")], [float("inf")], [0.1] * 201, [[0.1]])
        ),
        *(
            (lasso_path, {"target": "pressure", "l1_ratio": l1_ratio}, PenaltyError, "l1_ratio")
            for l1_ratio in (0.0, 1.1, float("nan"))
        ),
        *(
            (
                compare,
                {"target": "pressure", "larger": ["age", "dose"], "smaller": smaller},
                NestedError,
                "smaller model",
            )
            for smaller in (["age", "dose"], ["sex"], ["age", "sex"], None)
        ),
        *(
            (two_stage, {"target": "pressure", **IV, **roles}, error, ".")
            for roles, error in (
                ({"endogenous": []}, InstrumentsError),
                ({"instruments": []}, InstrumentsError),
                ({"endogenous": ["dose", "sex"]}, InstrumentsError),
                ({"instruments": ["dose"]}, FeaturesError),
                ({"instruments": ["pressure"]}, TargetAmongFeaturesError),
                ({"endogenous": ["site"], "instruments": ["age", "sex", "dose"]}, CategoricalTargetError),
                ({"exogenous": ["height"]}, UnknownAttributeError),
            )
        ),
        (pca, {"attributes": ["age", "height"]}, UnknownAttributeError, "height"),
        (partial_correlations, {"attributes": []}, FeaturesError, "no attributes are named, or one twice"),
        (partial_correlations, {"attributes": ["age", "age"]}, FeaturesError, "no attributes are named, or one twice"),
        (partial_correlations, {"interval_for": "sample"}, ConfidenceError, "'sample'"),
    ],
)
def test_what_cannot_be_analysed_is_refused(
    analyse: Callable[..., object], asked: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        analyse(EXACT, **asked)


@pytest.mark.parametrize("at", [999, -1, "0"])
def test_penalty_that_a_path_does_not_have_is_refused(at: Any) -> None:
    path = ridge_path(EXACT, "pressure", ["age"], penalties=[1.0, 0.1])
    with pytest.raises(PenaltyError, match="no penalty number") as refused:
        path.predict({"age": [40.0]}, at=at)
    assert refused.value.remedy == "Give a number from 0 to 1."


@pytest.mark.parametrize(
    ("target", "features", "error"),
    [
        (None, None, UnknownAttributeError),
        (3, None, UnknownAttributeError),
        (["pressure"], None, UnknownAttributeError),
        ("pressure", [1], UnknownAttributeError),
        ("pressure", 1, FeaturesError),
    ],
)
def test_name_that_is_no_text_is_refused_as_unknown(target: Any, features: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        fit_prepared(EXACT, target, features)


def test_column_without_variance_beside_the_noise_is_refused_by_name() -> None:
    gram = np.diag([100.0, 400.0, 100.0])
    schema = TABLE.schema[:2]
    prepared = PreparedMoments.of(moments_of(gram, schema, noise=2.0, rows=100, n=1000), schema)
    with pytest.raises(NoSignalError, match="dose"):
        pca(prepared)


@pytest.mark.parametrize(
    "result",
    [
        ridge_path(EXACT, "pressure"),
        lasso_path(EXACT, "pressure", penalties=[0.1, 0.2]),
        pca(EXACT),
        partial_correlations(EXACT),
        compare(EXACT, "pressure", None, []),
        two_stage(EXACT, "pressure", endogenous=["dose"], instruments=["site"]),
    ],
    ids=lambda result: type(result).__name__,
)
def test_result_becomes_json_a_frame_and_html(result: Any) -> None:
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert result.to_dict()["warnings"] == list(result.warnings)
    frame = result.to_frame()
    assert list(frame.columns) == [column.heading for column in result.table().columns]
    assert result._repr_html_().count("<tr") == len(frame) + 1


def alike(apart: float, noise: float) -> PreparedMoments:
    """60 features, each the one before it and a step, and a label that has nothing to do with them."""
    draw = np.random.default_rng(0)
    steps = np.cumsum(draw.normal(size=(400, 60)), axis=1)
    rows = np.column_stack([draw.normal(size=(400, 1)) / apart + steps, draw.normal(size=400)])
    columns = np.column_stack([np.ones(400), rows / np.abs(rows).max(axis=0)])
    schema = tuple(NumericAttribute(name=f"x{i}", lower=-1, upper=1) for i in range(61))
    return PreparedMoments.of(moments_of(columns.T @ columns, schema, noise=noise, rows=400, n=400), schema)


NEXT_TO_NOTHING = np.geomspace(1e-200, 1e-300, 200).tolist()


@pytest.mark.slow
def test_path_that_cannot_be_finished_in_time_says_so() -> None:
    """Small penalties on features of which each nearly is the one before it."""
    released = alike(1e-2, 1e-9)
    for penalties in (NEXT_TO_NOTHING, np.geomspace(1e-3, 1e-6, 200).tolist()):
        path = lasso_path(released, "x60", penalties=penalties)
        assert any(said.startswith("For 200 of 200 penalties the coefficients are not exact") for said in path.warnings)
    assert not any("not exact" in said for said in lasso_path(released, "x60", penalties=[0.5, 0.2]).warnings)


def test_lasso_of_penalties_below_all_rounding_is_least_squares_and_says_nothing_of_time() -> None:
    released = alike(1e3, 1e-3)
    path = lasso_path(released, "x60", penalties=NEXT_TO_NOTHING)
    plain = ridge_path(released, "x60", penalties=[1e-300])
    assert path.coefficients == pytest.approx(np.tile(plain.coefficients, (200, 1)), abs=1e-9)
    assert path.warnings == plain.warnings


@pytest.mark.parametrize("interval_for", ["table", "population"])
def test_summary_of_a_comparison_says_what_p_asks_and_prints_a_small_one_as_below_a_thousandth(
    interval_for: IntervalFor,
) -> None:
    shown = compare(EXACT, "pressure", None, ["age"], interval_for=interval_for).table()
    assert shown.columns[-1].numerals()[-1] == "<0.001"
    assert ("these very rows" in shown.notes[1]) is (interval_for == "table")
