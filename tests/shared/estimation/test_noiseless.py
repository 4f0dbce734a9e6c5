"""Without noise and with the identity projection: statsmodels is the oracle, and least squares on marked columns."""

from typing import Any, Literal

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

from commingle.services.fit import Fit, PreparedMoments, fit_prepared
from commingle.services.fit.predicting import public_ranges, term_matrix
from commingle.shared.documents.model import canonical_json
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    NumericAttribute,
    encoded_columns,
    parse_attributes,
    words_for_missing,
)
from commingle.shared.errors import SpecError
from tests.shared.estimation.tables import TERMS, Array, make_table, moments_of, noiseless, oracle

EXACT = ("measurement_error", "adaptive_ridge", "shrunken")
RIDGED = ("ols", "debiased")
TABLE = make_table(400)
N = 600
BMI = NumericAttribute(name="bmi", lower=15, upper=45, unit="kg/m²", missing="indicator")
SMOKER = BinaryAttribute(name="smoker", levels=("no", "yes"), missing="indicator")
WARD = CategoricalAttribute(name="ward", levels=("north", "east", "south"), missing="indicator")
COST = NumericAttribute(name="cost", lower=0, upper=100)
MARKED: tuple[Attribute, ...] = (BMI, SMOKER, WARD, COST)
MARKED_TERMS = (
    "(intercept)",
    "bmi",
    "bmi[missing]",
    "smoker[yes]",
    "smoker[missing]",
    "ward[east]",
    "ward[south]",
    "ward[missing]",
)


def pressure(estimator: str, *, intercept: bool = True, level: float = 0.95) -> Fit:
    exact = PreparedMoments.of(noiseless(TABLE), TABLE.schema)
    asked: dict[str, Any] = {"estimator": estimator, "intercept": intercept, "confidence_level": level}
    return fit_prepared(exact, "pressure", interval_for="table", **asked)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("estimator", EXACT)
def test_exact_estimators_without_noise_give_least_squares(estimator: str, intercept: bool) -> None:
    result = pressure(estimator, intercept=intercept)
    assert result.terms == TERMS[0 if intercept else 1 :]
    np.testing.assert_allclose(result.coefficients, oracle(TABLE, intercept=intercept).params, rtol=1e-10)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("estimator", RIDGED)
def test_ridged_estimators_without_noise_are_off_by_their_ridge_only(estimator: str, intercept: bool) -> None:
    result = pressure(estimator, intercept=intercept)
    expected = oracle(TABLE, intercept=intercept)
    np.testing.assert_allclose(result.coefficients, expected.params, rtol=2e-3)
    np.testing.assert_allclose(result.standard_errors, expected.bse, rtol=1e-3)


@pytest.mark.parametrize("estimator", RIDGED)
def test_ridge_is_the_one_of_the_paper_in_encoded_units(estimator: str) -> None:
    A = TABLE.encoded
    x, y, n = A[:, :-1], A[:, -1], len(A)
    b = np.linalg.solve(x.T @ x / n + 1e-5 * np.eye(x.shape[1]), x.T @ y / n)
    result = pressure(estimator)
    # a step of one original unit in age (half range 40) moves pressure (half range 100) by 100 b / 40
    np.testing.assert_allclose(result.coefficients[1], 100 * b[1] / 40, rtol=1e-10)
    np.testing.assert_allclose(result.predict(TABLE.rows), 160 + 100 * (x @ b), rtol=1e-10)


@pytest.mark.parametrize("intercept", [True, False])
def test_measurement_error_without_noise_gives_the_intervals_of_least_squares(intercept: bool) -> None:
    result = pressure("measurement_error", intercept=intercept, level=0.9)
    expected = oracle(TABLE, intercept=intercept)
    np.testing.assert_allclose(result.covariance, expected.cov_params(), rtol=1e-8)
    np.testing.assert_allclose(result.intervals, expected.conf_int(alpha=0.1), rtol=1e-8)
    np.testing.assert_allclose(result.p_values, expected.pvalues, rtol=1e-7, atol=1e-300)
    assert result.degrees_of_freedom == expected.df_resid


def test_f_test_without_noise_is_the_one_of_least_squares() -> None:
    diagnostics = pressure("measurement_error").diagnostics
    expected = oracle(TABLE)
    assert diagnostics.f_statistic == pytest.approx(expected.fvalue, rel=1e-9)
    assert diagnostics.f_p_value == pytest.approx(expected.f_pvalue, rel=1e-6)
    assert diagnostics.root is diagnostics.signal_to_noise is None


