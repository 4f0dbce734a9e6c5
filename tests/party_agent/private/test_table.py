"""A source read once, each record by itself: ids, rows and counts; and what its owner is refused."""

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.party_agent.errors import DataError
from commingle.party_agent.private import sorting
from commingle.party_agent.private.derived import parse_derived
from commingle.party_agent.private.rows import RawBatch
from commingle.party_agent.private.sources import ReadingRecords, SourceTable, TableScan
from commingle.shared.documents.subject_ids import SubjectKey
from tests.party_agent.private.tables import (
    BINARY,
    LEVELS,
    NUMBER,
    Columns,
    column,
    ids_of,
    reader_of,
    rows_of,
    snapshot_of,
    table_of,
)

KEY = SubjectKey.of("id")
Rows = list[tuple[bytes, list[int]]]


def given_by(found: TableScan) -> Rows:
    rows: Rows = []
    for ids, encoded in found.sorter:
        listed: list[Any] = ids.to_pylist()
        rows += zip(listed, encoded.tolist(), strict=True)
    return rows


def required(columns: Columns, *, batch: int = 99) -> TableScan:
    """What registration does, for the owner's eyes."""
    columns = {"x": column([1.0] * len(columns["id"])), **columns}
    found = table_of(columns, NUMBER, batch=batch).scan()
    list(found.sorter)
    found.require_one_row_each(KEY)
    return found


def test_subjects_come_in_the_order_of_their_bytes_with_their_rows(tmp_path: Path) -> None:
    columns = {"id": column(["b", "a", "é", "Z", "10", "9"]), "x": column([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])}
    made = snapshot_of(tmp_path, columns, NUMBER)
    assert ids_of(made) == [i.encode() for i in ("10", "9", "Z", "a", "b", "é")]
    encoded = [int((x / 5 - 1) * 32768) for x in (5, 6, 4, 2, 1, 3)]
    assert [row for (row,) in rows_of(made).values()] == encoded


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, unique_by=lambda s: normalize("NFC", s).strip()))
def test_ids_are_canonical_and_in_byte_order_whatever_they_are(ids: list[str]) -> None:
    canonical = [normalize("NFC", i).strip().encode() for i in ids]
    found = table_of({"id": column(ids, pa.string()), "x": column([1.0] * len(ids))}, NUMBER).scan()
    assert [one for one, _ in given_by(found)] == sorted(canonical)


TWICE, MISSING = "1 duplicate subject id", "1 subject id is missing"


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (["a", "b", "a"], TWICE),
        (["a", "b", "c", "a"], TWICE),  # in another batch, of two
        (["a", " a "], TWICE),
        (["\u00e9", "e\u0301"], TWICE),
        (["\u212b", "\u00c5"], TWICE),
        (["a", "\u00a0a"], TWICE),
        ([1, 1], TWICE),
        (["a", None], MISSING),
        (["a", ""], MISSING),
        (["a", "  "], MISSING),
        ([1.0, float("nan")], MISSING),
        ([1.0, None], MISSING),
        ([["a"], ["b"]], "values of type"),
    ],
)
@pytest.mark.parametrize("batch", [2, 99])
def test_ids_of_one_subject_of_none_or_of_no_text_are_refused(ids: list[object], said: str, batch: int) -> None:
    with pytest.raises(DataError, match=f"column id: {said}"):
        required({"id": column(ids)}, batch=batch)


def test_all_that_is_wrong_with_ids_is_said_with_its_count_and_no_value() -> None:
    with pytest.raises(DataError) as refused:
        required({"id": column(["SENTINEL", "SENTINEL", None, "b", "SENTINEL", ""])})
    assert str(refused.value) == "column id: 2 subject ids are missing, 2 duplicate subject ids"
    assert "SENTINEL" not in refused.value.diagnostics()


def test_records_that_the_reader_passed_over_are_refused_at_registration_alone() -> None:
    def read(names: Sequence[str]) -> Iterator[RawBatch]:
        yield RawBatch({name: column(["1", "2"]) for name in names}, 2, unreadable=3)
        yield RawBatch({name: column(["3"]) for name in names}, 1, unreadable=1)

    for strict in (True, False):
        found = SourceTable([read], KEY, [NUMBER]).scan(strict=strict)
        assert len(given_by(found)) == 3
        assert found.counts.unreadable == 4
        with pytest.raises(DataError, match="column id: 4 records cannot be read"):
            found.require_one_row_each(KEY)


