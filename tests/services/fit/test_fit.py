"""Bad input gets its own error; predictions stay within public bounds, and say so, unless asked to extrapolate."""

import json
from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import statsmodels.api as sm
from numpy.random import default_rng

from commingle.services.analysis import compare, partial_correlations, two_stage
from commingle.services.fit import ESTIMATORS, Fit, PreparedMoments, fit_prepared
from commingle.services.fit.predicting import OutsideBoundsWarning, Predictor, Values, level_places, term_matrix
from commingle.services.learner.requests import QUESTIONS
from commingle.services.models import glm
from commingle.shared import errors
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, Intervals, NumericAttribute
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.encoding import encode_attribute
from tests.shared.estimation.tables import SCHEMA, Table, make_table, noiseless, rmgm
from tests.world.categorical import release_of

TABLE = make_table(2000)
MOMENTS = noiseless(TABLE)


@pytest.mark.parametrize(
    ("request_", "error", "says"),
    [
        ({"target": "presure"}, errors.UnknownAttributeError, "Did you mean 'pressure'?"),
        ({"target": "age", "features": ("doze",)}, errors.UnknownAttributeError, "Available: age, dose, sex"),
        ({"target": "age", "estimator": "old"}, errors.UnknownEstimatorError, "Available: measurement_error"),
        ({"target": "site"}, errors.CategoricalTargetError, "numeric or binary"),
        ({"target": "age", "features": ("age", "sex")}, errors.TargetAmongFeaturesError, "'age' is both"),
        ({"target": "age", "features": ("sex", "sex")}, errors.FeaturesError, "'sex' is named twice"),
        ({"target": "age", "features": ()}, errors.FeaturesError, "constant"),
        ({"target": "age", "estimator": "constant", "intercept": False}, errors.InterceptError, "intercept"),
        ({"target": "age", "confidence_level": 95.0}, errors.ConfidenceError, "0.95"),
        ({"target": "age", "confidence_level": float("nan")}, errors.ConfidenceError, "0.95"),
        ({"target": "age", "interval_for": "sample"}, errors.ConfidenceError, "'table' or 'population'"),
    ],
)
def test_bad_request_gets_its_own_error(
    request_: dict[str, Any], error: type[errors.EstimationError], says: str
) -> None:
    with pytest.raises(error) as caught:
        fit_prepared(PreparedMoments.of(MOMENTS, SCHEMA), **request_)
    assert says in caught.value.diagnostics()


def test_moments_of_another_schema_are_refused() -> None:
    with pytest.raises(errors.MomentsMismatchError):
        PreparedMoments.of(MOMENTS, SCHEMA[1:])


def test_fewer_published_rows_than_terms_is_refused() -> None:
    moments = rmgm(TABLE, k=6, noise=1.0)
    with pytest.raises(errors.TooFewRowsError):
        fit_prepared(PreparedMoments.of(moments, SCHEMA), "pressure")


def test_collinear_features_without_noise_are_refused_by_name() -> None:
    copied = Table({**TABLE.rows, "dose": TABLE.rows["age"] / 20 - 2})
    with pytest.raises(errors.SingularError, match=r"^(age|dose) cannot be told"):
        fit_prepared(PreparedMoments.of(noiseless(copied), SCHEMA), "pressure")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({"age": [40.0]}, "the rows lack 'sex'"),
        ([{"age": 40.0, "sex": "male"}], "the rows are not given by attribute"),
        ({"age": [40.0, 41.0], "sex": ["male"]}, "differ in length: \\[1, 2\\]"),
        ({"age": [40.0], "sex": ["mail"]}, "'sex' holds something that is not one of its levels"),
        ({"age": ["old"], "sex": ["male"]}, "'age' holds something that is not a number"),
        ({"age": 40.0, "sex": "male"}, "one value and no list is given of 'age', 'sex'"),
    ],
)
def test_rows_that_cannot_be_predicted_are_refused(rows: Mapping[str, Values], says: str) -> None:
    result = fit_prepared(PreparedMoments.of(MOMENTS, SCHEMA), "pressure", features=("age", "sex"))
    with pytest.raises(errors.RowsError, match=says):
        result.predict(rows)


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_target_that_never_varies_is_predicted_as_it_is(estimator: str) -> None:
    still = Table({**TABLE.rows, "pressure": np.full(2000, 160.0)})
    result = fit_prepared(PreparedMoments.of(noiseless(still), SCHEMA), "pressure", estimator=estimator)
    np.testing.assert_allclose(result.predict(still.rows), 160.0, rtol=1e-3)
    assert result.warnings or estimator == "constant"


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_target_that_follows_exactly_from_a_feature_is_fitted_exactly(estimator: str) -> None:
    exact = Table({**TABLE.rows, "pressure": 60 + 2 * TABLE.rows["age"]})
    result = fit_prepared(
        PreparedMoments.of(noiseless(exact), SCHEMA), "pressure", features=("age", "sex"), estimator=estimator
    )
    if estimator != "constant":
        np.testing.assert_allclose(result.predict(exact.rows), exact.rows["pressure"], rtol=1e-3)