def test_dgm_without_noise_has_no_error_around_the_table_and_the_usual_one_around_the_population() -> None:
    moments = noiseless(TABLE, "dgm")
    table = fit_prepared(PreparedMoments.of(moments, TABLE.schema), "pressure", interval_for="table")
    population = fit_prepared(PreparedMoments.of(moments, TABLE.schema), "pressure", interval_for="population")
    assert (table.interval_for, population.interval_for) == ("table", "population")
    np.testing.assert_allclose(table.standard_errors, 0.0, atol=1e-12)
    np.testing.assert_allclose(population.standard_errors, oracle(TABLE).bse, rtol=1e-8)


def test_constant_without_noise_is_the_mean_with_its_standard_error() -> None:
    result = pressure("constant")
    y = TABLE.rows["pressure"]
    expected = sm.OLS(y, np.ones(len(y))).fit()
    assert result.terms == ("(intercept)",)
    np.testing.assert_allclose(result.coefficients, expected.params, rtol=1e-10)
    np.testing.assert_allclose(result.intervals, expected.conf_int(), rtol=1e-8)
    np.testing.assert_allclose(result.predict({"age": [1.0, 2.0]}), [y.mean()] * 2, rtol=1e-10)


def test_binary_target_is_a_linear_probability_model() -> None:
    result = fit_prepared(PreparedMoments.of(noiseless(TABLE), TABLE.schema), "sex", features=("pressure", "site"))
    design = TABLE.original
    expected = sm.OLS(design[:, 3], design[:, [0, 6, 4, 5]]).fit()
    assert result.terms == ("(intercept)", "pressure", "site[east]", "site[south]")
    np.testing.assert_allclose(result.coefficients, expected.params, rtol=1e-9)


def test_predictions_in_original_units_are_those_of_least_squares() -> None:
    result = pressure("measurement_error")
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
    one, two = (
        fit_prepared(
            PreparedMoments.of(noiseless(table, mechanism), table.schema),
            "pressure",
            estimator=estimator,
            intercept=intercept,
            interval_for="population",
        )
        for table in (TABLE, wider)
    )
    np.testing.assert_allclose(one.coefficients, two.coefficients, rtol=1e-6)
    np.testing.assert_allclose(one.standard_errors, two.standard_errors, rtol=1e-6)


def rows(seed: int = 0) -> dict[str, list[float | None] | list[str | None]]:
    draw = np.random.default_rng(seed)
    gone = draw.uniform(size=(3, N)) < 0.2
    bmi = [None if g else float(v) for g, v in zip(gone[0], draw.uniform(15, 45, N), strict=True)]
    smoker = [None if g else str(v) for g, v in zip(gone[1], draw.choice(["no", "yes"], N), strict=True)]
    ward = [None if g else str(v) for g, v in zip(gone[2], draw.choice(WARD.levels, N), strict=True)]
    return {"bmi": bmi, "smoker": smoker, "ward": ward}


def columns(table: dict[str, list[float | None] | list[str | None]]) -> Array:
    """The features in original units as the page on encoding says, worked out by hand, the intercept first."""
    bmi = [30.0 if v is None else v for v in table["bmi"]]
    smoker = [{None: 0.5, "no": 0.0, "yes": 1.0}[v] for v in table["smoker"]]  # type: ignore[index] # its levels
    wards = [[v == level for v in table["ward"]] for level in WARD.levels[1:]]
    marks = [[v is None for v in table[name]] for name in ("bmi", "smoker", "ward")]
    return np.column_stack([np.ones(N), bmi, marks[0], smoker, marks[1], *wards, marks[2]]).astype(float)


def fitted(features: tuple[str, ...] | None = None) -> Fit:
    table, draw = columns(rows()), np.random.default_rng(1)
    cost = 20 + table[:, 1] * 0.8 + 5 * table[:, 2] + 9 * table[:, 3] - 4 * table[:, 5] + draw.normal(0, 3, N)
    original = np.column_stack([table, cost])
    found = encoded_columns(MARKED)
    offset, scale = (
        np.array([first, *(getattr(c, name) for c in found)]) for first, name in ((0, "offset"), (1, "scale"))
    )
    encoded = (original - offset) / scale
    moments = moments_of(encoded.T @ encoded, MARKED, noise=0.0, rows=N, n=N)
    return fit_prepared(PreparedMoments.of(moments, MARKED), "cost", features=features)


def test_values_and_marks_are_fitted_as_columns_of_their_own() -> None:
    result = fitted()
    table, draw = columns(rows()), np.random.default_rng(1)
    cost = 20 + table[:, 1] * 0.8 + 5 * table[:, 2] + 9 * table[:, 3] - 4 * table[:, 5] + draw.normal(0, 3, N)
    table[:, 3] *= 1 - table[:, 4]  # smoker is 0 where it is missing: its mark is against the first level
    expected = np.linalg.lstsq(table, cost, rcond=None)[0]
    assert result.terms == MARKED_TERMS
    np.testing.assert_allclose(result.coefficients, expected, rtol=1e-8)
    np.testing.assert_allclose(result.predict(rows()), table @ expected, rtol=1e-9)


