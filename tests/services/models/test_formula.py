"""Formulas are read as they are written, and what is none is refused with what to write."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.services.errors import FormulaError, InteractionError
from commingle.services.models.formula import Formula, parse
from commingle.shared.errors import (
    EstimationError,
    FeaturesError,
    TargetAmongFeaturesError,
    UnknownAttributeError,
)

NAMES = ("readmitted", "age", "sex", "charges, yearly", "body-mass")
names = st.text("ab .01,+*~:-^|é", min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("readmitted ~ age + sex", Formula("readmitted", None, ("age", "sex"))),
        ("readmitted[yes, late]~sex", Formula("readmitted", "yes, late", ("sex",))),
        ("`body-mass`[[18, 25)] ~ charges, yearly", Formula("body-mass", "[18, 25)", ("charges, yearly",))),
        ("readmitted ~ .", Formula("readmitted", None, ("age", "sex", "charges, yearly", "body-mass"))),
        ("readmitted ~ . - `body-mass` - age", Formula("readmitted", None, ("sex", "charges, yearly"))),
    ],
)
def test_formula_is_read_as_it_is_written(text: str, expected: Formula) -> None:
    assert parse(text, NAMES) == expected


@given(st.lists(names, min_size=2, max_size=6, unique=True))
def test_names_in_backticks_are_taken_as_they_are(found: list[str]) -> None:
    outcome, *features = found
    text = f"`{outcome}` ~ {' + '.join(f'`{name}`' for name in features)}"
    assert parse(text, found) == Formula(outcome, None, tuple(features))


@given(st.text("ab ~+-*:`[].01", max_size=20))
def test_any_text_is_a_formula_or_refused(text: str) -> None:
    with suppress(EstimationError):
        found = parse(text, ("a", "b", "ab"))
        assert found.features
        assert found.outcome not in found.features


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("readmitted", FormulaError),
        (None, FormulaError),
        (["readmitted", "age"], FormulaError),
        ("~ age", FormulaError),
        ("readmitted ~ age ~ sex", FormulaError),
        ("readmitted ~ age +", FormulaError),
        ("readmitted ~ age + 0", FormulaError),
        ("readmitted ~ `age", FormulaError),
        ("readmitted ~ age * sex", InteractionError),
        ("readmitted ~ age:sex", InteractionError),
        ("readmitted ~ agee", UnknownAttributeError),
        ("readmitted ~ age + age", FeaturesError),
        ("readmitted ~", FeaturesError),
        ("age ~ age", TargetAmongFeaturesError),
    ],
)
def test_what_is_no_formula_is_refused(text: Any, error: type[EstimationError]) -> None:
    with pytest.raises(error):
        parse(text, NAMES)