def test_every_column_that_does_not_fit_is_named_with_the_count_of_the_whole_table_and_its_remedy() -> None:
    columns: Columns = {
        "id": column(list("abcde")),
        "x": column(["1", "SENTINEL", "3", "4", "1,5"]),
        "y": column(["SENTINEL", "1", "1", "1", "1"]),
        "z": column([None, "1", "1", None, "1"]),
        "b": column(["no", "yes", "SENTINEL", "no", "no"]),
    }
    numbers = [NUMBER.model_copy(update={"name": name}) for name in "xyz"]
    table = table_of(columns, *numbers, BINARY, batch=2)
    with pytest.raises(DataError) as refused:
        table.scan()
    assert str(refused.value) == (
        "column x: 2 values are not numbers; column y: 1 value is no number; column z: 2 missing values; "
        f"column b: 1 value is not among the levels {', '.join(BINARY.levels)}"
    )
    assert [line.partition(":")[0] for line in refused.value.remedy.splitlines()] == ["x, y", "z", "b"]
    assert "SENTINEL" not in refused.value.diagnostics()
    assert len(given_by(table.scan(strict=False))) == 5


def test_refusal_names_what_its_own_column_is_made_of_and_no_other_whose_name_ends_alike() -> None:
    columns: Columns = {"id": column(["a"]), "my column x": column(["SENTINEL"]), "born": column(["1980-01-31"])}
    numbers = [NUMBER.model_copy(update={"name": name}) for name in ("x", "my column x")]
    made = parse_derived("x = age_at(born, 1980-02-01)")
    with pytest.raises(DataError, match=r"^column my column x: 1 value is no number$"):
        replace(table_of(columns, *numbers), derived=(made,)).scan()


@pytest.mark.parametrize(
    ("cells", "filled"),
    [
        ([2.0, 3.0, 2.5], 11),
        ([2.01] * 3, 1),
        ([0.0, 10.0], 100),
        ([0.0, 1000.0, None, float("nan")], 100),  # what is clipped is at the bound
        ([2.01] * 999 + [9.0], 1),  # one in a thousand
        ([2.01] * 998 + [9.0] * 2, 71),
        ([None, None], 0),
    ],
)
def test_share_of_the_bounds_that_values_fill_is_found(cells: list[float | None], filled: int) -> None:
    ids = column(list(map(str, range(len(cells)))), pa.string())
    columns = {"id": ids, "x": column(cells, pa.float64()), "b": ids}
    found = table_of(columns, NUMBER, BINARY, batch=300).scan(strict=False)
    assert found.filled == {"x": filled}


def test_table_without_rows_is_refused_and_read_as_nobody_by_whoever_may_not_be_told() -> None:
    columns = {"id": column([], pa.string()), "x": column([], pa.float64())}
    with pytest.raises(DataError, match="no rows"):
        required(columns)
    assert given_by(table_of(columns, NUMBER).scan(strict=False)) == []


@pytest.mark.parametrize(
    ("cells", "said", "have_one"),
    [
        (["1", "SENTINEL", "3"], "column x: 1 value is no number", b"ac"),
        (["1", None, None], "column x: 2 missing", b"a"),
        ([1.0, float("inf"), 2.0], "column x: 1 value is", b"abc"),
    ],
)
def test_cells_that_do_not_fit_are_refused_with_column_and_count_and_read_on_otherwise(
    cells: list[object], said: str, have_one: bytes
) -> None:
    table = table_of({"id": column(["a", "b", "c"]), "x": column(cells)}, NUMBER)
    with pytest.raises(DataError, match=said) as refused:
        table.scan()
    assert "SENTINEL" not in refused.value.diagnostics()
    assert len(given_by(table.scan(strict=False))) == 3
    complete = given_by(table.scan(strict=False, complete=True))
    assert b"".join(one for one, _ in complete) == have_one
    marked = NUMBER.model_copy(update={"missing": "indicator"})
    table = table_of({"id": column(["a", "b", "c"]), "x": column(cells)}, marked)
    assert len(given_by(table.scan(strict=False, complete=True))) == 3


def test_reading_without_an_owner_refuses_no_record_and_takes_the_least_of_each_subject() -> None:
    ids = ["b", None, "a", " ", "b ", "c", "a"]
    cells = ["3", "1", "text", "2", "1", None, "9"]
    expected: Rows | None = None
    draw = np.random.default_rng(3)
    for _ in range(20):
        order = draw.permutation(len(ids))
        columns = {"id": column(ids).take(order), "x": column(cells).take(order)}
        found = table_of(columns, NUMBER, batch=int(draw.integers(1, 8))).scan(strict=False)
        rows = given_by(found)
        assert expected in (None, rows)
        expected = rows
        assert [one for one, _ in rows] == [b"a", b"b", b"c"]
        assert (found.counts.rows, found.counts.missing, found.counts.duplicates) == (7, 2, 2)
        assert found.missing == {"x": 2}
        assert found.clipped == {"x": 0}
    assert expected is not None
    alternatives = [[0], [int((9 / 5 - 1) * 32768)]], [[int((x / 5 - 1) * 32768)] for x in (3, 1)], [[0]]
    for (_, row), among in zip(expected, alternatives, strict=True):
        assert row == min(among, key=lambda one: np.array(one, "<i4").tobytes())


