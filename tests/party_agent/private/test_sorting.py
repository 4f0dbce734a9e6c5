"""Sorting records in bounded memory: the same as sorting them at once, and the least of each subject counts."""

import struct
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from tempfile import SpooledTemporaryFile
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commingle.party_agent.private import sorting
from commingle.party_agent.private.sorting import PlacedRows, RecordSorter, packed, unpacked
from commingle.shared.documents.terms import Terms
from commingle.shared.mechanisms import mechanism_named
from commingle.shared.mechanisms.interface import Placement
from commingle.shared.mechanisms.moments.block import Buckets

Record = tuple[bytes, tuple[int, int]]
ENTRY = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-32768, -1, 0, 1, 256, 32768])
RECORD = st.tuples(st.binary(max_size=2), st.tuples(ENTRY, ENTRY))


def sorter_of(pieces: Sequence[Sequence[Record]]) -> RecordSorter:
    sorter = RecordSorter()
    for piece in pieces:
        rows = np.array([row for _, row in piece], np.int64).reshape(-1, 2)
        sorter.add(pa.array([one for one, _ in piece], pa.large_binary()), rows)
    return sorter


def given_by(sorter: RecordSorter) -> list[Record]:
    found = list[Record]()
    for ids, rows in sorter:
        listed: list[Any] = ids.to_pylist()
        found += [(one, (int(row[0]), int(row[1]))) for one, row in zip(listed, rows, strict=True)]
    return found


def encoded(row: tuple[int, int]) -> bytes:
    return struct.pack("<2i", *row)


def in_plain_python(records: Sequence[Record]) -> list[Record]:
    least = dict[bytes, tuple[int, int]]()
    for one, row in records:
        if one and (one not in least or encoded(row) < encoded(least[one])):
            least[one] = row
    return sorted(least.items())


