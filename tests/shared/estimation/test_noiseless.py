"""Without noise and with the identity projection statsmodels is the oracle."""

from typing import Any, Literal

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

from commingle.services.fit import FitRequest, fit
from tests.shared.estimation.tables import TERMS, Table, make_table, noiseless

EXACT = ("measurement_error", "adaptive_ridge", "shrunken")
RIDGED = ("ols", "debiased")
TABLE = make_table(400)


def oracle(table: Table, *, intercept: bool = True) -> Any:
    """Statsmodels' fit of the last column in original units."""
    design = table.original
    return sm.OLS(design[:, -1], design[:, 0 if intercept else 1 : -1]).fit()


def pressure(estimator: str, *, intercept: bool = True, level: float = 0.95) -> FitRequest:
    return FitRequest(target="pressure", estimator=estimator, intercept=intercept, confidence_level=level)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("estimator", EXACT)
def test_exact_estimators_without_noise_give_least_squares(estimator: str, intercept: bool) -> None:
    result = fit(noiseless(TABLE), TABLE.schema, pressure(estimator, intercept=intercept))
    assert result.terms == TERMS[0 if intercept else 1 :]
    np.testing.assert_allclose(result.coefficients, oracle(TABLE, intercept=intercept).params, rtol=1e-10)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("estimator", RIDGED)
def test_ridged_estimators_without_noise_are_off_by_their_ridge_only(estimator: str, intercept: bool) -> None:
    result = fit(noiseless(TABLE), TABLE.schema, pressure(estimator, intercept=intercept))
    expected = oracle(TABLE, intercept=intercept)
    np.testing.assert_allclose(result.coefficients, expected.params, rtol=2e-3)
    np.testing.assert_allclose(result.standard_errors, expected.bse, rtol=1e-3)


@pytest.mark.parametrize("estimator", RIDGED)
def test_ridge_is_the_one_of_the_paper_in_encoded_units(estimator: str) -> None:
    A = TABLE.encoded
    x, y, n = A[:, :-1], A[:, -1], len(A)
    b = np.linalg.solve(x.T @ x / n + 1e-5 * np.eye(x.shape[1]), x.T @ y / n)
    result = fit(noiseless(TABLE), TABLE.schema, pressure(estimator))
    # a step of one original unit in age (half range 40) moves pressure (half range 100) by 100 b / 40
    np.testing.assert_allclose(result.coefficients[1], 100 * b[1] / 40, rtol=1e-10)
    np.testing.assert_allclose(result.predict(TABLE.rows), 160 + 100 * (x @ b), rtol=1e-10)


@pytest.mark.parametrize("intercept", [True, False])
def test_measurement_error_without_noise_gives_the_intervals_of_least_squares(intercept: bool) -> None:
    result = fit(noiseless(TABLE), TABLE.schema, pressure("measurement_error", intercept=intercept, level=0.9))
    expected = oracle(TABLE, intercept=intercept)
    np.testing.assert_allclose(result.covariance, expected.cov_params(), rtol=1e-8)
    np.testing.assert_allclose(result.intervals, expected.conf_int(alpha=0.1), rtol=1e-8)
    np.testing.assert_allclose(result.p_values, expected.pvalues, rtol=1e-7, atol=1e-300)
    assert result.degrees_of_freedom == expected.df_resid


def test_f_test_without_noise_is_the_one_of_least_squares() -> None:
    diagnostics = fit(noiseless(TABLE), TABLE.schema, pressure("measurement_error")).diagnostics
    expected = oracle(TABLE)
    assert diagnostics.f_statistic == pytest.approx(expected.fvalue, rel=1e-9)
    assert diagnostics.f_p_value == pytest.approx(expected.f_pvalue, rel=1e-6)
    assert diagnostics.root is diagnostics.signal_to_noise is None


def test_dgm_without_noise_has_no_error_around_the_table_and_the_usual_one_around_the_population() -> None:
    moments = noiseless(TABLE, "dgm")
    table = fit(moments, TABLE.schema, FitRequest(target="pressure"))
    population = fit(moments, TABLE.schema, FitRequest(target="pressure", interval_for="population"))
    assert (table.interval_for, population.interval_for) == ("table", "population")
    np.testing.assert_allclose(table.standard_errors, 0.0, atol=1e-12)
    np.testing.assert_allclose(population.standard_errors, oracle(TABLE).bse, rtol=1e-8)


def test_constant_without_noise_is_the_mean_with_its_standard_error() -> None:
    result = fit(noiseless(TABLE), TABLE.schema, pressure("constant"))
    y = TABLE.rows["pressure"]
    expected = sm.OLS(y, np.ones(len(y))).fit()
    assert result.terms == ("(intercept)",)
    np.testing.assert_allclose(result.coefficients, expected.params, rtol=1e-10)
    np.testing.assert_allclose(result.intervals, expected.conf_int(), rtol=1e-8)
    np.testing.assert_allclose(result.predict({"age": [1.0, 2.0]}), [y.mean()] * 2, rtol=1e-10)


def test_binary_target_is_a_linear_probability_model() -> None:
    result = fit(noiseless(TABLE), TABLE.schema, FitRequest(target="sex", features=("pressure", "site")))
    design = TABLE.original
    expected = sm.OLS(design[:, 3], design[:, [0, 6, 4, 5]]).fit()
    assert result.terms == ("(intercept)", "pressure", "site[east]", "site[south]")
    np.testing.assert_allclose(result.coefficients, expected.params, rtol=1e-9)


def test_predictions_in_original_units_are_those_of_least_squares() -> None:
    result = fit(noiseless(TABLE), TABLE.schema, pressure("measurement_error"))
    np.testing.assert_allclose(result.predict(TABLE.rows), oracle(TABLE).fittedvalues, rtol=1e-10)


@given(
    lower=st.floats(-1e3, 17.0),
    width=st.floats(100.0, 1e4),
    intercept=st.booleans(),
    estimator=st.sampled_from(EXACT),
    mechanism=st.sampled_from(["rmgm", "dgm"]),
)
@settings(max_examples=60, deadline=None)
def test_fit_without_noise_does_not_depend_on_the_bounds_of_the_schema(
    lower: float, width: float, intercept: bool, estimator: str, mechanism: Literal["rmgm", "dgm"]
) -> None:
    wider = TABLE.with_bounds("age", lower, lower + width).with_bounds("pressure", lower, lower + 2 * width)
    request = FitRequest(target="pressure", estimator=estimator, intercept=intercept, interval_for="population")
    one = fit(noiseless(TABLE, mechanism), TABLE.schema, request)
    two = fit(noiseless(wider, mechanism), wider.schema, request)
    np.testing.assert_allclose(one.coefficients, two.coefficients, rtol=1e-6)
    np.testing.assert_allclose(one.standard_errors, two.standard_errors, rtol=1e-6)
