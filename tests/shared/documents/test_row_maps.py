"""When a row of the schema can be longer than its norm once it is mapped, and which sums a map takes."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commingle.shared.documents.row_maps import may_cut, row_map
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute, Whitening
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.documents.terms import AUTO, PartyTerms
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.dp.two_stages import FirstStage, Kind, MeasuredAttribute, column_sums, scaling
from commingle.shared.errors import SpecError
from commingle.shared.release.checks import closed
from tests.world.consortium import consortium_of

NUMBER = NumericAttribute(name="x", lower=0, upper=1)
LEVELS = CategoricalAttribute(name="c", levels=("r", "s", "t", "u"))
BINARY = BinaryAttribute(name="b", levels=("no", "yes"))
KINDS = (MeasuredAttribute(Kind.NUMERIC), MeasuredAttribute(Kind.CATEGORICAL, 3), MeasuredAttribute(Kind.BINARY))


def party(**choices: object) -> StudyParty:
    return StudyParty.model_validate({"name": "p", "dataset": "d", "attributes": (NUMBER, LEVELS, BINARY), **choices})


def terms(**choices: Any) -> PartyTerms:
    return PartyTerms(**{"name": "p", "attributes": (NUMBER, LEVELS, BINARY), **choices})


@pytest.mark.parametrize(("row_norm", "cut"), [(None, False), (1.65, True), (1.66, False)])
def test_encoded_rows_can_be_cut_below_the_root_of_their_attributes(row_norm: float | None, cut: bool) -> None:
    assert may_cut(terms(row_norm=row_norm), None) is cut


@pytest.mark.parametrize(("radius_squared", "cut"), [(Fraction(1, 4), True), (Fraction(6), False)])
def test_rows_that_a_first_stage_maps_can_be_cut_unless_its_radius_holds_all_of_them(
    radius_squared: Fraction, cut: bool
) -> None:
    draw = np.random.default_rng(0)
    levels = np.eye(4, dtype=np.int64)[draw.integers(0, 4, 500)][:, 1:] * SCALE
    q = np.column_stack([draw.integers(-SCALE, SCALE + 1, 500), levels, draw.choice([-SCALE, SCALE], 500)])
    stage = FirstStage(KINDS, len(q), 1, 1)
    applied = scaling(stage, column_sums(q, KINDS), radius_squared=radius_squared)
    assert may_cut(terms(row_norm=1.0), applied) is cut


@pytest.mark.parametrize(("scale", "cut"), [(0.4, False), (0.8, True)])
def test_whitened_rows_can_be_cut_where_the_matrix_reaches_beyond_the_norm(scale: float, cut: bool) -> None:
    whitening = Whitening(centre=(0.25, 0.0), matrix=((scale, 0.1), (0.0, scale)))
    two = terms(attributes=(NUMBER, BINARY), whitening=whitening, row_norm=1.0)
    assert may_cut(two, whitening.integer_map()) is cut


@pytest.mark.parametrize(
    ("choices", "n", "share"),
    [
        ({}, 10_000, 0.1),
        ({"first_stage_share": None}, 10_000, None),
        ({"first_stage_share": 0.3}, 10_000, 0.3),
        ({"row_norm": 1.2}, 10_000, None),
        ({}, 100, None),  # few subjects
        ({}, 1 << 32, None),  # more than sums can count
    ],
)
def test_share_is_as_written_or_what_suits_the_mechanism_beside_no_row_norm(
    choices: dict[str, object], n: int, share: float | None
) -> None:
    asked = party(**choices)
    assert asked.first_stage_share == choices.get("first_stage_share", AUTO)
    study = Study(study="s", mechanism="rmgm", subjects="listed", k=50, epsilon=1.0, delta=1e-5, n=n, parties=(asked,))
    assert closed(study).parties[0].first_stage_share == share


@pytest.mark.parametrize("sums", [None, (1, 2)])
def test_sums_that_are_not_those_of_the_first_stage_give_no_map(tmp_path: Path, sums: tuple[int, ...] | None) -> None:
    spec = consortium_of(tmp_path, "clinic").spec(first_stage_share=0.2)
    with pytest.raises(SpecError, match="sums of clinic"):
        row_map(closed(spec), spec.parties[0], sums)