def test_constant_without_any_rows_to_count_is_refused() -> None:
    result = fit_prepared(PreparedMoments.of(MOMENTS, SCHEMA), "pressure", estimator="constant")
    with pytest.raises(errors.RowsError):
        result.predict({})


def test_features_keep_the_order_in_which_they_are_named() -> None:
    result = fit_prepared(PreparedMoments.of(MOMENTS, SCHEMA), "pressure", features=("sex", "age"))
    assert result.terms == ("(intercept)", "sex[male]", "age")
    np.testing.assert_allclose(result.coefficients[2], 0.5, atol=0.05)


@pytest.mark.parametrize("estimator", ["measurement_error", "shrunken", "constant"])
def test_to_dict_is_strict_json(estimator: str) -> None:
    document = fit_prepared(PreparedMoments.of(MOMENTS, SCHEMA), "pressure", estimator=estimator).to_dict()
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text) == document
    assert (document["standard_errors"][0] is None) == (estimator == "shrunken")


def test_summary_is_the_table_as_text_within_the_width_of_a_terminal() -> None:
    found = fit_prepared(PreparedMoments.of(rmgm(TABLE, 300, 2.0), SCHEMA), "pressure", estimator="ols")
    text = replace(found, epsilon=1.0, delta=1e-05).summary()
    assert max(map(len, text.splitlines())) <= 80
    for part in (
        "estimator ols",
        "mechanism rmgm",
        "epsilon per member 1",
        "delta 1e-05",
        "published rows 300",
        "signal to noise",
        "standard error",
        "95 % low",
        "sex[male]",
        "Warning: ",
        "<0.001",
    ):
        assert part in text


@pytest.mark.parametrize("overlap", [None, 0.9])
def test_fit_of_people_whom_members_share_says_what_its_n_is(overlap: float | None) -> None:
    levels, draw = ("no", "yes"), default_rng(4)
    attributes = tuple(BinaryAttribute(name=name, levels=levels) for name in ("smoker", "back"))
    cells: dict[str, list[Any]] = {a.name: draw.choice(levels, 600).tolist() for a in attributes}
    prepared = release_of(attributes, (1, 1), cells, epsilon=3.0, overlap=overlap, seed=1)
    found = fit_prepared(prepared, "back")
    said = f"n = {found.n:,} is the fewest people whom two of these members share and who count."
    assert (said in found.subjects) is (overlap is not None)


def test_summary_without_standard_errors_leaves_them_out() -> None:
    text = fit_prepared(PreparedMoments.of(MOMENTS, SCHEMA), "pressure", estimator="shrunken").summary()
    assert "nan" not in text
    assert "epsilon" not in text


@pytest.mark.parametrize(("found", "error"), [(9.264, 3.0), (0.2, 2.5)])
def test_share_that_noise_hides_is_not_shown_in_the_summary(found: float, error: float) -> None:
    made = fit_prepared(PreparedMoments.of(MOMENTS, SCHEMA), "pressure")
    diagnostics = replace(made.diagnostics, r_squared=found, r_squared_error=error)
    assert "hidden by noise" in replace(made, diagnostics=diagnostics).summary()


AGE, PRESSURE = (
    next(a for a in SCHEMA if isinstance(a, NumericAttribute) and a.name == name) for name in ("age", "pressure")
)


@pytest.fixture(scope="module")
def fitted() -> Fit:
    return fit_prepared(PreparedMoments.of(MOMENTS, SCHEMA), "pressure", features=("age",))


def test_feature_beyond_its_bounds_counts_as_the_bound_and_a_warning_counts_it(fitted: Fit) -> None:
    with pytest.warns(OutsideBoundsWarning, match="1 of 2 values of age lay outside"):
        found = fitted.predict({"age": [AGE.upper + 1000, AGE.upper]})
    assert found[0] == found[1]


@pytest.mark.parametrize("gap", [None, float("nan")])
def test_missing_number_that_is_not_marked_is_refused(fitted: Fit, gap: float | None) -> None:
    with pytest.raises(errors.RowsError, match="marks no missing age"):
        fitted.predict({"age": [AGE.upper, gap]})


