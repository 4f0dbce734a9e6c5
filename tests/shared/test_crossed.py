"""Pairs of levels of two attributes of one party: how a study says them, what is refused, and what is counted."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.release_law import of_parties, proposed, study_of
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    NumericAttribute,
    as_registered,
    asked_as,
    words_for_missing,
)
from commingle.shared.encoding import contrasts_of, encode_attribute, encode_conforming
from commingle.shared.errors import CommingleError, DataError
from commingle.shared.estimation.cross_products import CrossProducts, products
from tests.world.categorical import asked_attribute, release_of

TIME = {"kind": "numeric", "name": "followup", "lower": 0, "upper": 60, "unit": "months", "cuts": [12, 36]}
DIED = {"kind": "binary", "name": "died", "levels": ["no", "yes"]}
STAGE = {"kind": "categorical", "name": "stage", "levels": ["i", "ii", "iii"]}
NUMBER = {"kind": "numeric", "name": "age", "lower": 20, "upper": 80, "unit": "years"}
PAIRS = ("[0, 12), no", "[0, 12), yes", "[12, 36), no", "[12, 36), yes", "[36, 60], no", "[36, 60], yes")


def asked(*parts: dict[str, Any], **other: Any) -> Attribute:
    return asked_attribute({"name": "outcome", "cross": list(parts), **other})


def test_pairs_of_a_study_are_levels_in_order_and_their_parts_are_what_is_registered() -> None:
    attribute = asked(TIME, DIED)
    assert isinstance(attribute, CategoricalAttribute)
    assert (attribute.levels, attribute.missing) == (PAIRS, "error")
    number = NumericAttribute(name="followup", lower=0, upper=60, unit="months")
    assert as_registered(attribute) == (number, BinaryAttribute(name="died", levels=("no", "yes")))
    assert asked_as(attribute) == "outcome (followup by died)"
    assert attribute.geometry == CategoricalAttribute(name="six", levels=PAIRS).geometry


@pytest.mark.parametrize(
    "said", [TIME, {"name": "outcome", "cross": [TIME, STAGE]}, {"name": "both", "product": [NUMBER, DIED]}]
)
def test_attribute_that_was_read_is_written_and_read_again(said: dict[str, Any]) -> None:
    attribute = asked_attribute(said)
    assert asked_attribute(attribute.model_dump(mode="json")) == attribute


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (("error", "indicator"), "indicator"),
        (("indicator", "indicator"), "indicator"),
        (("midpoint", "error"), "midpoint"),
    ],
)
def test_missing_in_either_part_is_missing_in_the_pair(rules: tuple[str, str], expected: str) -> None:
    attribute = asked(TIME | {"missing": rules[0]}, DIED | {"missing": rules[1]})
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


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((TIME, TIME), "three names"),
        ((TIME, DIED | {"name": "outcome"}), "three names"),
        ((TIME, {"name": "age", "kind": "numeric", "lower": 0, "upper": 9}), "numeric"),
        ((TIME | {"cuts": "every 1"}, STAGE | {"levels": [f"{i}" for i in range(5)]}), "at most 256"),
        ((TIME | {"missing": "midpoint"}, DIED | {"missing": "indicator"}), "not treated alike"),
        ((TIME, {"name": "again", "cross": [DIED, STAGE]}), 'cross again: has a "kind"'),
        ((TIME,), "cross"),
        ((STAGE | {"levels": ["a", "a, b", "c"]}, DIED | {"levels": ["b, c", "c"]}), "levels must differ"),
    ],
)
def test_parts_whose_pairs_are_none_are_refused(parts: tuple[dict[str, Any], ...], said: str) -> None:
    with pytest.raises(CommingleError, match=said):
        asked(*parts)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"levels": ["a", "b", "c", "d", "e", "f"]}, "not what the pairs"),
        ({"missing": "indicator"}, "not what follows"),
        ({"cross": [asked(TIME, DIED).model_dump(mode="json"), DIED]}, "themselves no pairs"),
    ],
)
def test_record_of_pairs_that_is_not_of_its_parts_is_refused(changed: dict[str, Any], said: str) -> None:
    told = asked(TIME, DIED).model_dump(mode="json") | changed
    with pytest.raises(CommingleError, match=said):
        asked_attribute(told)


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
    attributes = (asked(TIME, DIED), *map(asked_attribute, others))
    with pytest.raises(CommingleError, match=said):
        proposed(of_parties(study_of(attributes, sizes, 100, 1.0, mechanism="moments"), first_stage_share=None))


def test_part_may_be_an_asked_attribute_the_release_too() -> None:
    attributes = (asked(TIME, DIED), asked_attribute(DIED), asked_attribute(STAGE))
    study = study_of(attributes, (2, 1), 100, 1.0, mechanism="moments")
    assert len(proposed(of_parties(study, first_stage_share=None)).parties) == 2


def test_owner_is_told_which_part_holds_what_it_cannot() -> None:
    with pytest.raises(DataError, match="column died: 1 values are not among the levels no, yes"):
        encode_conforming(asked(TIME, DIED), pa.array([1, 2]), pa.array(["yes", "perhaps"]))
    with pytest.raises(DataError, match="column followup: 1 missing"):
        encode_conforming(asked(TIME, DIED), pa.array([1, None]), pa.array(["yes", "no"]))


def test_pairs_of_a_release_are_counted_as_levels() -> None:
    attribute, draw = asked(TIME | {"missing": "indicator"}, DIED), np.random.default_rng(2)
    months, died, sex = draw.uniform(0, 60, 1000).round(1), draw.random(1000) < 0.3, ["f", "m"] * 500
    cells = {
        "followup": [None if i % 10 == 0 else m for i, m in enumerate(months.tolist())],
        "died": np.where(died, "yes", "no").tolist(),
        "sex": sex,
    }
    prepared = release_of((attribute, BinaryAttribute(name="sex", levels=("f", "m"))), (1, 1), cells)
    found = CrossProducts.of(prepared)
    labels, rows = found.levels("outcome")
    assert labels == (*PAIRS, "missing")
    counts, _ = found.sums(products(rows, found.levels("sex")[1]))
    place = np.where(np.arange(1000) % 10 == 0, 6, 2 * np.digitize(months, [12, 36]) + died)
    expected = [[np.sum(place[first::2] == level) for first in (0, 1)] for level in range(7)]
    assert counts.reshape(7, 2) == pytest.approx(np.array(expected), abs=0.3)


def test_contrasts_are_those_of_a_plain_attribute_with_as_many_levels() -> None:
    attribute, plain = asked(TIME, DIED), CategoricalAttribute(name="plain", levels=PAIRS)
    months, died = pa.array([1.0, 20, 50, 60]), pa.array(["no", "yes", "no", "yes"])
    one, other = (
        proposed(of_parties(study_of((a,), (1,), 100, 1.0, mechanism="moments"), first_stage_share=None)).parties[0]
        for a in (attribute, plain)
    )
    named = pa.array([PAIRS[0], PAIRS[3], PAIRS[4], PAIRS[5]])
    rows = contrasts_of(one, encode_attribute(attribute, months, died).columns)
    assert np.array_equal(rows, contrasts_of(other, encode_attribute(plain, named).columns))
