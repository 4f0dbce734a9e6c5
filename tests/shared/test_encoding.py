"""Encoding against integers worked out by hand (docs/design/encoding.md#fixed-point): q = trunc(x 2^15)."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.encoding import encode_attribute, encode_conforming
from commingle.shared.errors import DataError
from commingle.shared.values import as_text
from tests.party_agent.private.tables import BINARY, LEVELS, NUMBER, column

MIDPOINT = NumericAttribute(name="x", lower=0, upper=10, missing="midpoint")
MARKED = NumericAttribute(name="x", lower=0, upper=10, missing="indicator")
BINARY_MARKED = BinaryAttribute(name="b", levels=("no", "yes"), missing="indicator")
LEVELS_MARKED = CategoricalAttribute(name="c", levels=("0", "A", "B"), missing="indicator")
BINARY_MIDPOINT = BinaryAttribute(name="b", levels=("no", "yes"), missing="midpoint")


def encoded(attribute: Attribute, values: "pa.Array[Any]") -> list[Any]:
    columns = encode_attribute(attribute, values).columns
    assert columns.dtype == np.int64
    assert columns.ndim == 2
    listed: list[Any] = columns[:, 0].tolist() if columns.shape[1] == 1 else columns.tolist()
    return listed


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, -32768),
        (10, 32768),
        (5, 0),
        (2.5, -16384),
        (7.5, 16384),
        (1, -26214),  # -0.8 * 32768 = -26214.4, toward zero
        (9, 26214),
        (-3, -32768),
        (11, 32768),
    ],
)
def test_number_is_scaled_clipped_and_truncated_toward_zero(value: float, expected: int) -> None:
    assert encoded(NUMBER, column([value], pa.float64())) == [expected]


def test_bounds_of_any_size_stay_within_the_unit_interval() -> None:
    for lower, upper in ((-1e300, 1e7), (0.1, 0.3), (-1e-300, 1e-300), (1e15, 1e15 + 1)):
        attribute = NumericAttribute(name="x", lower=lower, upper=upper)
        assert encoded(attribute, column([lower, upper, -1.7e308, 1.7e308])) == [-32768, 32768, -32768, 32768]


@pytest.mark.parametrize(
    "values",
    [
        column([1, 9], pa.int8()),
        column([1, 9], pa.uint64()),
        column([1.0, 9.0], pa.float32()),
        column([Decimal("1.00"), Decimal("9.00")]),
        column([" 1", "9.0 "], pa.string()),
        column(["1", "9e0"], pa.large_string()),
        column(["1", "9"]).dictionary_encode(),
        column([1, 9]).dictionary_encode(),
    ],
    ids=lambda v: str(v.type),
)
def test_numbers_of_every_type_encode_alike(values: "pa.Array[Any]") -> None:
    assert encoded(NUMBER, values) == [-26214, 26214]


def test_clipped_values_are_counted_and_bounds_are_not() -> None:
    found = encode_attribute(NUMBER, column([0.0, 10.0, -0.001, 10.001, 5.0, 1e300]))
    assert (found.counts.clipped, found.counts.missing) == (3, 0)


def test_missing_midpoint_is_zero_and_counted() -> None:
    found = encode_attribute(MIDPOINT, column([None, 10.0, 99.0, None]))
    assert (found.columns[:, 0].tolist(), found.counts.missing, found.counts.clipped) == ([0, 32768, 32768, 0], 2, 1)
    found = encode_attribute(BINARY_MIDPOINT, column(["no", None, "yes"]))
    assert (found.columns[:, 0].tolist(), found.counts.missing) == ([-32768, 0, 32768], 1)


def test_missing_cells_are_zero_beside_a_mark_where_the_schema_has_one() -> None:
    found = encode_conforming(MARKED, column([None, 10.0, 99.0, 5.0]))
    assert found.columns.tolist() == [[0, 32768], [32768, 0], [32768, 0], [0, 0]]
    assert (found.counts.missing, found.counts.clipped) == (1, 1)
    found = encode_conforming(BINARY_MARKED, column(["no", None, "yes"]))
    assert found.columns.tolist() == [[-32768, 0], [0, 32768], [32768, 0]]
    found = encode_conforming(LEVELS_MARKED, column(["A", None, "0", "B"]))
    assert found.columns.tolist() == [[32768, 0, 0], [0, 0, 32768], [0, 0, 0], [0, 32768, 0]]


def test_cell_that_says_missing_is_a_missing_level() -> None:
    found = encode_conforming(LEVELS_MARKED, column(["A", "missing", " missing ", None]))
    assert found.columns.tolist() == [[32768, 0, 0], *3 * [[0, 0, 32768]]]
    assert (found.counts.missing, found.counts.unreadable) == (3, 0)
    assert encode_conforming(BINARY_MIDPOINT, column(["no", "missing"])).counts.missing == 1
    with pytest.raises(DataError, match="column b: 1 missing value"):
        encode_conforming(BINARY, column(["no", "missing"]))
    with pytest.raises(DataError, match="1 value is not among the levels 0, A, B"):
        encode_conforming(LEVELS_MARKED, column(["A", "Missing"]))


@pytest.mark.parametrize("attribute", [MARKED, BINARY_MARKED, LEVELS_MARKED], ids=lambda a: a.kind)
def test_what_is_no_value_is_marked_and_still_refused_at_registration(attribute: Attribute) -> None:
    cells = column(["no such value", "NaN"])
    assert encode_attribute(attribute, cells).columns.tolist() == [[0] * (len(attribute.columns) - 1) + [32768]] * 2
    with pytest.raises(DataError):
        encode_conforming(attribute, cells)


@pytest.mark.parametrize("attribute", [NUMBER, BINARY, LEVELS], ids=lambda a: a.kind)
def test_missing_value_is_refused_with_column_and_count(attribute: Attribute) -> None:
    with pytest.raises(DataError, match=f"column {attribute.name}: 2 missing values"):
        encode_conforming(attribute, column([None, None]))


@pytest.mark.parametrize("attribute", [NUMBER, MIDPOINT], ids=["strict", "midpoint"])
@pytest.mark.parametrize(
    "values", [column([float("nan"), float("inf"), 1.0]), column(["nan", "-inf", "1"])], ids=["numbers", "text"]
)
def test_nan_and_infinity_are_refused_with_count(attribute: Attribute, values: "pa.Array[Any]") -> None:
    with pytest.raises(DataError, match="column x: 2 values are NaN or infinite"):
        encode_conforming(attribute, values)


@pytest.mark.parametrize(
    "values",
    [column(["1", "two", "3,5"]), column([["a"], ["b"], ["c"]]), column([b"\xff", b"1", b"2"])],
    ids=lambda v: str(v.type),
)
def test_text_in_a_number_is_refused_and_counted(values: "pa.Array[Any]") -> None:
    with pytest.raises(DataError, match=r"column x: (1 value is no number|[23] values are not numbers)"):
        encode_conforming(NUMBER, values)


UNIT = NumericAttribute(name="x", lower=0, upper=1)


@pytest.mark.parametrize(
    ("attribute", "values", "expected"),
    [
        (UNIT, column([False, True]), [-32768, 32768]),
        (UNIT, column(["false", "true"]), [-32768, 32768]),
        (UNIT, column(["false", "true", "neither"]), [-32768, 32768, 0]),
        (BINARY, column(["no", "yes", " yes "]), [-32768, 32768, 32768]),
        (LEVELS, column(["r", "s", "t", "s"]), [[0, 0], [32768, 0], [0, 32768], [32768, 0]]),
        (BinaryAttribute(name="b", levels=("false", "true")), column([False, True]), [-32768, 32768]),
        (CategoricalAttribute(name="c", levels=("1", "2.5", "3")), column([1.0, 2.5]), [[0, 0], [32768, 0]]),
        *(
            (BinaryAttribute(name="b", levels=("1", "2")), values, [-32768, 32768])
            for values in (
                *(column([1, 2]), column([1.0, 2.0]), column(["1", "2"]), column([1, 2], pa.uint8())),
                column(["1", "2"]).dictionary_encode(),
            )
        ),
        *(
            (attribute, column([b"10", b"no", None], pa.binary()).cast(kind), integers)
            for kind in (pa.binary(2), pa.binary_view(), pa.large_binary(), pa.string_view())
            for attribute, integers in ((NUMBER, [SCALE, 0, 0]), (BINARY, [0, -SCALE, 0]))
        ),
    ],
    ids=lambda value: getattr(value, "name", str(getattr(value, "type", value))),
)
def test_levels_and_truths_of_every_type_are_read_as_people_write_them(
    attribute: Attribute, values: "pa.Array[Any]", expected: Any
) -> None:
    assert encoded(attribute, values) == expected


@pytest.mark.parametrize("attribute", [BINARY, BINARY_MIDPOINT, LEVELS], ids=["binary", "midpoint", "categorical"])
def test_unknown_level_is_refused_with_count_and_known_levels(attribute: Attribute) -> None:
    with pytest.raises(DataError, match=r"column \w: 2 values are not among the levels") as refused:
        encode_conforming(attribute, column(["zebra", "lion"]))
    assert "zebra" not in refused.value.diagnostics()
    assert f"--derive '{attribute.name} = recode({attribute.name}, OLD=NEW, ...)'" in refused.value.remedy


def test_type_without_text_is_refused_and_a_cell_without_text_is_missing() -> None:
    for kind in (pa.list_(pa.string()), pa.struct([("x", pa.int8())]), pa.timestamp("s", "Nowhere/Town")):
        with pytest.raises(DataError, match=r"column b: values of type .* cannot be read as text"):
            as_text("b", column([], kind))
    assert as_text("b", column([b"a", b"\xff", b"\xed\xa0\x80", b" b "])).to_pylist() == ["a", None, None, "b"]


def test_whole_number_reads_alike_whatever_stands_beside_it() -> None:
    alone = as_text("x", column([123456789012.0])).to_pylist()
    beside = as_text("x", column([123456789012.0, 0.5, float("nan"), 1e300, None])).to_pylist()
    assert alone == ["123456789012"]
    assert beside == ["123456789012", "0.5", None, "1e+300", None]
