"""Products of numbers of one party: how a study says them, what is refused, what is encoded, fitted and predicted."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import chebyshev as numpy_chebyshev

from benchmarks.release_law import of_parties, proposed, study_of
from commingle.services.fit import FitRequest, fit_prepared
from commingle.services.fit.predicting import OutsideBoundsWarning
from commingle.shared.documents.schema import NumericAttribute, as_registered, asked_as, words_for_missing
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.encoding import chebyshev, encode_attribute
from commingle.shared.errors import CommingleError
from commingle.shared.estimation.errors import RowsError, UnknownAttributeError
from tests.world.categorical import asked_attribute, release_of

AGE = {"kind": "numeric", "name": "age", "lower": 20, "upper": 80, "unit": "years"}
DOSE = {"kind": "numeric", "name": "dose", "lower": 0, "upper": 10}
SEX = {"kind": "binary", "name": "sex", "levels": ["f", "m"]}
STAGE = {"kind": "categorical", "name": "stage", "levels": ["i", "ii", "iii"]}
STAY = {"kind": "numeric", "name": "stay", "lower": 0, "upper": 100}


def product(*factors: dict[str, Any], **other: Any) -> NumericAttribute:
    found = asked_attribute({"name": "made", "product": list(factors), **other})
    assert isinstance(found, NumericAttribute)
    return found


def test_product_of_a_study_is_a_number_and_its_factors_are_what_is_registered() -> None:
    squared, both = product(AGE, AGE), product(AGE, SEX)
    assert (both.lower, both.upper, both.missing) == (-1, 1, "error")
    assert (as_registered(squared), as_registered(both)) == (
        (asked_attribute(AGE),),
        (asked_attribute(AGE), asked_attribute(SEX)),
    )
    assert (asked_as(squared), asked_as(both)) == ("made (age times age)", "made (age times sex)")


@given(st.integers(-SCALE, SCALE), st.integers(1, 3))
def test_power_is_the_polynomial_of_numpy_to_half_a_step_and_never_beyond_the_bounds(q: int, degree: int) -> None:
    [found] = chebyshev(np.array([q]), degree).tolist()
    exact = SCALE * numpy_chebyshev.chebval(q / SCALE, [0] * degree + [1])
    assert abs(found) <= SCALE
    assert abs(found - exact) <= 0.5 + 1e-6


@pytest.mark.parametrize(
    ("rules", "expected"),
    [(("error", "indicator"), "indicator"), (("midpoint", "error"), "midpoint"), (("error", "error"), "error")],
)
def test_missing_in_a_factor_is_missing_in_the_product(rules: tuple[str, str], expected: str) -> None:
    made = product(AGE | {"missing": rules[0]}, AGE | {"missing": rules[0]}, DOSE | {"missing": rules[1]})
    assert made.missing == expected
    found = encode_attribute(made, pa.array([50, None, 80]), pa.array([10.0, 10.0, None]))
    assert found.gaps.tolist() == [False, True, True]
    if expected == "indicator":  # age is registered without a mark, so that it counts as its midpoint without one
        assert found.columns[[0, 2]].tolist() == [[-SCALE, 0], [0, SCALE]]
    if expected == "midpoint":
        assert found.columns.tolist() == [[-SCALE], [-SCALE], [0]]
        assert words_for_missing(made) == "made: missing cells count as what follows from the midpoint of age or dose"


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        ((AGE,), "2 entries at least"),
        ((AGE,) * 4, "3 entries at most"),
        ((SEX, SEX), "the same for everybody"),
        ((AGE, DOSE | {"name": "made"}), "none of its factors"),
        ((AGE, AGE | {"upper": 90}), "factors of one name differ"),
        ((AGE, STAGE), "categorical"),
        ((AGE, {"name": "x", "product": [AGE, DOSE]}), 'product x: needs a "kind"'),
        ((AGE | {"missing": "midpoint"}, DOSE | {"missing": "indicator"}), "not treated alike"),
    ],
)
def test_factors_whose_product_is_none_are_refused(factors: tuple[dict[str, Any], ...], said: str) -> None:
    with pytest.raises(CommingleError, match=said):
        product(*factors)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"upper": 2}, "between -1 and 1"),
        ({"missing": "indicator"}, "not what follows"),
        ({"unit": "kg"}, "no unit"),
        ({"cuts": [0]}, "a product has no cuts"),
    ],
)
def test_record_of_a_product_that_is_not_of_its_factors_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(CommingleError, match=said):
        asked_attribute(product(AGE, DOSE).model_dump(mode="json") | changed)


def test_factor_of_a_product_is_held_by_its_party() -> None:
    attributes = (product(AGE, DOSE), asked_attribute(AGE), asked_attribute(STAY))
    assert proposed(study_of(attributes, (2, 1), 1000, 1.0, mechanism="moments"))
    with pytest.raises(CommingleError, match="'age' is at two members"):
        proposed(of_parties(study_of(attributes, (1, 2), 1000, 1.0, mechanism="moments"), first_stage_share=None))


def test_release_with_products_is_fitted_and_predicted_from_their_factors() -> None:
    draw, n = np.random.default_rng(1), 4000
    age, dose, male = draw.uniform(20, 80, n).round(), draw.uniform(0, 10, n), draw.random(n) < 0.5
    x, z = (age - 50) / 30, (dose - 5) / 5
    stay = 50 + 10 * x + 20 * (2 * x**2 - 1) + 8 * x * z + 4 * z * np.where(male, 1, -1)
    sex = np.where(male, "m", "f").tolist()
    cells = {"age": age.tolist(), "dose": dose.tolist(), "sex": sex, "stay": stay.tolist()}
    made = (
        *(
            asked_attribute({"name": "age squared", "product": [AGE, AGE]}),
            asked_attribute({"name": "both", "product": [AGE, DOSE]}),
        ),
        asked_attribute({"name": "by sex", "product": [DOSE, SEX]}),
    )
    prepared = release_of(
        (asked_attribute(AGE), asked_attribute(DOSE), asked_attribute(SEX), *made, asked_attribute(STAY)), (6, 1), cells
    )
    asked = FitRequest(target="stay", features=("age", "age squared", "both", "by sex"))
    fit = fit_prepared(prepared, asked)
    assert fit.coefficients[1:] == pytest.approx([10 / 30, 20, 8, 4], abs=0.05)
    rows: dict[str, list[Any]] = {"age": [20.0, 50.0, 80.0], "dose": [0.0, 5.0, 10.0], "sex": ["f", "m", "m"]}
    assert fit.predict(rows) == pytest.approx([72, 30, 92], abs=0.3)
    curve = fit.curve("age")
    assert curve.differences[[0, 75, 100]] == pytest.approx([30, 15, 50], abs=0.3)
    assert curve.differences[50] == 0
    assert (curve.intervals[:, 0] < curve.differences)[[0, 100]].all()
    with pytest.raises(UnknownAttributeError, match="stay"):
        fit.curve("stay")
    with pytest.warns(OutsideBoundsWarning, match="1 of 1 values of dose lay outside"):
        assert fit.predict({"age": [20.0], "dose": [-4.0], "sex": ["f"]}) == pytest.approx([72], abs=0.3)
    with pytest.raises(RowsError, match="lack 'dose', 'sex'") as refused:
        fit.predict({"age": [20.0]})
    assert refused.value.remedy == "Give all of: age, dose, sex."
