"""Tables in partitions: the same integers whatever the partitions are, and what becomes of bad ones."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.party_agent.errors import DataError, SourceError
from commingle.party_agent.private.engine import IN_PROCESS
from commingle.party_agent.private.parquet_store import PartitionedSource
from commingle.party_agent.private.privatise import BlockRequest, KeyedRows
from commingle.party_agent.private.sources import SourceTable, TableScan, open_table
from commingle.party_agent.private.sql_store import SqlSource
from commingle.shared.documents.linkage import pseudonyms
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.errors import DocumentError
from tests.party_agent.private.lake import lake, write_partitions
from tests.party_agent.private.releases import RELEASES, N, Release, columns_of, request_of
from tests.party_agent.private.releases import before_noise as before_noise_of
from tests.party_agent.private.tables import (
    BINARY,
    LEVELS,
    NUMBER,
    column,
    reader_of,
    rows_of,
    snapshot_from,
    sqlite_table,
    table_of,
)

ATTRIBUTES = (NUMBER, BINARY, LEVELS)


def asked(mechanism: Release) -> BlockRequest:
    """Of two stages, so that partitions are read for sums as well."""
    return request_of(mechanism, *ATTRIBUTES, first_stage_share=0.2)


def before_noise(table: SourceTable, request: BlockRequest) -> tuple[NDArray[np.int64], Any]:
    """What a release is made of."""
    with TemporaryDirectory() as folder:
        return before_noise_of(snapshot_from(Path(folder), table), request)


@pytest.mark.parametrize("mechanism", RELEASES)
@pytest.mark.parametrize(("ends", "seed"), [([], None), ([20, 40], None), ([1, 1, 59], 3), ([7, 30, 31, 55], 4)])
def test_block_before_noise_is_the_same_whatever_the_partitions(
    tmp_path: Path, mechanism: Release, ends: list[int], seed: int | None
) -> None:
    whole, sums = before_noise(table_of(columns_of(), *ATTRIBUTES), asked(mechanism))
    parts, same = before_noise(
        lake(write_partitions(tmp_path / "t", columns_of(), ends, seed=seed), *ATTRIBUTES), asked(mechanism)
    )
    assert np.array_equal(parts, whole)
    assert sums is not None
    assert sums == same


def read_all(table: SourceTable) -> tuple[TableScan, list[tuple[Any, list[int]]]]:
    """What is found, and everybody's row."""
    found = table.scan()
    rows = [one for ids, encoded in found.sorter for one in zip(ids.to_pylist(), encoded.tolist(), strict=True)]
    return found, rows


def test_registration_finds_and_counts_the_same_whatever_the_partitions(tmp_path: Path) -> None:
    columns = columns_of() | {"x": column([99.0, None, *columns_of()["x"].to_pylist()[2:]])}
    number = NUMBER.model_copy(update={"missing": "midpoint"})
    found, rows = read_all(table_of(columns, number, BINARY))
    for place, (ends, seed) in enumerate([([10, 50], None), ([33], 1), ([0, N], 2)]):
        folder = write_partitions(tmp_path / str(place), columns, ends, seed=seed)
        other, same = read_all(lake(folder, number, BINARY, strict=True))
        assert same == rows
        assert (other.counts, other.clipped, other.missing) == (found.counts, found.clipped, found.missing)
    assert found.clipped["x"] >= 1
    assert found.missing["x"] == 1


@settings(deadline=None)
@given(
    records=st.lists(st.tuples(st.sampled_from(["a", "b", "c", "", "é"]), st.integers(0, 10)), max_size=20),
    cut=st.integers(0, 20),
    order=st.randoms(use_true_random=False),
)
def test_partitions_of_any_records_are_read_as_one_table(
    records: list[tuple[str, int]], cut: int, order: Random
) -> None:
    """Also where a subject has records in several: the least of them counts, wherever it stands."""

    def read(*parts: list[tuple[str, int]]) -> list[tuple[Any, list[int]]]:
        columns = [
            {"id": column([i for i, _ in p], pa.string()), "x": column([x for _, x in p], pa.int64())} for p in parts
        ]
        table = SourceTable([reader_of(each, batch=3) for each in columns], SubjectKey.of("id"), [NUMBER])
        return read_all(table)[1]

    shuffled = list(records)
    order.shuffle(shuffled)
    assert read(records) == read(shuffled[:cut], shuffled[cut:]) == read(shuffled[cut:], shuffled[:cut])


