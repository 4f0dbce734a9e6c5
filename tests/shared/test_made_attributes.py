"""What a study makes of attributes: intervals of numbers, pairs of levels, products; said, refused, encoded, counted.

Against numpy, cell by cell.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import chebyshev as numpy_chebyshev
from numpy.typing import NDArray

from benchmarks.release_law import proposed, study_of
from commingle.services.fit import fit_prepared
from commingle.services.fit.predicting import OutsideBoundsWarning
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    Missing,
    NumericAttribute,
    as_registered,
    asked_as,
    words_for_missing,
)
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.encoding import chebyshev, contrasts_of, encode_attribute, encode_conforming
from commingle.shared.errors import CommingleError, DataError, RowsError, UnknownAttributeError
from commingle.shared.estimation.cross_products import CrossProducts, products
from tests.world.categorical import asked_attribute, release_of

MISSING: tuple[Missing, ...] = ("error", "midpoint", "indicator")
TIME = {"kind": "numeric", "name": "followup", "lower": 0, "upper": 60, "unit": "months", "cuts": [12, 36]}
DIED = {"kind": "binary", "name": "died", "levels": ["no", "yes"]}
STAGE = {"kind": "categorical", "name": "stage", "levels": ["i", "ii", "iii"]}
AGE = {"kind": "numeric", "name": "age", "lower": 20, "upper": 80, "unit": "years"}
DOSE = {"kind": "numeric", "name": "dose", "lower": 0, "upper": 10}
SEX = {"kind": "binary", "name": "sex", "levels": ["f", "m"]}
STAY = {"kind": "numeric", "name": "stay", "lower": 0, "upper": 100}
PAIRS = ("[0, 12), no", "[0, 12), yes", "[12, 36), no", "[12, 36), yes", "[36, 60], no", "[36, 60], yes")


def cut(cuts: object, *, lower: float = 0, upper: float = 90, **other: Any) -> Attribute:
    said = {"kind": "numeric", "name": "age", "lower": lower, "upper": upper, "cuts": cuts}
    return asked_attribute(said | other)


def crossed(*parts: dict[str, Any], **other: Any) -> Attribute:
    return asked_attribute({"name": "outcome", "cross": list(parts), **other})


def product(*factors: dict[str, Any], **other: Any) -> NumericAttribute:
    found = asked_attribute({"name": "made", "product": list(factors), **other})
    assert isinstance(found, NumericAttribute)
    return found


def levels_of(attribute: Attribute, cells: "pa.Array[Any]") -> NDArray[np.int64]:
    """The level of each row, -1 where its cell is marked; every row has one or the other."""
    q = encode_attribute(attribute, cells).columns
    marks = q[:, -1] // SCALE if attribute.missing == "indicator" else np.zeros(len(q), np.int64)
    places = q[:, : -1 if attribute.missing == "indicator" else None]
    if isinstance(attribute, BinaryAttribute):
        assert set(np.abs(places[marks == 0]).ravel()) <= {SCALE}
        assert not places[marks == 1].any()
        return np.where(marks == 1, -1, (places[:, 0] + SCALE) // (2 * SCALE))
    hot = np.column_stack([SCALE - q.sum(axis=1), places]) // SCALE
    assert set(q.ravel()) <= {0, SCALE}
    assert (hot.sum(axis=1) + marks == 1).all()
    return np.where(marks == 1, -1, hot.argmax(axis=1))


@given(
    cuts=st.sets(st.integers(-98, 98), min_size=1, max_size=6).map(sorted),
    cells=st.lists(st.one_of(st.integers(-300, 300), st.just(None), st.sampled_from([np.nan, np.inf, -np.inf, 1e308]))),
    missing=st.sampled_from(MISSING),
)
def test_intervals_are_those_of_numpy_whatever_the_cell_is(
    cuts: list[int], cells: list[float | None], missing: Missing
) -> None:
    """Values on a cut are in the interval that it begins; where there is none, that of the midpoint, or a mark."""
    attribute = cut(cuts, lower=-99, upper=99, missing=missing)
    values = np.array([np.nan if cell is None else cell for cell in cells], np.float64)
    gaps = np.isnan(values)
    expected = np.digitize(np.where(gaps, 0, values), cuts)
    if missing == "indicator":
        expected = np.where(gaps, -1, expected)
    as_numbers = pa.array(cells, pa.float64())
    as_words = pa.array(
        [None if cell is None else "nobody" if np.isnan(cell) else repr(cell) for cell in cells], pa.string()
    )
    for read in (as_numbers, as_words):
        assert levels_of(attribute, read).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("cuts", "expected"),
    [
        ([40, 60], ("[0, 40)", "[40, 60)", "[60, 90]")),
        ([0.5], ("[0, 0.5)", "[0.5, 90]")),
        ("every 30", ("[0, 30)", "[30, 60)", "[60, 90]")),
        ("every 44.5", ("[0, 44.5)", "[44.5, 89)", "[89, 90]")),
    ],
)
def test_cuts_of_a_study_are_levels_in_order(cuts: object, expected: tuple[str, ...]) -> None:
    attribute = cut(cuts, unit="years")
    assert attribute.kind != "numeric"
    assert getattr(attribute, "levels") == expected  # noqa: B009
    assert as_registered(attribute) == (NumericAttribute(name="age", lower=0, upper=90, unit="years"),)
    exact = cut("every 0.1", lower=0.2, upper=0.6)  # each step begins at the lower bound
    assert getattr(exact, "levels") == ("[0.2, 0.3)", "[0.3, 0.4)", "[0.4, 0.5)", "[0.5, 0.6]")  # noqa: B009
    most = cut("every 1", lower=0.5, upper=255.5)
    assert getattr(most, "levels")[-1] == "[255, 255.5]"  # noqa: B009


def test_pairs_of_a_study_are_levels_in_order_and_their_parts_are_what_is_registered() -> None:
    attribute = crossed(TIME, DIED)
    assert isinstance(attribute, CategoricalAttribute)
    assert (attribute.levels, attribute.missing) == (PAIRS, "error")
    number = NumericAttribute(name="followup", lower=0, upper=60, unit="months")
    assert as_registered(attribute) == (number, BinaryAttribute(name="died", levels=("no", "yes")))
    assert asked_as(attribute) == "outcome (followup by died)"
    assert attribute.geometry == CategoricalAttribute(name="six", levels=PAIRS).geometry


def test_product_of_a_study_is_a_number_and_its_factors_are_what_is_registered() -> None:
    squared, both = product(AGE, AGE), product(AGE, SEX)
    assert (both.lower, both.upper, both.missing) == (-1, 1, "error")
    assert (as_registered(squared), as_registered(both)) == (
        (asked_attribute(AGE),),
        (asked_attribute(AGE), asked_attribute(SEX)),
    )
    assert (asked_as(squared), asked_as(both)) == ("made (age times age)", "made (age times sex)")


@pytest.mark.parametrize(
    "said", [TIME, {"name": "outcome", "cross": [TIME, STAGE]}, {"name": "both", "product": [AGE, DIED]}]
)
def test_attribute_that_was_read_is_written_and_read_again(said: dict[str, Any]) -> None:
    attribute = asked_attribute(said)
    assert asked_attribute(attribute.model_dump(mode="json")) == attribute


def cross(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"name": "outcome", "cross": list(parts)}


def times(*factors: dict[str, Any]) -> dict[str, Any]:
    return {"name": "made", "product": list(factors)}


def changed(said: dict[str, Any], **changes: object) -> dict[str, Any]:
    """The record of an attribute, with something else in it."""
    return asked_attribute(said).model_dump(mode="json") | changes


REFUSED: dict[str, list[dict[str, Any]]] = {
    "cuts must increase": [AGE | {"cuts": [60, 40]}, AGE | {"cuts": [40, 40]}],
    "between lower and upper": [AGE | {"cuts": [20, 40]}, AGE | {"cuts": [40, 80]}],
    "a step of 2": [AGE | {"cuts": [40, 40.0001]}],
    "is empty": [AGE | {"cuts": []}, AGE | {"cuts": "every 90"}],
    "the step is to be above 0": [AGE | {"cuts": "every 0"}],
    "more than 256": [AGE | {"cuts": "every 0.1"}],
    "every": [AGE | {"cuts": "each 10"}],
    "valid": [AGE | {"cuts": None}],
    "not the names of its intervals": [changed(AGE | {"cuts": [40, 60]}, levels=["young", "old", "older"])],
    "three different names": [cross(TIME, TIME), cross(TIME, DIED | {"name": "outcome"})],
    "'age' is a number and has no levels: give it \"cuts\"": [
        cross(TIME, {"name": "age", "kind": "numeric", "lower": 0, "upper": 9})
    ],
    "at most 256": [cross(TIME | {"cuts": "every 1"}, STAGE | {"levels": [f"{i}" for i in range(5)]})],
    "not treated alike": [
        cross(TIME | {"missing": "midpoint"}, DIED | {"missing": "indicator"}),
        times(AGE | {"missing": "midpoint"}, DOSE | {"missing": "indicator"}),
    ],
    'cross again: has a "kind"': [cross(TIME, {"name": "again", "cross": [DIED, STAGE]})],
    "cross": [cross(TIME)],
    "levels must differ": [cross(STAGE | {"levels": ["a", "a, b", "c"]}, DIED | {"levels": ["b, c", "c"]})],
    "not the names of the pairs": [changed(cross(TIME, DIED), levels=["a", "b", "c", "d", "e", "f"])],
    "does not follow from": [
        changed(cross(TIME, DIED), missing="indicator"),
        changed(times(AGE, DOSE), missing="indicator"),
    ],
    "neither pairs nor intervals": [changed(cross(TIME, DIED), cross=[changed(cross(TIME, DIED)), DIED])],
    "2 entries at least": [times(AGE)],
    "3 entries at most": [times(AGE, AGE, AGE, AGE)],
    "the same for everybody": [times(SEX, SEX)],
    "none of its factors": [times(AGE, DOSE | {"name": "made"})],
    "factors of one name differ": [times(AGE, AGE | {"upper": 90})],
    "categorical": [times(AGE, STAGE)],
    'product x: needs a "kind"': [times(AGE, {"name": "x", "product": [AGE, DOSE]})],
    "between -1 and 1": [changed(times(AGE, DOSE), upper=2)],
    "no unit": [changed(times(AGE, DOSE), unit="kg")],
    "a product has no cuts": [changed(times(AGE, DOSE), cuts=[0])],
}


@pytest.mark.parametrize(("said", "why"), [(said, why) for why, each in REFUSED.items() for said in each])
def test_attribute_that_cannot_be_made_is_refused_with_the_reason(said: dict[str, Any], why: str) -> None:
    with pytest.raises(CommingleError, match=why):
        asked_attribute(said)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (("error", "indicator"), "indicator"),
        (("indicator", "indicator"), "indicator"),
        (("midpoint", "error"), "midpoint"),
    ],
)
def test_missing_in_either_part_is_missing_in_the_pair(rules: tuple[str, str], expected: str) -> None:
    attribute = crossed(TIME | {"missing": rules[0]}, DIED | {"missing": rules[1]})
    assert attribute.missing == expected
    found = encode_attribute(attribute, pa.array([None, 5.0, 40.0]), pa.array(["yes", None, "yes"]))
    assert found.gaps.tolist() == [True, True, False]
    rows = found.columns // 2**15
    if rules == ("indicator", "indicator"):
        assert rows[:2].tolist() == [[0, 0, 0, 0, 0, 1]] * 2
    if expected == "midpoint":  # 30 months, and the first level
        assert rows[:2].tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
        assert words_for_missing(attribute) == "outcome: missing cells count as [12, 36), no"
    assert rows[2, 4] == 1


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
    ("others", "sizes", "said"),
    [
        ((DIED, STAGE), (1, 2), "'died' is at two members"),
        (({"name": "died", "cross": [TIME | {"name": "x"}, STAGE]},), (2,), "made of others, and a part"),
        (({"name": "more", "cross": [STAGE, DIED]},), (1, 1), "'died' is at two members"),
        ((STAGE | {"name": "outcome"},), (2,), "appears twice"),
    ],
)
def test_name_that_means_two_columns_is_refused(others: Any, sizes: tuple[int, ...], said: str) -> None:
    attributes = (crossed(TIME, DIED), *map(asked_attribute, others))
    with pytest.raises(CommingleError, match=said):
        proposed(study_of(attributes, sizes, 100, 1.0, first_stage_share=None, mechanism="moments"))


def test_part_may_be_an_asked_attribute_the_release_too() -> None:
    attributes = (crossed(TIME, DIED), asked_attribute(DIED), asked_attribute(STAGE))
    study = study_of(attributes, (2, 1), 100, 1.0, first_stage_share=None, mechanism="moments")
    assert len(proposed(study).parties) == 2


def test_factor_of_a_product_is_held_by_its_party() -> None:
    attributes = (product(AGE, DOSE), asked_attribute(AGE), asked_attribute(STAY))
    assert proposed(study_of(attributes, (2, 1), 1000, 1.0, mechanism="moments"))
    with pytest.raises(CommingleError, match="'age' is at two members"):
        proposed(study_of(attributes, (1, 2), 1000, 1.0, first_stage_share=None, mechanism="moments"))


@pytest.mark.parametrize(
    ("attribute", "cells", "said"),
    [
        (cut([40, 60]), [pa.array(["40", "old"])], "1 value is no number"),
        (cut([40, 60]), [pa.array([40, None])], "1 missing value"),
        (
            crossed(TIME, DIED),
            [pa.array([1, 2]), pa.array(["yes", "perhaps"])],
            "column died: 1 value is not among the levels no, yes",
        ),
        (crossed(TIME, DIED), [pa.array([1, None]), pa.array(["yes", "no"])], "column followup: 1 missing"),
    ],
)
def test_owner_is_told_which_part_holds_what_it_cannot(attribute: Attribute, cells: list[Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        encode_conforming(attribute, *cells)
    assert words_for_missing(cut([40], missing="midpoint"), 3) == "age: 3 missing cells count as [40, 90]"
    assert [words_for_missing(cut([40], missing=rule), 0) for rule in ("error", "midpoint")] == [None, None]
    assert words_for_missing(cut([40])) is None


def test_intervals_and_pairs_of_a_release_are_counted_as_levels() -> None:
    draw, people = np.random.default_rng(2), np.arange(1000)
    months, died = draw.uniform(0, 60, 1000).round(1), draw.random(1000) < 0.3
    gone = people % 10 == 0
    followup = [None if gap else m for m, gap in zip(months.tolist(), gone, strict=True)]
    cells = {"followup": followup, "died": np.where(died, "yes", "no").tolist(), "sex": ["f", "m"] * 500}
    marked, sex = TIME | {"missing": "indicator"}, asked_attribute(SEX)
    interval = np.digitize(months, [12, 36])
    for attribute, names, place in (
        (asked_attribute(marked), ("[0, 12)", "[12, 36)", "[36, 60]"), interval),
        (crossed(marked, DIED), PAIRS, 2 * interval + died),
    ):
        found = CrossProducts.of(release_of((attribute, sex), (1, 1), cells))
        labels, rows = found.levels(attribute.name)
        assert labels == (*names, "missing")
        counts, _ = found.sums(products(rows, found.levels("sex")[1]))
        level = np.where(gone, len(names), place)
        expected = [[np.sum(level[first::2] == each) for first in (0, 1)] for each in range(len(labels))]
        assert counts.reshape(-1, 2) == pytest.approx(np.array(expected), abs=0.3)


def test_contrasts_are_those_of_a_plain_attribute_with_as_many_levels() -> None:
    attribute, plain = crossed(TIME, DIED), CategoricalAttribute(name="plain", levels=PAIRS)
    months, died = pa.array([1.0, 20, 50, 60]), pa.array(["no", "yes", "no", "yes"])
    one, other = (
        proposed(study_of((a,), (1,), 100, 1.0, first_stage_share=None, mechanism="moments")).parties[0]
        for a in (attribute, plain)
    )
    named = pa.array([PAIRS[0], PAIRS[3], PAIRS[4], PAIRS[5]])
    rows = contrasts_of(one, encode_attribute(attribute, months, died).columns)
    assert np.array_equal(rows, contrasts_of(other, encode_attribute(plain, named).columns))


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
    fit = fit_prepared(prepared, "stay", ("age", "age squared", "both", "by sex"))
    assert fit.coefficients[1:] == pytest.approx([10 / 30, 20, 8, 4], abs=0.05)
    rows: dict[str, list[Any]] = {"age": [20.0, 50.0, 80.0], "dose": [0.0, 5.0, 10.0], "sex": ["f", "m", "m"]}
    assert fit.predict(rows) == pytest.approx([72, 30, 92], abs=0.3)
    curve = fit.curve("age")
    assert curve.differences[[0, 75, 100]] == pytest.approx([30, 15, 50], abs=0.3)
    assert curve.differences[50] == 0
    assert (curve.intervals[:, 0] < curve.differences)[[0, 100]].all()
    for other in ("stay", "sex"):  # the target, and a feature with levels
        with pytest.raises(UnknownAttributeError, match=f"'{other}' is no number among the features") as unknown:
            fit.curve(other)
        assert unknown.value.remedy == "Available: age, dose."
    with pytest.warns(OutsideBoundsWarning, match="1 of 1 values of dose lay outside"):
        assert fit.predict({"age": [20.0], "dose": [-4.0], "sex": ["f"]}) == pytest.approx([72], abs=0.3)
    with pytest.raises(RowsError, match="lack 'dose', 'sex'") as refused:
        fit.predict({"age": [20.0]})
    assert refused.value.remedy == "Give all of: age, dose, sex."


def test_curve_of_a_number_released_in_intervals_has_a_line_for_each() -> None:
    age = np.random.default_rng(3).uniform(20, 80, 4000)
    cells = {"age": age.tolist(), "stay": np.where(age < 30, 20.0, 60.0).tolist()}
    cut = asked_attribute({**AGE, "cuts": [30, 60]})
    curve = fit_prepared(release_of((cut, asked_attribute(STAY)), (1, 1), cells), "stay", "age").curve("age")
    shown = curve.table()
    assert shown.labels == ("[20, 30)", "[30, 60)", "[60, 80]")
    assert shown.columns[0].numbers == pytest.approx([-40, 0, 0], abs=0.3)
