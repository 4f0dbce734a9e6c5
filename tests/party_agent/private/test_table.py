"""Subjects, ranks, digests and streaming."""

import weakref
from collections.abc import Iterator, Sequence
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.party_agent.errors import DataError, SubjectsChangedError
from commingle.party_agent.private.digest import TableDigest
from commingle.party_agent.private.ranks import Ranks
from commingle.party_agent.private.rows import RawBatch
from commingle.party_agent.private.table import PrivateTable
from commingle.shared.documents.subject_ids import SubjectKey
from tests.party_agent.private.ranking import ids_of
from tests.party_agent.private.tables import BINARY, LEVELS, NUMBER, column, table_of

IDS = column(["b", "a", "é", "Z", "10", "9"])
XS = column([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


def digest_of(ids: "pa.Array[pa.StringScalar]", xs: "pa.Array[pa.DoubleScalar]", batch: int = 99) -> TableDigest:
    return table_of({"id": ids, "x": xs}, NUMBER, batch=batch).scan().digest


def ranks_of(table: PrivateTable) -> Ranks:
    return table.ranks(table.scan().digest)


def test_ranks_sort_subjects_by_their_bytes() -> None:
    ranks = ranks_of(table_of({"id": IDS, "x": XS}, NUMBER))
    in_order = ["10", "9", "Z", "a", "b", "é"]
    assert ids_of(ranks) == [i.encode() for i in in_order]
    assert ranks.by_row[:].tolist() == [in_order.index(str(i)) for i in IDS.to_pylist()]


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, unique_by=lambda s: normalize("NFC", s).strip()))
def test_ranks_are_a_permutation_in_byte_order_for_any_ids(ids: list[str]) -> None:
    canonical = [normalize("NFC", i).strip().encode() for i in ids]
    ranks = ranks_of(table_of({"id": column(ids, pa.string())}))
    assert ids_of(ranks) == sorted(canonical)
    assert [sorted(canonical)[rank] for rank in ranks.by_row[:]] == canonical


@pytest.mark.parametrize(
    "ids",
    [
        ["a", "b", "a"],
        ["a", " a "],
        ["\u00e9", "e\u0301"],
        ["\u212b", "\u00c5"],
        ["a", "\u00a0a"],
        [1, 1],
    ],
    ids=["equal", "white space", "composed", "compatible", "no-break space", "numbers"],
)
def test_subjects_that_are_the_same_are_duplicates(ids: list[object]) -> None:
    with pytest.raises(DataError, match="column id: 1 duplicate subject ids"):
        table_of({"id": column(ids)}).scan()


def test_duplicates_in_different_batches_are_found_at_registration() -> None:
    table = table_of({"id": column(["a", "b", "c", "a"]), "x": column([1, 2, 3, 4])}, NUMBER, batch=2)
    with pytest.raises(DataError, match="1 duplicate"):
        table.scan()


@pytest.mark.parametrize("ids", [["a", None], ["a", ""], ["a", "  "], [1.0, float("nan")], [1.0, None]])
def test_missing_and_empty_subjects_are_refused(ids: list[object]) -> None:
    with pytest.raises(DataError, match="column id: 1 subject ids are missing"):
        table_of({"id": column(ids)}).scan()


def test_subjects_that_are_not_text_are_refused() -> None:
    with pytest.raises(DataError, match="column id: values of type"):
        table_of({"id": column([["a"], ["b"]])}).scan()


@given(
    st.lists(st.floats(-20, 20) | st.integers(10**10, 10**15).map(float), min_size=1, max_size=12, unique=True),
    st.integers(1, 12),
)
def test_digest_and_ranks_do_not_depend_on_batch_boundaries(ids: list[float], batch: int) -> None:
    columns = {"id": column(ids), "x": column([i % 7 for i in ids]), "b": column(["no", "yes"] * 6).slice(0, len(ids))}
    whole, parts = (table_of(columns, NUMBER, BINARY, batch=size) for size in (99, batch))
    assert whole.scan() == parts.scan()
    assert np.array_equal(ranks_of(whole).by_row[:], ranks_of(parts).by_row[:])


