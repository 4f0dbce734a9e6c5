"""Every cell of every type has its integers, within the bounds, whatever stands beside it."""

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commingle.party_agent.private.rows import cells_of
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    NumericAttribute,
    Weighted,
    Whitening,
)
from commingle.shared.documents.subject_ids import LONGEST_PART, SubjectKey
from commingle.shared.documents.terms import PartyTerms, fraction_bits_of
from commingle.shared.dp.fixed_point import SCALE, squared_row_limit
from commingle.shared.encoding import bounded_rows, encode_attribute, encode_conforming
from commingle.shared.errors import DataError
from commingle.shared.ring.parameters import ENTRY_LIMIT
from commingle.shared.values import UNREADABLE, Cells, has_text, subject_ids
from tests.party_agent.private.tables import BINARY, LEVELS, NUMBER, column

WIDE = NumericAttribute(name="w", lower=-8.9e307, upper=8.9e307)
MARKED = tuple(a.model_copy(update={"missing": "indicator"}) for a in (NUMBER, BINARY, LEVELS))
FLAG = BinaryAttribute(name="f", levels=("0", "true"), missing="midpoint")
CODES = CategoricalAttribute(name="d", levels=("1", "2.5", "nan", "2020-01-01"))
ATTRIBUTES: tuple[Attribute, ...] = (NUMBER, WIDE, BINARY, FLAG, LEVELS, CODES, *MARKED)

NUMBERS = st.floats() | st.integers(-(2**63), 2**63 - 1).map(float) | st.sampled_from([-0.0, 1e-320, 2.0**53 + 2])
TEXTS = (
    st.text(max_size=6) | NUMBERS.map(str) | st.sampled_from(["no", " yes ", "1.0", "true", "+5", "0x1", "1_0", "é"])
)
BYTES = TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=6)


def invalid_text(values: Sequence[bytes | None]) -> Cells:
    """A text column as a file may bring it: nobody has looked whether it is UTF-8."""
    raw = pa.array(values, pa.binary())
    return cast("Cells", pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count))


def typed(kind: Any, cells: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Cells]":
    return lists(cells).map(lambda values: column(values, kind))


def lists(cells: "st.SearchStrategy[Any]") -> "st.SearchStrategy[list[Any]]":
    return st.lists(st.none() | cells, max_size=8)


def dictionary(values: list[Any]) -> Cells:
    """Gaps among the values of the dictionary and among its indices."""
    indices = pa.array([None if i % 3 == 2 else i for i in range(len(values))], pa.int8())
    return cast("Cells", pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string())))


INTEGERS = {kind: st.integers(0, 100) for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint64())}
DAYS = st.dates(date(1700, 1, 1), date(2200, 1, 1))
TYPED: list[tuple[Any, "st.SearchStrategy[Any]"]] = [
    *INTEGERS.items(),
    (pa.float16(), st.floats(width=16).map(np.float16)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), NUMBERS),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.bool_(), st.booleans()),
    (pa.decimal128(9, 3), st.integers(-(10**8), 10**8).map(lambda i: Decimal(i) / 1000)),
    (pa.decimal256(60, 2), st.integers(-(10**50), 10**50).map(Decimal)),
    *((kind, TEXTS.filter(lambda t: t.isprintable())) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, BYTES) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.date32(), DAYS),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("ns", "UTC"), st.integers(-(2**62), 2**62)),
    (pa.duration("us"), st.timedeltas(timedelta(-9999), timedelta(9999))),
    (pa.time64("us"), st.times()),
    (pa.list_(pa.float64()), st.lists(NUMBERS, max_size=2)),
    (pa.list_view(pa.int8()), st.lists(st.integers(0, 9), max_size=2)),
    (pa.struct([("x", pa.float64())]), st.fixed_dictionaries({"x": NUMBERS})),
    (pa.map_(pa.string(), pa.int8()), st.just([("a", 1)])),
    (pa.null(), st.none()),
]
COLUMNS = st.one_of(
    *(typed(kind, cells) for kind, cells in TYPED),
    lists(BYTES).map(invalid_text),
    lists(TEXTS.filter(str.isprintable)).map(dictionary),
    lists(st.integers(0, 9)).map(
        lambda v: pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(v) + 1), pa.int32()), pa.array(v, pa.int8()))
    ),
    lists(st.binary(min_size=16, max_size=16)).map(lambda v: pa.array(v, pa.binary(16)).cast(pa.uuid())),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(cells=COLUMNS)
