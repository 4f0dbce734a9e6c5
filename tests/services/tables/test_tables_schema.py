from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from commingle.services.errors import TableError
from commingle.services.tables.schema import Unusable, conform, draft
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute

GAP = None


def numbers(*values: float | None) -> "pa.Array[Any]":
    return pa.array(values, pa.float64())


def texts(*values: str | None) -> "pa.Array[Any]":
    return pa.array(values, pa.string())


@pytest.mark.parametrize(
    ("values", "attribute"),
    [
        (numbers(3, 1, 2), NumericAttribute(name="x", lower=1, upper=3)),
        (numbers(3, 1, 2, GAP), NumericAttribute(name="x", lower=1, upper=3, missing="midpoint")),
        (numbers(0, 1, 1), BinaryAttribute(name="x", levels=("0", "1"))),
        (numbers(0.5, 2, GAP), BinaryAttribute(name="x", levels=("0.5", "2"), missing="midpoint")),
        (texts("b", "a", None), BinaryAttribute(name="x", levels=("a", "b"), missing="midpoint")),
        (texts("c", "a", "b", "b"), CategoricalAttribute(name="x", levels=("b", "a", "c"))),
    ],
)
def test_column_suggests_an_attribute(
    values: "pa.Array[Any]", attribute: NumericAttribute | BinaryAttribute | CategoricalAttribute
) -> None:
    assert draft("x", values, target=False, levels=False) == attribute


def test_target_of_two_numbers_stays_a_number_whose_gaps_are_errors() -> None:
    assert draft("y", numbers(0, 10, GAP), target=True, levels=False) == NumericAttribute(name="y", lower=0, upper=10)


def test_text_among_numbers_is_kept_where_the_column_is_known_to_hold_levels() -> None:
    found = draft("x", texts(*"123456789", "V27"), target=False, levels=True)
    assert isinstance(found, CategoricalAttribute)


def test_codes_become_levels_on_request() -> None:
    found = draft("x", numbers(1, 2, 2, 9), target=False, levels=True)
    assert found == CategoricalAttribute(name="x", levels=("2", "1", "9"))


@pytest.mark.parametrize("values", [numbers(4, 4), numbers(GAP, GAP), texts("a", "a"), texts(None), numbers(4, GAP)])
def test_column_that_does_not_vary_is_unusable(values: "pa.Array[Any]") -> None:
    assert isinstance(draft("x", values, target=False, levels=False), Unusable)


def test_column_with_more_levels_than_a_schema_may_have_is_unusable() -> None:
    found = draft("x", texts(*(f"level {i}" for i in range(257))), target=False, levels=False)
    assert found == Unusable("it has 257 levels, more than 256")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (texts(*"123456789", "ten"), "text among numbers: 1 values"),
        (numbers(1, np.inf), "1 infinite values"),
        (texts("a", "b" * 81), "cannot be an attribute"),
    ],
)
def test_column_that_nobody_can_use_is_refused(values: "pa.Array[Any]", said: str) -> None:
    with pytest.raises(TableError, match=said):
        draft("x", values, target=False, levels=False)


def test_two_numbers_of_32_bits_are_levels_that_they_conform_to() -> None:
    cells = pa.array([0.1, 0.7, 0.1], pa.float32())
    attribute = draft("x", cells, target=False, levels=False)
    assert attribute == BinaryAttribute(name="x", levels=("0.1", "0.7"))
    assert conform(attribute, cells).to_pylist() == ["0.1", "0.7", "0.1"]


def test_numbers_conform_to_levels_of_a_schema() -> None:
    attribute = BinaryAttribute(name="x", levels=("0", "1"))
    assert conform(attribute, numbers(1, 0, GAP)).to_pylist() == ["1", "0", None]


def test_text_conforms_to_levels_as_it_stands_or_else_as_numbers_or_booleans() -> None:
    padded = BinaryAttribute(name="x", levels=("007", "7"))
    assert conform(padded, texts("007", "7", None)).to_pylist() == ["007", "7", None]
    assert conform(BinaryAttribute(name="x", levels=("0", "1")), texts("1.0", "0.0")).to_pylist() == ["1", "0"]
    assert conform(BinaryAttribute(name="x", levels=("false", "true")), texts("True", "False")).to_pylist() == [
        "true",
        "false",
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [(texts("a"), "1 values are not numbers"), (numbers(-np.inf), "1 values are NaN"), (numbers(1), "")],
)
def test_column_against_a_numeric_schema(values: "pa.Array[Any]", said: str) -> None:
    attribute = NumericAttribute(name="x", lower=0, upper=1)
    if not said:
        assert conform(attribute, values).equals(values)
        return
    with pytest.raises(TableError, match=said):
        conform(attribute, values)


def test_level_that_a_schema_does_not_have_is_refused() -> None:
    with pytest.raises(TableError, match="1 values are not among the levels a, b, d"):
        conform(CategoricalAttribute(name="x", levels=("a", "b", "d")), texts("a", "c", None))


def test_numbers_as_levels_read_as_people_write_them() -> None:
    attribute = CategoricalAttribute(name="x", levels=("1", "2.5", "-3"))
    assert conform(attribute, numbers(1, 2.5, GAP, -3)).to_pylist() == ["1", "2.5", None, "-3"]
