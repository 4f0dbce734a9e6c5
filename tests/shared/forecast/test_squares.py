"""When a study is told to release the square of its target."""

from dataclasses import replace
from typing import Any

import pytest

from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.terms import Terms
from commingle.shared.forecast.forecast import plan
from commingle.shared.forecast.task import Assumptions, square_words
from tests.shared.forecast.designs import numeric

STAY = NumericAttribute(name="stay", lower=0, upper=30)
SEX = BinaryAttribute(name="sex", levels=("f", "m"))
SITE = CategoricalAttribute(name="site", levels=("a", "b", "c"))
AGE = NumericAttribute(name="age", lower=18, upper=100)
SQUARE = NumericAttribute(name="s2", lower=-1, upper=1, product=(STAY, STAY))
ASKED = Assumptions(target="stay")


def terms(*attributes: Attribute, epsilon: float = 3.0, share: float | None = None, **asked: Any) -> Terms:
    made = numeric(2, 2, n=50_000, epsilon=epsilon, mechanism="moments", **asked)
    ward, lab = made.parties
    ward = ward.model_copy(update={"attributes": attributes, "first_stage_share": share})
    return replace(made, parties=(ward, lab.model_copy(update={"attributes": (SITE,)})))


def test_square_is_proposed_with_what_it_costs_where_features_have_levels() -> None:
    said = square_words(terms(STAY, SEX), ASKED) or ""
    assert 'study new --product "stay squared=stay,stay")' in said
    assert "expected to grow by 0." in said
    assert said in plan(terms(STAY, SEX), ASKED).advice
    assert "and --one-stage" in (square_words(terms(STAY, SEX, share=0.15), ASKED) or "")


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (terms(STAY, SEX, epsilon=0.3), ASKED),  # noise is more than a tenth of sampling
        (terms(STAY, SEX, AGE), ASKED),  # of numbers nothing better is known
        (terms(STAY, SEX, SQUARE), replace(ASKED, features=("sex", "site"))),  # it is there
        (terms(STAY.model_copy(update={"missing": "indicator"}), SEX), ASKED),
        (terms(STAY, SEX), Assumptions(target="sex")),  # an event is its own square
        (terms(STAY, SEX), Assumptions(target="stay", r_squared=0.5)),
        (terms(STAY, SEX), Assumptions()),
    ],
)
def test_no_square_is_proposed_that_a_fit_would_not_use_or_that_costs_much(given: Terms, asked: Assumptions) -> None:
    assert square_words(given, asked) is None


@pytest.mark.parametrize("asked", [ASKED, replace(ASKED, features=("sex", "site"))])
def test_square_is_said_to_be_of_no_use_where_rows_may_be_cut(asked: Assumptions) -> None:
    said = square_words(terms(STAY, SEX, SQUARE, share=0.15), asked) or ""
    assert said.startswith("The square of stay is of no use to intervals where rows may be cut: say --one-stage")
    assert square_words(terms(STAY, SEX, SQUARE), asked) is None
    assert square_words(terms(STAY, SEX, SQUARE, AGE, share=0.15), ASKED) is None


def test_square_is_proposed_for_the_features_that_are_asked_for() -> None:
    assert square_words(terms(STAY, SEX, AGE), Assumptions(target="stay", features=("sex", "site"))) is not None