def test_slope_of_the_cells_that_are_there_is_found_although_the_others_are_far_from_the_midpoint() -> None:
    """What the midpoint alone bends: the cost of people without a BMI is nowhere near that of the midpoint."""
    draw = np.random.default_rng(3)
    bmi, gone = draw.uniform(15, 25, N), draw.uniform(size=N) < 0.3
    cost = 10 + 2 * bmi + draw.normal(0, 1, N)
    slopes = {}
    for rule in ("midpoint", "indicator"):
        schema = (BMI.model_copy(update={"missing": rule}), COST)
        value = np.where(gone, 0.0, (bmi - 30) / 15)
        marks = [gone] if rule == "indicator" else []
        encoded = np.column_stack([np.ones(N), value, *marks, (cost - 50) / 50]).astype(float)
        moments = moments_of(encoded.T @ encoded, schema, noise=0.0, rows=N, n=N)
        slopes[rule] = fit_prepared(PreparedMoments.of(moments, schema), "cost", features=("bmi",)).coefficients[1]
    assert slopes["indicator"] == pytest.approx(2, abs=0.1)
    assert abs(slopes["midpoint"]) < 1


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_rows_to_predict_may_lack_what_is_marked(missing: float | None) -> None:
    made = term_matrix(
        {"bmi": [20.0, missing], "smoker": ["yes", None], "ward": ["east", None]}, MARKED[:3], intercept=True
    )
    assert made.tolist() == [[1, 20, 0, 1, 0, 1, 0, 0], [1, 30, 1, 0, 1, 0, 0, 1]]
    numbers = term_matrix({"bmi": np.array([20, np.nan], np.float32)}, MARKED[:1], intercept=False)
    assert numbers.tolist() == [[20, 0], [30, 1]]
    assert public_ranges(MARKED[:3]).tolist() == [30, 1, 1, 1, 1, 1, 1]


def test_what_becomes_of_missing_cells_is_said_with_every_fit() -> None:
    marked = "bmi: missing cells are marked in a column of their own, bmi[missing]"
    text = f"{marked}, which is compared with bmi = 30, the middle of its bounds"
    result = fitted(features=("bmi",))
    assert result.imputed == (text,)
    assert text in " ".join(result.summary().split())
    assert text in result._repr_html_()


def test_words_tell_the_stand_in_and_the_count_for_its_owner() -> None:
    midpoint = BMI.model_copy(update={"missing": "midpoint"})
    assert words_for_missing(midpoint) == "bmi: missing cells count as the midpoint 30 kg/m²"
    assert words_for_missing(midpoint, 1201) == "bmi: 1,201 missing cells count as the midpoint 30 kg/m²"
    binary = SMOKER.model_copy(update={"missing": "midpoint"})
    assert words_for_missing(binary, 2) == "smoker: 2 missing cells count as halfway between no and yes"
    assert words_for_missing(midpoint, 0) is None
    assert words_for_missing(COST) is None


def test_marks_are_columns_that_no_level_can_be_taken_for() -> None:
    assert [c.name for c in encoded_columns(MARKED)][:4] == ["bmi", "bmi=missing", "smoker", "smoker=missing"]
    for levels in ('"binary", "levels": ["no", "missing"]', '"categorical", "levels": ["a", "b", "missing"]'):
        schema = f'[{{"kind": {levels}, "name": "x", "missing": "%s"}}]'
        for rule in ("indicator", "error"):
            with pytest.raises(SpecError, match=r'a level is called missing, .* leave it out: .*"indicator"'):
                parse_attributes((schema % rule).encode())
    parse_attributes(b'[{"kind": "binary", "levels": ["no", "Missing"], "name": "x", "missing": "indicator"}]')
    with pytest.raises(SpecError):
        parse_attributes(b'[{"kind": "categorical", "levels": ["a", "b", "c"], "name": "x", "missing": "midpoint"}]')


def test_levels_without_marks_keep_the_bytes_they_had() -> None:
    plain = CategoricalAttribute(name="ward", levels=WARD.levels)
    said = canonical_json(plain.model_dump(mode="json"))
    assert said == b'{"kind":"categorical","levels":["north","east","south"],"name":"ward"}'
    assert canonical_json(WARD.model_dump(mode="json")).endswith(b'"missing":"indicator","name":"ward"}')