@pytest.mark.parametrize(
    ("coefficients", "of", "expected", "warned"),
    [
        ([0.0, 1000.0], "pressure", [PRESSURE.upper] * 2, True),
        ([PRESSURE.lower, 0.0], "pressure", [PRESSURE.lower] * 2, False),
        ([-5.0, 0.1], "sex", [0.0, 1.0], True),
    ],
    ids=["beyond a bound", "within bounds", "a share"],
)
def test_predictions_are_within_the_targets_bounds_and_clipping_is_counted(
    coefficients: list[float], of: str, expected: list[float], *, warned: bool
) -> None:
    (target,) = (a for a in SCHEMA if a.name == of)
    found = Predictor(np.array(coefficients), (AGE,), target).of({"age": [AGE.lower + 1, AGE.upper]})
    assert found.values.tolist() == expected
    low, high = (target.lower, target.upper) if isinstance(target, NumericAttribute) else (0, 1)
    said = f"2 of 2 predictions of {of} lay outside {low:g} to {high:g} and were clipped"
    said = f"{said}; set extrapolate to take them as they are."
    assert found.warnings == ((said,) if warned else ())


def test_extrapolation_takes_numbers_as_they_are(fitted: Fit) -> None:
    ages = np.array([AGE.upper + 10])
    expected = fitted.coefficients[0] + fitted.coefficients[1] * ages
    np.testing.assert_allclose(fitted.predict({"age": ages}, extrapolate=True), expected)


BY_TEN = Intervals(lower=0, upper=90, cuts=(10, 40.3, 60))
BY_AGE = CategoricalAttribute(name="age", levels=BY_TEN.levels, intervals=BY_TEN, missing="indicator")
HALVES = Intervals(lower=0, upper=90, cuts=(45,))
BY_HALF = BinaryAttribute(name="age", levels=("[0, 45)", "[45, 90]"), intervals=HALVES)


@pytest.mark.parametrize("attribute", [BY_AGE, BY_HALF], ids=["several intervals", "two intervals"])
def test_number_is_in_the_interval_that_agents_put_it_in(attribute: CategoricalAttribute | BinaryAttribute) -> None:
    draw = np.random.default_rng(0)
    steps = 40.3 + 90 / 2**16 * np.arange(-4, 5)
    numbers = np.concatenate([draw.uniform(-20, 110, 300), steps, [-np.inf, np.inf, 0, 10, 45, 60, 90]])
    encoded = encode_attribute(attribute, pa.array(numbers)).columns / SCALE
    columns = attribute.columns
    expected = np.column_stack([c.offset + c.scale * encoded[:, j] for j, c in enumerate(columns)])
    assert term_matrix({"age": numbers}, (attribute,), intercept=False).tolist() == expected.tolist()


def test_numbers_beyond_all_intervals_are_counted_with_or_without_extrapolation() -> None:
    model = Predictor(np.array([0.0, 1.0]), (BY_HALF,), PRESSURE)
    said = "2 of 3 values of age lay outside 0 to 90 and count in the outermost interval."
    for extrapolate in (False, True):
        assert said in model.of({"age": [-1, 45, 91]}, extrapolate=extrapolate).warnings


def test_values_of_intervals_may_be_levels_numbers_and_gaps_side_by_side() -> None:
    values: list[Any] = ["[10, 40.3)", 7, np.float32(70), None, float("nan"), -3.5, "missing"]
    assert level_places(BY_AGE, values).tolist() == [1, 0, 3, 4, 4, 0, 4]


@pytest.mark.parametrize("value", [None, float("nan"), "45", True, "missing"])
def test_what_is_neither_interval_nor_number_is_refused(value: object) -> None:
    with pytest.raises(errors.RowsError, match="not one of its levels") as caught:
        Predictor(np.array([0.0, 1.0]), (BY_HALF,), PRESSURE).of({"age": np.array([value], object)})
    assert "or a number" in str(caught.value.remedy)


def test_numbers_are_no_levels_of_an_attribute_without_cuts() -> None:
    ward = CategoricalAttribute(name="ward", levels=("1", "2", "3"))
    assert level_places(ward, [2, 1]).tolist() == [1, 0]
    with pytest.raises(errors.RowsError, match="not one of its levels"):
        level_places(ward, [2.5])