def test_every_cell_of_every_type_has_its_place_within_the_bounds_by_itself(cells: Cells) -> None:
    for attribute in ATTRIBUTES:
        found, n = encode_attribute(attribute, cells), len(cells)
        assert found.exact.shape == (n, len(attribute.columns))
        assert (np.abs(found.exact) <= 1).all()
        assert found.counts.clipped + found.counts.missing + found.counts.not_finite + found.counts.unreadable <= n
        for i in range(n):
            alone = encode_attribute(attribute, cells[i : i + 1])
            assert np.array_equal(alone.columns, found.columns[i : i + 1])


@settings(max_examples=100, deadline=None)
@given(cells=COLUMNS)
def test_who_asks_for_conforming_cells_gets_the_same_integers_or_a_refusal(cells: Cells) -> None:
    for attribute in ATTRIBUTES:
        found = encode_attribute(attribute, cells)
        try:
            strict = encode_conforming(attribute, cells, gaps=True)
        except DataError:
            assert found.counts.not_finite + found.counts.unreadable > 0
        else:
            assert found.counts.not_finite + found.counts.unreadable == 0
            assert np.array_equal(strict.columns, found.columns)


@settings(max_examples=200, deadline=None)
@given(cells=COLUMNS, row_norm=st.sampled_from([0.25, 0.7, 1.0, 1.3]), whitened=st.booleans())
def test_row_bound_holds_for_rows_of_any_cells(cells: Cells, row_norm: float, whitened: bool) -> None:
    q = np.hstack([encode_attribute(attribute, cells).columns for attribute in (NUMBER, BINARY)])
    whitening = Whitening(centre=(0.25, -0.125), matrix=((1.5, -0.25), (0.375, 0.5))) if whitened else None
    party = PartyTerms(name="p", attributes=(NUMBER, BINARY), row_norm=row_norm, whitening=whitening)
    for fraction_bits in (15,) if whitened else (14, 15):
        mapped = None if party.whitening is None else party.whitening.integer_map()
        bounded = bounded_rows(party, mapped, fraction_bits=fraction_bits)(q)
        assert (np.sum(bounded**2, axis=1) <= squared_row_limit(row_norm, fraction_bits)).all()
    assert (np.abs(q) <= SCALE).all()


@pytest.mark.parametrize(("weight", "bits"), [(2, 13), (3, 12), (4, 12)])
def test_weighted_rows_are_multiples_that_no_entry_limit_is_too_small_for(weight: int, bits: int) -> None:
    plain = PartyTerms(name="p", attributes=(NUMBER, LEVELS, BINARY), first_stage_share=None)
    ends = np.array([[-SCALE, SCALE, 0, SCALE], [SCALE, 0, SCALE, -SCALE], [5, 0, 0, 0]])
    rows = bounded_rows(plain, fraction_bits=bits)(ends)
    for heavy, times in ((NUMBER, [weight, 1, 1, 1]), (LEVELS, [1, weight, weight, 1]), (BINARY, [1, 1, 1, weight])):
        party = plain.model_copy(update={"weighted": Weighted(attribute=heavy.name, weight=weight)})
        assert fraction_bits_of(14, [party]) == bits
        found = bounded_rows(party, fraction_bits=bits)(ends)
        assert np.array_equal(found, rows * times)
        assert np.abs(found).max() <= ENTRY_LIMIT


@settings(max_examples=100, deadline=None)
@given(cells=COLUMNS)
def test_cell_is_marked_or_has_a_value_and_never_both(cells: Cells) -> None:
    for attribute in MARKED:
        q = encode_attribute(attribute, cells).columns
        plain = encode_attribute(attribute.model_copy(update={"missing": "error"}), cells).columns
        assert np.array_equal(q[:, :-1], plain)
        assert not q[q[:, -1] > 0, :-1].any()
        assert (q**2).sum(axis=1).max(initial=0) <= SCALE**2


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [(NUMBER, [0]), (NumericAttribute(name="x", lower=1, upper=2), [0]), (BINARY, [0]), (LEVELS, [0, 0])],
    ids=["numeric", "bounds without 0", "binary", "categorical"],
)
def test_what_is_no_value_is_the_midpoint_or_the_reference_level(attribute: Attribute, expected: list[int]) -> None:
    nothing: list[Cells] = [
        column([None], pa.string()),
        column(["NaN"]),
        column(["forty"]),
        column(["x" * 10**6]),
        column([float("nan")]),
        column([["no"]]),
        column([b"\xff"]),
        invalid_text([b"\xff"]),
    ]
    assert [encode_attribute(attribute, cells).columns.tolist() for cells in nothing] == [[expected]] * len(nothing)


