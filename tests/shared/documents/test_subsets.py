"""Subsets of people: which can be asked for, and what is said of them."""

import json
from bisect import bisect_right
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import CutNumber, Study
from commingle.shared.documents.subsets import Subset, contradiction
from commingle.shared.errors import DocumentError, SpecError
from commingle.shared.release.checks import read_spec
from tests.shared.documents.test_study import PARTY, STUDY, build

AGE = {"kind": "numeric", "name": "age", "lower": 0, "upper": 120}
SEX = {"kind": "binary", "name": "sex", "levels": ["male", "female"]}
ADULTS = {"attribute": {**AGE, "cuts": [18, 65]}, "levels": ["[18, 65)", "[65, 120]"]}
WOMEN = {"attribute": SEX, "levels": ["female"]}
CUTS = st.lists(st.integers(1, 119), min_size=1, max_size=5, unique=True).map(sorted)
CHOSEN = CUTS.flatmap(
    lambda at: st.tuples(st.just(at), st.sets(st.sampled_from(range(len(at) + 1)), min_size=1, max_size=len(at)))
)


def study(*where: dict[str, Any], **changes: Any) -> Study:
    party = {**PARTY, "where": list(where)}
    return decode(Study, json.dumps({**STUDY, "parties": [party], **changes}).encode())


def test_subset_of_a_study_is_signed_whole_and_said_in_a_sentence() -> None:
    spec = read_spec(encode(build(study(ADULTS, WOMEN))))
    assert isinstance(spec, ReleaseSpec)
    (adults, women) = spec.parties[0].where or ()
    assert isinstance(adults.attribute, CategoricalAttribute)
    assert adults.attribute.levels == ("[0, 18)", "[18, 65)", "[65, 120]")
    assert women == Subset(attribute=BinaryAttribute(name="sex", levels=("male", "female")), levels=("female",))
    assert spec.terms.subset_words == (
        "Only those of clinic's people count whose age is [18, 65) or [65, 120] and whose sex is female.",
    )


def test_whole_study_is_read_again_as_it_was() -> None:
    written = study(ADULTS, WOMEN)
    assert decode(Study, encode(written)) == written


def test_nobody_is_left_out_where_nothing_is_said() -> None:
    assert build(decode(Study, json.dumps(STUDY).encode())).terms.subset_words == ()


@pytest.mark.parametrize(
    ("subset", "why"),
    [
        ({**WOMEN, "levels": ["diverse"]}, "attribute 'sex' has no level 'diverse', but male | female"),
        ({**WOMEN, "levels": ["female", "female"]}, "a level of 'sex' is named twice"),
        ({**WOMEN, "levels": ["male", "female"]}, "all levels of 'sex' are named, so everybody is in it"),
        ({**WOMEN, "levels": []}, "levels: is empty"),
        (
            {**ADULTS, "attribute": {**AGE, "missing": "midpoint", "cuts": [18]}, "levels": ["[0, 18)"]},
            'its member registers it with "missing": "indicator"',
        ),
        ({**WOMEN, "attribute": {**SEX, "missing": "midpoint"}}, "missing cells of 'sex' would count as a level"),
        ({"attribute": AGE, "levels": ["[18, 65)"]}, "'age' is a number and has no levels: give it \"cuts\""),
    ],
)
def test_subset_that_chooses_nobody_or_could_not_be_told_is_refused(subset: dict[str, Any], why: str) -> None:
    with pytest.raises((DocumentError, SpecError)) as refused:
        study(subset)
    assert why in str(refused.value)


def test_all_levels_of_an_attribute_with_marks_are_those_who_have_it() -> None:
    marked = {"attribute": {**SEX, "missing": "indicator"}, "levels": ["male", "female"]}
    assert build(study(marked)).terms.subset_words == (
        "Only those of clinic's people count whose sex is male or female.",
    )


def test_subsets_that_share_nobody_are_refused() -> None:
    with pytest.raises(DocumentError, match="nobody is in two subsets by 'sex': name all its levels in one"):
        study(WOMEN, {**WOMEN, "levels": ["male"]})
    assert study(WOMEN, WOMEN).parties[0].where is not None


def ages(*levels: str, cuts: tuple[int, ...]) -> dict[str, Any]:
    return {"attribute": {**AGE, "cuts": cuts}, "levels": list(levels)}


def test_ranges_that_share_nobody_are_refused_whatever_their_cuts() -> None:
    young, old = ages("[0, 40)", cuts=(40,)), ages("[60, 120]", cuts=(60,))
    with pytest.raises(DocumentError, match="nobody is in two subsets by 'age'"):
        study(young, old)
    assert study(old, ages("[50, 120]", cuts=(50,))).parties[0].where is not None


def of_age(at: Sequence[int], levels: Sequence[int]) -> Subset:
    attribute = CutNumber.model_validate({**AGE, "cuts": tuple(at)}).as_levels
    return Subset(attribute=attribute, levels=tuple(attribute.levels[level] for level in levels))


@given(subsets=st.lists(CHOSEN, max_size=6))
def test_contradiction_is_that_no_age_is_in_all(subsets: list[tuple[list[int], set[int]]]) -> None:
    found = contradiction(of_age(at, sorted(levels)) for at, levels in subsets)
    ages = (age for age in range(120) if all(bisect_right(at, age) in levels for at, levels in subsets))
    assert found == (None if next(ages, None) is not None else "age")


@pytest.mark.timeout(20)
def test_largest_spec_is_compared_at_once() -> None:
    rng = Random(1)
    cuts = ([(i + 0.9 * rng.random()) * 120 / 256 + 0.01 for i in range(255)] for _ in range(64))
    attributes = (CutNumber.model_validate({**AGE, "cuts": tuple(at)}).as_levels for at in cuts)
    assert contradiction(Subset(attribute=a, levels=a.levels[:99] + a.levels[100:]) for a in attributes) is None


def test_members_whose_ranges_share_nobody_get_no_release() -> None:
    clinic = {**PARTY, "where": [ages("[18, 40)", cuts=(18, 40))]}
    lab = {**PARTY, "name": "lab", "attributes": [{**AGE, "name": "iron"}]}
    apart, near = ({**lab, "where": [ages(f"[{cut}, 120]", cuts=(cut,))]} for cut in (60, 30))
    with pytest.raises(SpecError, match="nobody is in the subsets of all members by 'age'"):
        build(decode(Study, json.dumps({**STUDY, "parties": [clinic, apart]}).encode()))
    assert build(decode(Study, json.dumps({**STUDY, "parties": [clinic, near]}).encode())).parties[1].where


def test_list_of_people_has_no_subset() -> None:
    with pytest.raises(SpecError, match="where chooses among keyed people"):
        build(study(WOMEN, subjects="listed"))
