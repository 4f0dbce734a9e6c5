"""Numbers that are released as the intervals which they are in: against numpy, cell by cell."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    Missing,
    NumericAttribute,
    as_registered,
    words_for_missing,
)
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.encoding import encode_attribute, encode_conforming
from commingle.shared.errors import CommingleError, DataError
from commingle.shared.estimation.cross_products import CrossProducts, products
from tests.world.categorical import asked_attribute, release_of

MISSING: tuple[Missing, ...] = ("error", "midpoint", "indicator")


def asked(cuts: object, *, lower: float = 0, upper: float = 90, **other: Any) -> Attribute:
    said = {"kind": "numeric", "name": "age", "lower": lower, "upper": upper, "cuts": cuts}
    return asked_attribute(said | other)


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
    attribute = asked(cuts, lower=-99, upper=99, missing=missing)
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
    attribute = asked(cuts, unit="years")
    assert attribute.kind != "numeric"
    assert getattr(attribute, "levels") == expected  # noqa: B009
    assert as_registered(attribute) == (NumericAttribute(name="age", lower=0, upper=90, unit="years"),)
    exact = asked("every 0.1", lower=0.2, upper=0.6)  # each step begins at the lower bound
    assert getattr(exact, "levels") == ("[0.2, 0.3)", "[0.3, 0.4)", "[0.4, 0.5)", "[0.5, 0.6]")  # noqa: B009


@pytest.mark.parametrize(
    ("cuts", "said"),
    [
        ([60, 40], "cuts must increase"),
        ([40, 40], "cuts must increase"),
        ([0, 40], "between lower and upper"),
        ([40, 90], "between lower and upper"),
        ([40, 40.001], "a step of 2"),
        ([], "is empty"),
        ("every 0", "more than 256"),
        ("every 0.1", "more than 256"),
        ("every 90", "is empty"),
        ("each 10", "every"),
        (None, "valid"),
    ],
)
def test_cuts_that_are_none_are_refused(cuts: object, said: str) -> None:
    with pytest.raises(CommingleError, match=said):
        asked(cuts)


def test_other_levels_than_those_of_the_intervals_are_refused() -> None:
    told = asked([40, 60]).model_dump(mode="json") | {"levels": ["young", "old", "older"]}
    with pytest.raises(CommingleError, match="not what its intervals are called"):
        asked_attribute(told)


def test_owner_is_told_of_text_and_of_gaps_as_of_those_of_the_number() -> None:
    attribute = asked([40, 60])
    with pytest.raises(DataError, match="1 values are not numbers"):
        encode_conforming(attribute, pa.array(["40", "old"]))
    with pytest.raises(DataError, match="1 missing values"):
        encode_conforming(attribute, pa.array([40, None]))
    assert words_for_missing(asked([40], missing="midpoint"), 3) == "age: 3 missing cells count as [40, 90]"


def test_intervals_of_a_release_are_counted_as_levels() -> None:
    attribute, draw = asked([40, 60], missing="indicator"), np.random.default_rng(2)
    ages = [
        None if gap else float(age) for age, gap in zip(draw.uniform(0, 90, 1000), draw.random(1000) < 0.1, strict=True)
    ]
    sex = BinaryAttribute(name="sex", levels=("f", "m"))
    found = CrossProducts.of(release_of((attribute, sex), (1, 1), {"age": ages, "sex": ["f", "m"] * 500}))
    labels, rows = found.levels("age")
    assert labels == ("[0, 40)", "[40, 60)", "[60, 90]", "missing")
    counts, _ = found.sums(products(rows, found.levels("sex")[1]))
    place = np.array([3 if age is None else np.digitize(age, [40, 60]) for age in ages])
    expected = [[np.sum(place[first::2] == level) for first in (0, 1)] for level in range(4)]
    assert counts.reshape(4, 2) == pytest.approx(np.array(expected), abs=0.3)
