from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.services.simulation.attributes import Unusable, conform, infer
from commingle.services.simulation.errors import TableError
from commingle.services.simulation.table import as_levels
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute

GAP = np.nan


def numbers(*values: float) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def texts(*values: str | None) -> NDArray[Any]:
    return np.array(values, dtype=object)


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
    values: NDArray[Any], attribute: NumericAttribute | BinaryAttribute | CategoricalAttribute
) -> None:
    assert infer("x", values, target=False, levels=False) == attribute


def test_target_of_two_numbers_stays_a_number_whose_gaps_are_errors() -> None:
    assert infer("y", numbers(0, 10, GAP), target=True, levels=False) == NumericAttribute(name="y", lower=0, upper=10)


def test_text_among_numbers_is_kept_where_the_column_is_known_to_hold_levels() -> None:
    found = infer("x", texts(*"123456789", "V27"), target=False, levels=True)
    assert isinstance(found, CategoricalAttribute)


def test_codes_become_levels_on_request() -> None:
    found = infer("x", numbers(1, 2, 2, 9), target=False, levels=True)
    assert found == CategoricalAttribute(name="x", levels=("2", "1", "9"))


@pytest.mark.parametrize("values", [numbers(4, 4), numbers(GAP, GAP), texts("a", "a"), texts(None), numbers(4, GAP)])
def test_column_that_does_not_vary_is_unusable(values: NDArray[Any]) -> None:
    assert isinstance(infer("x", values, target=False, levels=False), Unusable)


def test_column_with_more_levels_than_a_schema_may_have_is_unusable() -> None:
    found = infer("x", texts(*(f"level {i}" for i in range(257))), target=False, levels=False)
    assert found == Unusable("it has 257 levels, more than 256")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (texts(*"123456789", "ten"), "text among numbers: 1 values"),
        (numbers(1, np.inf), "1 infinite values"),
        (texts("a", "b" * 81), "cannot be an attribute"),
    ],
)
def test_column_that_nobody_can_use_is_refused(values: NDArray[Any], said: str) -> None:
    with pytest.raises(TableError, match=said):
        infer("x", values, target=False, levels=False)


def test_numbers_conform_to_levels_of_a_schema() -> None:
    attribute = BinaryAttribute(name="x", levels=("0", "1"))
    assert conform(attribute, numbers(1, 0, GAP)).tolist() == ["1", "0", None]


@pytest.mark.parametrize(
    ("values", "said"), [(texts("a"), "holds text"), (numbers(-np.inf), "1 infinite"), (numbers(1), "")]
)
def test_column_against_a_numeric_schema(values: NDArray[Any], said: str) -> None:
    attribute = NumericAttribute(name="x", lower=0, upper=1)
    if not said:
        assert conform(attribute, values) is values
        return
    with pytest.raises(TableError, match=said):
        conform(attribute, values)


def test_level_that_a_schema_does_not_have_is_refused() -> None:
    with pytest.raises(TableError, match="holds 'c'"):
        conform(CategoricalAttribute(name="x", levels=("a", "b", "d")), texts("a", "c", None))


def test_numbers_as_levels_read_as_people_write_them() -> None:
    assert as_levels(numbers(1, 2.5, GAP, -3)).tolist() == ["1", "2.5", None, "-3"]
