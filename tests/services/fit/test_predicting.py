"""Predictions stay within public bounds, and say so, unless extrapolation is asked for."""

import numpy as np
import pytest

from commingle.services.fit import Fit, FitRequest, fit
from commingle.services.fit.predicting import OutsideBoundsWarning, Predictor
from commingle.shared.documents.schema import NumericAttribute
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
