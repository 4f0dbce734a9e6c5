"""Predictions stay within public bounds, and say so, unless extrapolation is asked for."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from commingle.services.fit import Fit, FitRequest, fit
from commingle.services.fit.predicting import OutsideBoundsWarning, Predictor
from commingle.services.fit.terms import level_places, term_matrix
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, Intervals, NumericAttribute
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.encoding import encode_attribute
from commingle.shared.estimation.errors import RowsError
from tests.shared.estimation.tables import SCHEMA, make_table, noiseless

TABLE = make_table(2000)
AGE, PRESSURE = (
    next(a for a in SCHEMA if isinstance(a, NumericAttribute) and a.name == name) for name in ("age", "pressure")
)


@pytest.fixture(scope="module")
def fitted() -> Fit:
    return fit(noiseless(TABLE), SCHEMA, FitRequest(target="pressure", features=("age",)))


def test_feature_beyond_its_bounds_counts_as_the_bound_and_a_warning_counts_it(fitted: Fit) -> None:
    with pytest.warns(OutsideBoundsWarning, match="1 of 2 values of age lay outside"):
        found = fitted.predict({"age": [AGE.upper + 1000, AGE.upper]})
    assert found[0] == found[1]


def test_prediction_beyond_the_targets_bounds_is_the_bound() -> None:
    steep = Predictor(np.array([0.0, 1000.0]), (AGE,), PRESSURE)
    found = steep.of({"age": [AGE.upper, AGE.upper]})
    assert found.values.tolist() == [PRESSURE.upper] * 2
    assert found.warnings == (
        f"2 of 2 predictions of pressure lay outside {PRESSURE.lower:g} to {PRESSURE.upper:g} and were clipped.",
    )


def test_share_of_a_level_lies_between_none_and_all() -> None:
    sex = next(a for a in SCHEMA if a.name == "sex")
    found = Predictor(np.array([-5.0, 0.1]), (AGE,), sex).of({"age": [AGE.lower, AGE.upper]})
    assert found.values.tolist() == [0.0, 1.0]


def test_extrapolation_takes_numbers_as_they_are(fitted: Fit) -> None:
    ages = np.array([AGE.upper + 10])
    expected = fitted.coefficients[0] + fitted.coefficients[1] * ages
    np.testing.assert_allclose(fitted.predict({"age": ages}, extrapolate=True), expected)


def test_numbers_within_bounds_are_predicted_without_a_word() -> None:
    flat = Predictor(np.array([PRESSURE.lower, 0.0]), (AGE,), PRESSURE)
    assert flat.of({"age": [AGE.lower, AGE.upper]}).warnings == ()


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


def test_values_of_intervals_may_be_levels_numbers_and_gaps_side_by_side() -> None:
    values: list[Any] = ["[10, 40.3)", 7, np.float32(70), None, float("nan"), -3.5, "missing"]
    assert level_places(BY_AGE, values).tolist() == [1, 0, 3, 4, 4, 0, 4]


@pytest.mark.parametrize("value", [None, float("nan"), "45", True, "missing"])
def test_what_is_neither_interval_nor_number_is_refused(value: object) -> None:
    with pytest.raises(RowsError, match="not one of its levels") as caught:
        Predictor(np.array([0.0, 1.0]), (BY_HALF,), PRESSURE).of({"age": np.array([value], object)})
    assert "or a number" in str(caught.value.remedy)


def test_numbers_are_no_levels_of_an_attribute_without_cuts() -> None:
    ward = CategoricalAttribute(name="ward", levels=("1", "2", "3"))
    assert level_places(ward, [2, 1]).tolist() == [1, 0]
    with pytest.raises(RowsError, match="not one of its levels"):
        level_places(ward, [2.5])