@pytest.fixture(params=[(7, 3, 50), (1, 1, 1), (1 << 17, 1 << 11, 1 << 22)], ids=["runs on disk", "of one", "usual"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    *of_records, in_memory = request.param
    monkeypatch.setattr(sorting, "IN_MEMORY_BYTES", in_memory)
    for name, value in zip(("RUN_RECORDS", "PIECE_RECORDS"), of_records, strict=True):
        monkeypatch.setattr(sorting, name, value)


@pytest.mark.usefixtures("sizes")
@given(st.lists(st.lists(RECORD, max_size=12), max_size=6))
def test_records_are_those_of_sorting_all_at_once(pieces: list[list[Record]]) -> None:
    records, sorter = [one for piece in pieces for one in piece], sorter_of(pieces)
    assert given_by(sorter) == in_plain_python(records)
    named = [one for one, _ in records if one]
    assert sorter.duplicates == len(named) - len(set(named))


@pytest.mark.usefixtures("sizes")
def test_least_row_of_a_subject_counts_wherever_it_stands() -> None:
    """Also where its records fill whole runs, and others' stand between."""
    filling = [(b"b", (5, i)) for i in range(20)]
    for place in (0, 3, 7, 20):
        records = [*filling[:place], (b"a", (1, 1)), (b"b", (4, 99)), (b"c", (0, 0)), *filling[place:]]
        assert given_by(sorter_of([[one] for one in records])) == [(b"a", (1, 1)), (b"b", (4, 99)), (b"c", (0, 0))]


@pytest.mark.usefixtures("sizes")
def test_anothers_record_does_not_change_which_of_a_subjects_counts() -> None:
    """What docs/proofs/records.md, 2.3 rests on."""
    own = [(b"p", (3, 1)), (b"p", (2, 9)), (b"p", (2, 8))]
    for others in ([], [(b"a", (0, 0))] * 9, [(b"o", (-1, -1)), (b"p\0", (0, 0)), (b"", (0, 0))]):
        assert dict(given_by(sorter_of([own, others, own])))[b"p"] == (2, 8)


@pytest.mark.usefixtures("sizes")
def test_no_piece_begins_with_the_subject_that_ended_the_one_before() -> None:
    sorter = sorter_of([[(b"%d" % (i % 5), (i, i))] for i in range(60)])
    pieces = [ids.to_pylist() for ids, _ in sorter]
    assert all(pieces)
    assert all(before[-1] != after[0] for before, after in pairwise(pieces))
    assert sum(map(len, pieces)) == 5


def test_records_without_an_id_alone_are_nobody() -> None:
    sorter = sorter_of([[(b"", (1, 2))], []])
    assert (given_by(sorter), sorter.duplicates) == ([], 0)


def test_pieces_stay_small_however_many_records_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "RUN_RECORDS", 100)
    monkeypatch.setattr(sorting, "PIECE_RECORDS", 10)
    sorter = sorter_of([[(b"%05d" % ((i * 7919) % 1000), (i, 0))] for i in range(1000)])
    assert len(sorter.waiting) <= 100
    sizes = [len(ids) for ids, _ in sorter]
    assert sum(sizes) == 1000
    assert max(sizes) <= 10 * 10  # a piece of each of ten runs


@given(st.lists(RECORD, max_size=9), st.integers(0, 9), st.integers(0, 9))
def test_packed_records_are_read_back_also_from_a_slice(records: list[Record], start: int, length: int) -> None:
    rows = np.array([row for _, row in records], np.int64).reshape(-1, 2)
    batch = packed(pa.array([one for one, _ in records], pa.binary()), rows).slice(start, length)
    ids, found = unpacked(batch)
    assert ids.to_pylist() == [one for one, _ in records[start : start + length]]
    assert found.tolist() == rows[start : start + length].tolist()


@pytest.fixture
def to_disk(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All that is written to temporary files from now on."""
    written = list[bytes]()

    class Noted(SpooledTemporaryFile[bytes]):
        def write(self, data: Any) -> int:
            written.append(bytes(data))
            return super().write(data)

    monkeypatch.setattr(sorting, "SpooledTemporaryFile", Noted)
    return written


@pytest.mark.usefixtures("sizes")
def test_neither_id_nor_row_reaches_the_disk_in_the_clear(to_disk: list[bytes]) -> None:
    row = (0x53454E54, 0x494E454C)  # "TNESLENI"
    found = given_by(sorter_of([[(b"patient-%d" % number, row) for number in range(20)]]))
    assert len(found) == 20
    assert to_disk
    assert b"patient" not in b"".join(to_disk)
    assert b"TNES" not in b"".join(to_disk)


def by_rank(n: int, d: int) -> PlacedRows:
    return PlacedRows(n, lambda ranks: ranks.astype(np.int64), partial(Placement, d=d))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(n=st.integers(1, 40), window=st.integers(1, 12), batch=st.integers(1, 9), seed=st.integers(0, 99))
def test_rows_come_back_by_rank_whatever_their_order(
    monkeypatch: pytest.MonkeyPatch, n: int, window: int, batch: int, seed: int
) -> None:
    monkeypatch.setattr(sorting, "WINDOW_ROWS", window)
    monkeypatch.setattr(sorting, "IN_MEMORY_BYTES", 1)
    draw = np.random.default_rng(seed)
    rows, ranks = draw.integers(-(2**15), 2**15 + 1, (n, 3)), draw.permutation(n)
    placed = by_rank(n, 3)
    for start in range(0, n, batch):
        own = ranks[start : start + batch]
        placed.add(own, rows[own])
    pieces = list(placed)
    assert [len(piece) for piece in pieces[:-1]] == [window] * (len(pieces) - 1)
    assert np.array_equal(np.concatenate(pieces), rows)
    assert np.array_equal(np.concatenate(list(placed)), rows), "read as often as wanted"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(n=st.integers(1, 40), count=st.integers(2, 30), window=st.integers(1, 12), seed=st.integers(0, 99))
def test_buckets_are_filled_as_if_all_were_in_memory(
    monkeypatch: pytest.MonkeyPatch, n: int, count: int, window: int, seed: int
) -> None:
    monkeypatch.setattr(sorting, "WINDOW_ROWS", window)
    draw = np.random.default_rng(seed)
    names = np.frombuffer(draw.bytes(32 * n), np.uint8).reshape(n, 32)
    rows = draw.integers(-(2**14), 2**14 + 1, (n, 3))
    buckets = partial(Buckets, count=count, d=3)
    mechanism, terms = mechanism_named("moments", keyed=True), cast("Terms", SimpleNamespace(table_rows=count))
    placed, whole = PlacedRows(count, partial(mechanism.places, terms), buckets), buckets(range(count))
    for start in range(0, n, 7):
        own = slice(start, start + 7)
        placed.add(names[own], rows[own])
        whole.add(names[own], rows[own])
    assert np.array_equal(np.concatenate(list(placed)), whole.total())
    assert np.array_equal(np.concatenate(list(placed)), whole.total()), "read as often as wanted"


def test_no_cell_reaches_the_disk_in_the_clear(to_disk: list[bytes]) -> None:
    placed = by_rank(4, 1)
    placed.add(np.arange(4), np.full((4, 1), 0x53454E54))  # "TNES"
    assert to_disk
    assert b"TNES" not in b"".join(to_disk)
    assert np.array_equal(np.concatenate(list(placed)), np.full((4, 1), 0x53454E54))