def test_infinities_lie_at_the_bounds_and_every_kind_is_counted() -> None:
    cells = column(["-inf", "inf", "1e999", "nan", "forty", None, "99", "-1", "5"])
    found = encode_attribute(NUMBER, cells)
    assert found.columns[:, 0].tolist() == [-SCALE, SCALE, SCALE, 0, 0, 0, SCALE, -SCALE, 0]
    assert (found.counts.clipped, found.counts.missing, found.counts.not_finite, found.counts.unreadable) == (
        2,
        1,
        4,
        1,
    )
    levels = encode_attribute(LEVELS, column(["r", "zebra", None]))
    assert (levels.counts.missing, levels.counts.unreadable) == (1, 1)


class Locator:
    """As of a large object that a driver has not fetched; what Python writes for it is where it lies in memory."""


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (memoryview(b"P-1"), b"P-1"),
        (bytearray(b"P-1"), b"P-1"),
        (UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
        ([1, "a", None, [Decimal("2.50")]], b"[1, 'a', None, [Decimal('2.50')]]"),
        ({"a": 1}, b"{'a': 1}"),
        (Locator(), UNREADABLE),
        ([Locator()], UNREADABLE),
        ({"a": (memoryview(b"x"),)}, UNREADABLE),
        ({1, 2}, UNREADABLE),
    ],
    ids=["view", "array of bytes", "uuid", "list", "dict", "locator", "list of it", "dict of views", "set"],
)
def test_value_of_a_driver_is_a_text_only_if_its_value_alone_says_which(value: object, read: bytes) -> None:
    assert cells_of((value, 1)).to_pylist() == [read, b"1"]


FROM_A_DATABASE = st.one_of(
    st.none(),
    st.integers(-(2**70), 2**70),
    NUMBERS,
    TEXTS,
    BYTES,
    st.decimals(),
    DAYS,
    st.uuids(),
    st.datetimes(),
    st.booleans(),
    st.sampled_from(
        [UUID(int=1), 10**5000, -(2**63), 2**53 + 1, "\ud800", "\udcff", b"\xff", "true", "\0", "x" * 1025]
    ),
)
KEYS = (SubjectKey.of("id"), SubjectKey.of("id", ("text/1",)), SubjectKey.of("id", ("digits/1",)))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(values=st.lists(FROM_A_DATABASE, max_size=6))
def test_cell_of_a_database_reads_alike_whatever_other_types_are_beside_it(values: list[Any]) -> None:
    together, alone = cells_of(tuple(values)), [cells_of((value,)) for value in values]
    for attribute in ATTRIBUTES:
        found = encode_attribute(attribute, together).columns.tolist()
        assert found == [encode_attribute(attribute, cells).columns[0].tolist() for cells in alone]
    for key in KEYS:
        ids = subject_ids(key, {"id": together}).ids.to_pylist()
        assert ids == [subject_ids(key, {"id": cells}).ids[0].as_py() for cells in alone]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(cells=COLUMNS)
def test_every_cell_of_every_type_is_an_id_or_none_by_itself(cells: Cells) -> None:
    for key in KEYS:
        try:
            found = subject_ids(key, {"id": cells})
        except DataError:
            assert not has_text(cells.type)
            continue
        ids: list[Any] = found.ids.to_pylist()
        assert ids == [subject_ids(key, {"id": cells[i : i + 1]}).ids[0].as_py() for i in range(len(cells))]
        assert found.counts.missing + found.counts.invalid == ids.count(b"")
        assert all(len(identifier.decode()) <= LONGEST_PART * 18 for identifier in ids)  # what NFKC makes of U+FDFA


def test_cells_that_share_one_long_text_are_missing_and_no_other() -> None:
    """Together they would be longer than 2^31 bytes, of a file of some kilobytes."""
    places, texts = pa.array([0] * 65 + [1], pa.int8()), pa.array(["1" * (32 << 20), "7"])
    shared = pa.DictionaryArray.from_arrays(places, texts)
    assert encode_attribute(NUMBER, shared).gaps.tolist() == [True] * 65 + [False]
    assert subject_ids(SubjectKey.of("id"), {"id": shared}).ids.to_pylist() == [b""] * 65 + [b"7"]


def test_nan_that_signals_is_no_value_and_warns_nobody() -> None:
    """NumPy's warning would stand in the agent's log."""
    bits = np.array([0x7FF0_0000_0000_0001, 0xFFF8_DEAD_0000_0001], np.uint64)
    found = encode_attribute(NUMBER, pa.array(bits.view(np.float64)))
    assert (found.exact[:, 0].tolist(), found.gaps.tolist()) == ([0, 0], [True, True])


@pytest.mark.parametrize("read", [encode_attribute, encode_conforming])
def test_no_rows_have_no_integers(read: Callable[[Attribute, Cells], Any]) -> None:
    for attribute in ATTRIBUTES:
        assert read(attribute, column([], pa.null())).columns.shape == (0, len(attribute.columns))