def test_digest_sees_a_changed_subject_order_and_length_and_no_value() -> None:
    before = digest_of(IDS, XS)
    assert digest_of(IDS, XS, batch=2) == before
    assert digest_of(IDS, column([0.0, 2.0, 3.0, 4.0, 5.0, 6.01])) == before
    swapped = pa.array([1, 0, 2, 3, 4, 5])
    others = [
        digest_of(IDS.take(swapped), XS.take(swapped)),
        digest_of(column(["b", "a", "é", "Z", "10", "8"]), XS),
        digest_of(IDS.slice(0, 5), XS.slice(0, 5)),
    ]
    assert before not in others


def test_digest_does_not_confuse_where_one_subject_ends() -> None:
    xs = column([1.0, 2.0])
    assert digest_of(column(["ab", "c"]), xs).subjects != digest_of(column(["a", "bc"]), xs).subjects


def test_other_subjects_are_noticed_after_the_last_batch() -> None:
    expected = digest_of(IDS, XS)
    changed = table_of({"id": column(["b", "a", "é", "Z", "10", "8"]), "x": XS}, NUMBER, batch=2)
    batches = changed.batches(expected)
    assert sum(len(next(batches).subjects) for _ in range(3)) == 6
    with pytest.raises(SubjectsChangedError):
        next(batches)
    with pytest.raises(SubjectsChangedError):
        changed.ranks(expected)


@pytest.mark.parametrize("ids", [["a", "b", None], ["a", "b", "b"], [["a"], ["b"], ["c"]], ["a", "b"]], ids=str)
def test_subjects_that_are_none_any_more_are_other_subjects(ids: list[object]) -> None:
    expected = table_of({"id": column(["a", "b", "c"]), "x": column([1, 2, 3])}, NUMBER).scan().digest
    changed = table_of({"id": column(ids), "x": column([1, 2, 3][: len(ids)])}, NUMBER)
    for reading in (lambda: changed.ranks(expected), lambda: list(changed.batches(expected))):
        with pytest.raises(SubjectsChangedError):
            reading()


def test_whose_rows_they_are_is_found_without_reading_a_cell() -> None:
    asked: list[Sequence[str]] = []
    whole = table_of({"id": IDS, "x": XS}, NUMBER)

    def read(names: Sequence[str]) -> Iterator[RawBatch]:
        asked.append(names)
        return whole.read(names)

    progress: list[int] = []
    table = PrivateTable(read, SubjectKey.of("id"), [NUMBER])
    assert len(table.ranks(whole.scan().digest, progress.append).by_row) == 6
    assert (asked, progress) == ([["id"]], [6])


def test_scan_counts_over_all_batches() -> None:
    columns = {"id": column(list("abcd")), "x": column([-1.0, 5.0, 11.0, 12.0]), "c": column(["r", "s", "t", "r"])}
    progress: list[int] = []
    found = table_of(columns, NUMBER, LEVELS, batch=3).scan(progress.append)
    assert (found.n, found.clipped, found.missing) == (4, {"x": 3, "c": 0}, {"x": 0, "c": 0})
    assert progress == [3, 4]


def test_table_larger_than_a_batch_is_never_held() -> None:
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

    table = PrivateTable(read, SubjectKey.of("id"), [NUMBER])
    found = table.scan()
    assert len(table.ranks(found.digest).by_row) == found.n
    assert sum(len(batch.subjects) for batch in table.batches(found.digest)) == found.n
    assert found.n == 20_000
    assert most <= 2  # the one that is made and the one that has just been used
    assert not alive


def test_rows_and_digests_do_not_show_in_a_repr() -> None:
    table = table_of({"id": column(["SENTINEL", "b"]), "x": column([7.25, 2.0])}, NUMBER)
    found = table.scan()
    (raw,) = table.read(["id", "x"])
    (batch,) = table.batches(found.digest)
    said = f"{raw!r}{batch!r}{found!r}{ranks_of(table)!r}{found.digest!r}"
    assert "SENTINEL" not in said
    assert "7.25" not in said
    assert found.digest.subjects not in said
