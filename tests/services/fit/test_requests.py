"""Bad input gets its own error; results read well."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from commingle.services.fit import ESTIMATORS, FitRequest, PreparedMoments, fit
from commingle.services.fit.terms import Values
from commingle.shared.estimation import errors
from tests.shared.estimation.tables import SCHEMA, Table, make_table, noiseless, rmgm

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
        fit(MOMENTS, SCHEMA, FitRequest(**request_))
    assert says in caught.value.diagnostics()


def test_moments_of_another_schema_are_refused() -> None:
    with pytest.raises(errors.MomentsMismatchError):
        PreparedMoments.of(MOMENTS, SCHEMA[1:])


def test_fewer_published_rows_than_terms_is_refused() -> None:
    moments = rmgm(TABLE, k=6, noise=1.0)
    with pytest.raises(errors.TooFewRowsError):
        fit(moments, SCHEMA, FitRequest(target="pressure"))


def test_collinear_features_without_noise_are_refused_by_name() -> None:
    copied = Table({**TABLE.rows, "dose": TABLE.rows["age"] / 20 - 2})
    with pytest.raises(errors.SingularError, match=r"^(age|dose) cannot be told"):
        fit(noiseless(copied), SCHEMA, FitRequest(target="pressure"))


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({"age": [40.0]}, "the rows lack 'sex'"),
        ({"age": [40.0, 41.0], "sex": ["male"]}, "differ in length: \\[1, 2\\]"),
        ({"age": [40.0], "sex": ["mail"]}, "'sex' holds something that is not one of its levels"),
        ({"age": ["old"], "sex": ["male"]}, "'age' holds something that is not a number"),
    ],
)
def test_rows_that_cannot_be_predicted_are_refused(rows: Mapping[str, Values], says: str) -> None:
    result = fit(MOMENTS, SCHEMA, FitRequest(target="pressure", features=("age", "sex")))
    with pytest.raises(errors.RowsError, match=says):
        result.predict(rows)


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_target_that_never_varies_is_predicted_as_it_is(estimator: str) -> None:
    still = Table({**TABLE.rows, "pressure": np.full(2000, 160.0)})
    result = fit(noiseless(still), SCHEMA, FitRequest(target="pressure", estimator=estimator))
    np.testing.assert_allclose(result.predict(still.rows), 160.0, rtol=1e-3)
    assert result.warnings or estimator == "constant"


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_target_that_follows_exactly_from_a_feature_is_fitted_exactly(estimator: str) -> None:
    exact = Table({**TABLE.rows, "pressure": 60 + 2 * TABLE.rows["age"]})
    result = fit(noiseless(exact), SCHEMA, FitRequest(target="pressure", features=("age", "sex"), estimator=estimator))
    if estimator != "constant":
        np.testing.assert_allclose(result.predict(exact.rows), exact.rows["pressure"], rtol=1e-3)


def test_constant_without_any_rows_to_count_is_refused() -> None:
    result = fit(MOMENTS, SCHEMA, FitRequest(target="pressure", estimator="constant"))
    with pytest.raises(errors.RowsError):
        result.predict({})


def test_features_keep_the_order_in_which_they_are_named() -> None:
    result = fit(MOMENTS, SCHEMA, FitRequest(target="pressure", features=("sex", "age")))
    assert result.terms == ("(intercept)", "sex[male]", "age")
    np.testing.assert_allclose(result.coefficients[2], 0.5, atol=0.05)


@pytest.mark.parametrize("estimator", ["measurement_error", "shrunken", "constant"])
def test_to_dict_is_strict_json(estimator: str) -> None:
    document = fit(MOMENTS, SCHEMA, FitRequest(target="pressure", estimator=estimator)).to_dict()
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text) == document
    assert (document["standard_errors"][0] is None) == (estimator == "shrunken")


def test_summary_reads_like_a_regression_table() -> None:
    found = fit(rmgm(TABLE, 300, 2.0), SCHEMA, FitRequest(target="pressure", estimator="ols"))
    text = replace(found, epsilon=1.0, delta=1e-05).summary()
    assert max(map(len, text.splitlines())) <= 80
    for part in (
        "Estimator:",
        "rmgm",
        "1 per party",
        "1e-05",
        "P>|t|",
        "[0.025",
        "0.975]",
        "sex[male]",
        "Warnings:",
        "[1] ",
    ):
        assert part in text


def test_summary_without_standard_errors_shows_dashes() -> None:
    text = fit(MOMENTS, SCHEMA, FitRequest(target="pressure", estimator="shrunken")).summary()
    assert "nan" not in text
    assert "Epsilon:   - " in text