@pytest.mark.slow
@given(
    st.lists(st.floats(-20, 20) | st.integers(10**10, 10**15).map(float), min_size=1, max_size=12, unique=True),
    st.integers(1, 12),
    st.integers(0, 99),
)
def test_reading_does_not_depend_on_order_or_batches(ids: list[float], batch: int, seed: int) -> None:
    columns = {"id": column(ids), "x": column([i % 7 for i in ids]), "b": column(["no", "yes"] * 6).slice(0, len(ids))}
    order = np.random.default_rng(seed).permutation(len(ids))
    whole = table_of(columns, NUMBER, BINARY).scan()
    parts = table_of({name: cells.take(order) for name, cells in columns.items()}, NUMBER, BINARY, batch=batch).scan()
    assert given_by(whole) == given_by(parts)
    assert whole.counts == parts.counts
    assert (whole.clipped, whole.missing) == (parts.clipped, parts.missing)


@pytest.mark.parametrize("bad", ["text", None, "1e999", "NaN", ""])
def test_whatever_one_record_holds_the_rows_of_other_subjects_are_the_same(tmp_path: Path, bad: str | None) -> None:
    ids, cells = ["a", "b", "c"], ["1", "2", "3"]

    def rows_with(more: list[str | None], texts: list[str | None]) -> dict[bytes, list[int]]:
        columns = {"id": column([*ids, *more]), "x": column(texts, pa.string())}
        return rows_of(snapshot_of(tmp_path, columns, NUMBER, strict=False))

    before = rows_with([], [*cells])
    for other in (None, "", "a", "z"):
        after = rows_with([other], [*cells, bad])
        assert {one: row for one, row in after.items() if one not in {b"a", b"z"}} == {
            one: row for one, row in before.items() if one != b"a"
        }
        assert other == "a" or after[b"a"] == before[b"a"]
    within = rows_with([], ["1", bad, "3"])
    assert (within[b"a"], within[b"c"]) == (before[b"a"], before[b"c"])


def test_scan_counts_over_all_batches() -> None:
    columns = {"id": column(list("abcd")), "x": column([-1.0, 5.0, 11.0, 12.0]), "c": column(["r", "s", "t", "r"])}
    progress: list[int] = []
    found = table_of(columns, NUMBER, LEVELS, batch=3).scan(progress.append)
    assert (found.counts.rows, found.clipped, found.missing) == (4, {"x": 3, "c": 0}, {"x": 0, "c": 0})
    assert progress == [3, 4]


def test_columns_of_the_key_and_the_attributes_are_asked_for_once_and_no_other() -> None:
    asked: list[Sequence[str]] = []
    whole = reader_of({"id": column(["a"]), "x": column([1.0]), "note": column(["n"])})

    def read(names: Sequence[str]) -> Iterator[RawBatch]:
        asked.append(names)
        return whole(names)

    list(SourceTable([read], KEY, [NUMBER]).scan().sorter)
    assert asked == [["id", "x"]]


def test_table_larger_than_a_batch_is_never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "RUN_RECORDS", 1500)
    alive: set[int] = set()
    most = 0

    def read(names: Sequence[str]) -> Iterator[RawBatch]:
        nonlocal most
        for start in range(0, 20_000, 1000):
            columns = {name: column([float(start + i) for i in range(1000)]) for name in names}
            alive.add(start)
            weakref.finalize(columns["id"], alive.discard, start)
            most = max(most, len(alive))
            yield RawBatch(columns, 1000)
            del columns

    found = SourceTable([read], KEY, [NUMBER]).scan()
    assert sum(len(ids) for ids, _ in found.sorter) == 20_000
    assert most <= 2  # the one that is made and the one that has just been used
    assert not alive


def test_rows_and_ids_do_not_show_in_a_repr() -> None:
    table = table_of({"id": column(["SENTINEL", "b"]), "x": column([7.25, 2.0])}, NUMBER)
    (raw,) = table.partitions[0](["id", "x"])
    (read,) = ReadingRecords(KEY, [NUMBER])(table.partitions[0], lambda _: None)
    said = f"{raw!r}{read!r}{table.scan()!r}{replace(read, rows=read.rows)!r}"
    assert "SENTINEL" not in said
    assert "7.25" not in said
    assert str(read.rows[0, 0]) not in said