def test_difference_in_differences_is_that_of_the_rows_with_its_standard_error() -> None:
    draw, n = default_rng(6), 4000
    at, levels = draw.integers(0, 4, n), ("old, before", "old, after", "new, before", "new, after")
    event = draw.random(n) < np.array([0.2, 0.3, 0.25, 0.5])[at]
    when, yes = CategoricalAttribute(name="when", levels=levels), BinaryAttribute(name="event", levels=("no", "yes"))
    cells = {"when": np.array(levels)[at].tolist(), "event": np.where(event, "yes", "no").tolist()}
    prepared = release_of((when, yes), (1, 1), cells, epsilon=1e5)
    fit = fit_prepared(prepared, "event", "when", estimator="ols", interval_for="population")
    signs = {"when[new, after]": 1, "when[new, before]": -1, "when[old, after]": -1}
    c = np.array([signs.get(term, 0) for term in fit.terms])
    shares, people = np.array([event[at == k].mean() for k in range(4)]), np.bincount(at)
    assert c @ fit.coefficients == pytest.approx(shares @ [1, -1, -1, 1], abs=1e-3)
    by_rows = np.sqrt(np.sum(shares * (1 - shares) / people))
    assert np.sqrt(c @ fit.covariance @ c) == pytest.approx(by_rows, rel=0.1)


def test_answers_are_for_the_population_unless_asked_and_say_what_p_asks_of_the_table() -> None:
    draw, n = default_rng(4), 2000
    group, y = draw.integers(0, 3, n), draw.normal(0, 1.5, n).clip(-5, 5)
    attributes = (CategoricalAttribute(name="g", levels=("a", "b", "c")), NumericAttribute(name="y", lower=-5, upper=5))
    cells = {"g": np.array(["a", "b", "c"])[group].tolist(), "y": y.tolist()}
    prepared = release_of(attributes, (1, 1), cells, epsilon=1e5)
    fit, of_table = fit_prepared(prepared, "y", "g"), fit_prepared(prepared, "y", "g", interval_for="table")
    expected = sm.OLS(y, sm.add_constant(np.eye(3)[group][:, 1:])).fit()
    assert fit.p_values == pytest.approx(expected.pvalues, abs=0.01)
    assert of_table.p_values[1:].max() < 0.001
    assert fit.p_values[1:].min() > 0.05
    assert "p asks whether a slope in these very rows is 0, not in the population" in of_table.table().notes[0]
    assert "these very rows" not in fit.table().notes[0]


def test_every_question_has_the_population_as_its_default() -> None:
    asked = (fit_prepared, glm, compare, two_stage, partial_correlations)
    assert {signature(each).parameters["interval_for"].default for each in asked} == {"population"}
    fields = [body.model_fields.get("interval_for") for body, _ in QUESTIONS.values()]
    assert [field.default for field in fields if field] == ["population"] * 5


WITH_GAPS = (
    BinaryAttribute(name="smoker", levels=("no", "yes"), missing="indicator"),
    CategoricalAttribute(name="stage", levels=("i", "ii", "iii"), missing="indicator"),
    NumericAttribute(name="age", lower=0, upper=120, missing="indicator"),
    NumericAttribute(name="cost", lower=0, upper=60),
)


@pytest.mark.parametrize("intercept", [True, False])
def test_mark_of_a_binary_attribute_is_against_its_first_level_as_that_of_three_levels_is(*, intercept: bool) -> None:
    """Those of unknown smoking are as those who do not smoke, and those of unknown stage as those of the first."""
    draw, n = default_rng(1), 3000
    smoker, stage = draw.choice(3, n, p=(0.5, 0.4, 0.1)), draw.choice(4, n, p=(0.4, 0.3, 0.2, 0.1))
    age, gone = draw.uniform(20, 80, n), draw.random(n) < 0.2
    cost = np.array([10, 20, 10])[smoker] + np.array([0, 4, 8, 0])[stage] + 0.1 * age + draw.normal(0, 2, n)
    cells: dict[str, list[Any]] = {
        "smoker": np.array(["no", "yes", None])[smoker].tolist(),
        "stage": np.array(["i", "ii", "iii", None])[stage].tolist(),
        "age": [None if lost else years for lost, years in zip(gone.tolist(), age.tolist(), strict=True)],
        "cost": cost.clip(0, 60).tolist(),
    }
    release = release_of(WITH_GAPS, (2, 2), cells, epsilon=1e7)
    features = ("smoker", "stage", "age")
    found = fit_prepared(release, "cost", features, intercept=intercept, interval_for="population")
    marks = [smoker == 1, smoker == 2, stage == 1, stage == 2, stage == 3, np.where(gone, 60, age), gone]
    rows = np.column_stack([*([np.ones(n)] if intercept else []), *marks]).astype(float)
    wanted = sm.OLS(cost.clip(0, 60), rows).fit()
    assert found.terms[-7:-5] == ("smoker[yes]", "smoker[missing]")
    assert found.coefficients == pytest.approx(wanted.params, abs=0.02)
    assert found.standard_errors == pytest.approx(wanted.bse, rel=0.05)
    assert found.predict({name: cells[name][:9] for name in features}) == pytest.approx(
        rows[:9] @ wanted.params, abs=0.1
    )
    assert "compared with age = 60, the middle of its bounds" in found.imputed[-1]