def test_subject_in_two_partitions_is_a_duplicate(tmp_path: Path) -> None:
    columns = {"id": column(["a", "b", "a"]), "x": column([1.0, 2.0, 3.0])}
    found, _ = read_all(lake(write_partitions(tmp_path / "t", columns, [2]), NUMBER, strict=True))
    with pytest.raises(DataError, match="column id: 1 duplicate"):
        found.require_one_row_each(SubjectKey.of("id"))


def test_table_of_partitions_without_rows_is_refused(tmp_path: Path) -> None:
    nobody = {name: cells[:0] for name, cells in columns_of().items()}
    found, _ = read_all(lake(write_partitions(tmp_path / "none", nobody, [0]), NUMBER))
    with pytest.raises(DataError, match="no rows"):
        found.require_one_row_each(SubjectKey.of("id"))


def test_column_may_be_in_the_names_of_folders(tmp_path: Path) -> None:
    for folder, ids in {
        "c=s": ["b"],
        "c=%73": ["d"],  # as Spark escapes what no folder may be called
        "c=r": ["a"],
        "c=__HIVE_DEFAULT_PARTITION__": ["c"],
    }.items():
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"id": ids}), tmp_path / folder / "part-0.snappy.parquet")
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "half.parquet").write_bytes(b"half")
    read = snapshot_from(tmp_path / "made", lake(tmp_path, LEVELS), strict=False)
    assert rows_of(read) == {b"a": [0, 0], b"b": [32768, 0], b"c": [0, 0], b"d": [32768, 0]}


def replaced(folder: Path) -> None:
    pq.write_table(pa.table({"id": ["SENTINEL"], "x": [1.0]}), folder / "part-1.parquet")


def removed(folder: Path) -> None:
    (folder / "part-1.parquet").unlink()


def touched(folder: Path) -> None:
    os.utime(folder / "part-1.parquet", ns=(1, 1))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("change", [replaced, removed, touched])
def test_partition_that_changes_while_the_table_is_read_is_an_error_that_names_it(
    tmp_path: Path, change: Callable[[Path], None], strict: bool
) -> None:
    folder = write_partitions(tmp_path / "t", columns_of(), [20, 40])
    table = lake(folder, *ATTRIBUTES)

    def progress(rows: int) -> None:
        if rows == 20:  # of the first partition
            change(folder)

    with pytest.raises(SourceError, match=r"partition 2 of 3 \(part-1.parquet\)") as refused:
        table.scan(progress, strict=strict)
    assert "SENTINEL" not in refused.value.diagnostics()


def test_release_reads_no_partition(tmp_path: Path) -> None:
    """What becomes of the source after it was read is no matter of a release."""
    request, folder = asked("dgm"), write_partitions(tmp_path / "t", columns_of(), [20, 40])
    expected, _ = before_noise(lake(folder, *ATTRIBUTES), request)
    snapshot = snapshot_from(tmp_path / "s", lake(folder, *ATTRIBUTES))
    for path in folder.iterdir():
        path.unlink()
    assert np.array_equal(before_noise_of(snapshot, request)[0], expected)


def corrupt(folder: Path) -> None:
    (folder / "part-1.parquet").write_bytes(b"PAR1 SENTINEL PAR1")


def without_a_column(folder: Path) -> None:
    pq.write_table(pa.table({"id": ["SENTINEL"]}), folder / "part-1.parquet")


def of_another_type(folder: Path) -> None:
    pq.write_table(pa.table({"id": ["SENTINEL"], "x": ["1.5"]}), folder / "part-1.parquet")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (corrupt, r"cannot read partition 2 of 3 \(part-1.parquet\)"),
        (without_a_column, "partition 2 of 3 .* has no column x"),
        (of_another_type, "column x is string in partition 2 of 3 .* double in the first"),
    ],
)
def test_partition_that_is_not_like_the_others_refuses_the_registration(
    tmp_path: Path, change: Callable[[Path], None], said: str
) -> None:
    folder = write_partitions(tmp_path / "t", columns_of(), [20, 40])
    change(folder)
    with pytest.raises((SourceError, DataError), match=said) as refused:
        lake(folder, NUMBER, strict=True).scan()
    assert "SENTINEL" not in refused.value.diagnostics()


def test_partition_without_values_has_no_type_to_differ_in(tmp_path: Path) -> None:
    folder = write_partitions(tmp_path / "t", {"id": column(["a"]), "x": column([1.0])}, [])
    pq.write_table(pa.table({"id": ["b"], "x": pa.nulls(1)}), folder / "part-1.parquet")
    number = NUMBER.model_copy(update={"missing": "midpoint"})
    assert lake(folder, number, strict=True).scan().missing == {"x": 1}


def test_directory_without_partitions_or_none_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no Parquet files"):
        lake(tmp_path, NUMBER)
    with pytest.raises(SourceError, match="cannot read"):
        lake(tmp_path / "absent", NUMBER)


@pytest.mark.parametrize(
    ("path", "said"),
    [("s3://key:hunter2@bucket/x", "holds no credentials"), ("file:///home/hunter2", "or s3://bucket/prefix")],
)
def test_other_addresses_are_refused_without_repeating_them(path: str, said: str) -> None:
    with pytest.raises(DocumentError, match=said) as refused:
        decode(PartitionedSource, json.dumps({"kind": "partitions", "path": path}).encode())
    assert "hunter2" not in refused.value.diagnostics()


def test_queries_are_partitions_of_one_table(tmp_path: Path) -> None:
    columns, halves = columns_of(), ("SELECT * FROM t WHERE x < 5", "SELECT * FROM t WHERE x >= 5;")
    rows = list(zip(*(columns[name].to_pylist() for name in ("id", "x", "b", "c")), strict=True))
    source = sqlite_table(tmp_path / "t.db", rows, columns="id, x, b, c", query=halves)
    assert decode(SqlSource, encode(source)) == source
    table = open_table(source, SubjectKey.of("id"), ATTRIBUTES, engine=IN_PROCESS)
    parts, _ = before_noise(table, asked("rmgm"))
    whole, _ = before_noise(table_of(columns, *ATTRIBUTES), asked("rmgm"))
    assert np.array_equal(parts, whole)


def test_reader_that_a_worker_is_given_holds_no_row_and_shows_none(tmp_path: Path) -> None:
    table = lake(write_partitions(tmp_path / "t", {"id": column(["SENTINEL"]), "x": column([1.0])}, []), NUMBER)
    assert b"SENTINEL" not in pickle.dumps(table.partitions)
    assert "SENTINEL" not in repr(table)


@pytest.mark.slow
def test_partitions_in_a_bucket_are_read_alike_and_one_that_refuses_says_so(tmp_path: Path) -> None:
    from tests.world.s3 import BUCKET, storage

    folder = write_partitions(tmp_path / "t", columns_of(), [20, 40])
    here, _ = before_noise(lake(folder, *ATTRIBUTES), asked("rmgm"))
    with storage() as server:
        client = server.client()
        for path in folder.iterdir():
            client.put_object(Bucket=BUCKET, Key=f"lake/{path.name}", Body=path.read_bytes())
        table = lake(server.address("lake"), *ATTRIBUTES, strict=True)
        there, _ = before_noise(table, asked("rmgm"))
        assert np.array_equal(there, here)
        client.delete_object(Bucket=BUCKET, Key="lake/part-1.parquet")
        with pytest.raises(SourceError, match=r"partition 2 of 3 \(part-1.parquet\) was changed or removed"):
            table.scan()
        with pytest.raises(SourceError, match=r"\(NO_SUCH_BUCKET\)"):
            lake(server.address("lake", bucket="elsewhere"), *ATTRIBUTES)
        with pytest.raises(SourceError, match="cannot read"):
            lake(server.address("empty"), *ATTRIBUTES)
    with pytest.raises(SourceError, match="cannot read"):
        lake(server.address("lake"), *ATTRIBUTES)


@pytest.mark.parametrize("strict", [True, False])
def test_keyed_subject_has_one_row_whatever_partition_it_comes_up_in_again(tmp_path: Path, strict: bool) -> None:
    """Two rows of one subject would move a block twice as far as the charge is for."""
    ids = [["a", "b", "b"], ["b", "c"], ["a"]]
    parts = [reader_of({"id": column(i), "x": column([1.0] * len(i))}) for i in ids]
    told: list[int] = []
    table, key, release = SourceTable(parts, SubjectKey.of("id"), [NUMBER]), b"\x01" * 32, "0" * 64
    snapshot = snapshot_from(tmp_path, table, piece=2, strict=strict)
    batches = list(KeyedRows(snapshot, key, release).rows(told.append))
    names = pseudonyms(key, [b"a", b"b", b"c"], spec_digest=release)
    assert [bytes(name) for batch, _ in batches for name in batch] == list(map(bytes, names))
    assert sum(len(rows) for _, rows in batches) == 3
    assert told == [2, 3]
