"""Tables in partitions: the same integers whatever the partitions are, and what becomes of bad ones."""

import json
import os
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.party_agent.errors import DataError, SourceError, SubjectsChangedError
from commingle.party_agent.private.digest import TableDigest
from commingle.party_agent.private.engine import IN_PROCESS
from commingle.party_agent.private.mixing import PresentRows
from commingle.party_agent.private.parquet_store import PartitionedSource
from commingle.party_agent.private.partitions import PartitionedTable
from commingle.party_agent.private.privatise import BlockRequest, exchanged_rows, privatise
from commingle.party_agent.private.sources import Table, open_table
from commingle.party_agent.private.sql_store import SqlSource
from commingle.party_agent.private.table import PrivateTable
from commingle.shared.documents.errors import DocumentError
from commingle.shared.documents.linkage import pseudonyms
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.subject_ids import SubjectKey
from tests.party_agent.private.lake import lake, write_partitions
from tests.party_agent.private.ranking import ids_of
from tests.party_agent.private.tables import BINARY, LEVELS, NUMBER, column, table_of
from tests.party_agent.private.test_privatise import Charge, N, columns_of, request_of
from tests.world.consortium import Noise

ATTRIBUTES = (NUMBER, BINARY, LEVELS)
Release = Literal["rmgm", "dgm", "moments"]


def asked(mechanism: Release) -> BlockRequest:
    """Of two stages, so that partitions are read for sums as well."""
    return request_of(mechanism, *ATTRIBUTES, first_stage_share=0.2)


def before_noise(table: Table, request: BlockRequest) -> tuple[NDArray[np.int64], Any]:
    """What a release is made of, the noise of its block taken off again; and the sums, which have noise of one seed."""
    noise = Noise()
    charge = Charge("r", request.plan.charge.units, table.scan().digest)
    if request.spec.interactive:
        rows = exchanged_rows(table, request, charge=charge, draw=noise)
        return rows.integers, rows.sums
    made = privatise(table, request, charge=charge, draw=noise)
    return made.integers - noise.drawn[-1].reshape(made.integers.shape), made.sums


@pytest.mark.parametrize("mechanism", ["rmgm", "dgm", "moments"])
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


def test_registration_counts_the_same_and_its_digest_knows_no_order(tmp_path: Path) -> None:
    columns = columns_of() | {"x": column([99.0, None, *columns_of()["x"].to_pylist()[2:]])}
    number = NUMBER.model_copy(update={"missing": "midpoint"})
    found = table_of(columns, number, BINARY).scan()
    one = lake(write_partitions(tmp_path / "a", columns, [10, 50]), number, BINARY, strict=True).scan()
    other = lake(write_partitions(tmp_path / "b", columns, [33], seed=1), number, BINARY, strict=True).scan()
    assert one == other
    assert (one.n, one.ids, one.clipped, one.missing) == (found.n, found.ids, found.clipped, found.missing)
    assert one.clipped["x"] >= 1
    assert one.missing["x"] == 1
    assert one.digest != found.digest


@given(st.lists(st.text(min_size=1, max_size=3).filter(str.strip), min_size=1, max_size=20), st.integers(0, 20))
def test_digest_of_partitions_is_that_of_the_set_of_subjects(ids: list[str], cut: int) -> None:
    def digest(parts: list[list[str]]) -> TableDigest | int:
        tables = [table_of({"id": column(part, pa.string())}) for part in parts]
        try:
            return PartitionedTable(tables, SubjectKey.of("id"), IN_PROCESS).scan().digest
        except DataError:
            return 0  # ids that stand twice, wherever they stand

    assert digest([ids[:cut], ids[cut:]]) == digest([ids[::-1]])
    assert digest([[*ids, "another"]]) != digest([ids]) or digest([ids]) == 0


def test_subject_in_two_partitions_is_a_duplicate(tmp_path: Path) -> None:
    columns = {"id": column(["a", "b", "a"]), "x": column([1.0, 2.0, 3.0])}
    with pytest.raises(DataError, match="column id: 1 duplicate"):
        lake(write_partitions(tmp_path / "t", columns, [2]), NUMBER, strict=True).scan()


def test_partitions_without_rows_are_read_and_a_table_of_them_alone_is_refused(tmp_path: Path) -> None:
    table = lake(write_partitions(tmp_path / "t", columns_of(), [0, N]), *ATTRIBUTES)
    assert len(table.ranked(table.scan().digest)) == 1
    with pytest.raises(DataError, match="no rows"):
        lake(write_partitions(tmp_path / "none", {k: v[:0] for k, v in columns_of().items()}, [0]), NUMBER).scan()


def test_column_may_be_in_the_names_of_folders(tmp_path: Path) -> None:
    for folder, ids in {"c=s": ["b", "d"], "c=r": ["a"], "c=__HIVE_DEFAULT_PARTITION__": ["c"]}.items():
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"id": ids}), tmp_path / folder / "part-0.snappy.parquet")
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "half.parquet").write_bytes(b"half")
    table = lake(tmp_path, LEVELS)
    encoded = {
        subject: row.tolist()
        for batch in table.batches(table.scan(strict=False).digest)
        for subject, row in zip(batch.subjects.to_pylist(), batch.attributes["c"], strict=True)
    }
    assert encoded == {b"a": [0, 0], b"b": [32768, 0], b"c": [0, 0], b"d": [32768, 0]}


def test_ranks_and_ids_are_those_of_the_table_in_one_piece(tmp_path: Path) -> None:
    table = lake(write_partitions(tmp_path / "t", columns_of(), [20, 40]), NUMBER)
    whole = table_of(columns_of(), NUMBER)
    ranks, expected = table.ranks(table.scan().digest), whole.ranks(whole.scan().digest)
    assert ids_of(ranks) == ids_of(expected)
    assert ranks.by_row[:].tolist() == expected.by_row[:].tolist()
    assert table.count_ids(table.scan().digest) == (whole.scan().ids, True)


@pytest.mark.parametrize("ids", [["p1", "p62"], ["p0", "p1"], ["p0"]], ids=["another", "one twice", "one less"])
def test_other_subjects_are_refused_before_noise_is_drawn(tmp_path: Path, ids: list[str]) -> None:
    request, noise = asked("rmgm"), Noise()
    registered = lake(write_partitions(tmp_path / "t", columns_of(), [20]), *ATTRIBUTES).scan().digest
    others = [i for i in columns_of()["id"].to_pylist() if i not in {"p0", "p1"}]
    changed = column([*(others if "p62" in ids else ["p1" if i == "p5" else i for i in others]), *ids])
    columns = {name: array[: len(changed)] for name, array in columns_of().items()} | {"id": changed}
    table = lake(write_partitions(tmp_path / "u", columns, [20]), *ATTRIBUTES)
    with pytest.raises(SubjectsChangedError):
        privatise(table, request, charge=Charge("r", request.plan.charge.units, registered), draw=noise)
    assert noise.calls == []


def replaced(folder: Path) -> None:
    pq.write_table(pa.table({"id": ["SENTINEL"], "x": [1.0]}), folder / "part-1.parquet")


def removed(folder: Path) -> None:
    (folder / "part-1.parquet").unlink()


def touched(folder: Path) -> None:
    os.utime(folder / "part-1.parquet", ns=(1, 1))


@pytest.mark.parametrize("change", [replaced, removed, touched])
def test_partition_that_changes_while_the_table_is_read_is_an_error_that_names_it(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    request, noise = asked("dgm"), Noise()
    folder = write_partitions(tmp_path / "t", columns_of(), [20, 40])
    table = lake(folder, *ATTRIBUTES)
    charge = Charge("r", request.plan.charge.units, table.scan().digest)

    def progress(rows: int) -> None:
        if rows == 20:  # of the first partition, after the subjects of all have been read
            change(folder)

    with pytest.raises(SourceError, match=r"partition 2 of 3 \(part-1.parquet\)") as refused:
        privatise(table, request, charge=charge, draw=noise, progress=progress)
    assert noise.calls == []
    assert "SENTINEL" not in refused.value.diagnostics()


def test_partition_whose_rows_were_moved_meanwhile_is_refused() -> None:
    ids, moved = column(["b", "a"]), column(["a", "b"])
    readings = iter([ids, moved])

    def read(_: Any) -> Any:
        return table_of({"id": next(readings), "x": column([1.0, 2.0])}, NUMBER).read(["id", "x"])

    table = PartitionedTable([PrivateTable(read, SubjectKey.of("id"), (NUMBER,))], SubjectKey.of("id"), IN_PROCESS)
    expected = PartitionedTable([table_of({"id": ids})], SubjectKey.of("id"), IN_PROCESS).scan().digest
    (partition,) = table.ranked(expected)
    with pytest.raises(SubjectsChangedError):
        list(partition.rows(lambda _: None))


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
    columns, path = columns_of(), tmp_path / "t.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (id, x, b, c)")
        rows = zip(*(columns[name].to_pylist() for name in ("id", "x", "b", "c")), strict=True)
        db.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    db.close()
    source = SqlSource(
        url=f"sqlite:///{path}",
        query=("SELECT * FROM t WHERE x < 5", "SELECT * FROM t WHERE x >= 5;"),
        order_by="id",
    )
    assert decode(SqlSource, encode(source)) == source
    table = open_table(source, SubjectKey.of("id"), ATTRIBUTES, engine=IN_PROCESS)
    parts, _ = before_noise(table, asked("rmgm"))
    whole, _ = before_noise(table_of(columns, *ATTRIBUTES), asked("rmgm"))
    assert np.array_equal(parts, whole)


def test_what_a_worker_is_given_holds_no_row_and_shows_none(tmp_path: Path) -> None:
    table = lake(write_partitions(tmp_path / "t", {"id": column(["SENTINEL"]), "x": column([1.0])}, []), NUMBER)
    given_to = table.ranked(table.scan().digest)
    assert b"SENTINEL" not in pickle.dumps(given_to)
    assert "SENTINEL" not in repr(given_to)


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


def test_keyed_subject_has_one_row_whatever_partition_it_comes_up_in_again() -> None:
    """Two rows of one subject would move a block twice as far as the charge is for."""
    ids = [["a", "b", "b"], ["b", "c"], ["a"]]
    parts = [table_of({"id": column(i), "x": column([1.0] * len(i))}, NUMBER) for i in ids]
    told: list[int] = []
    table, key, release = PartitionedTable(parts, SubjectKey.of("id"), IN_PROCESS), b"\x01" * 32, "0" * 64
    batches = list(PresentRows(table, key, release).rows(told.append))
    names = pseudonyms(key, [b"a", b"b", b"c"], spec_digest=release)
    assert sorted(bytes(name) for batch, _ in batches for name in batch) == sorted(map(bytes, names))
    assert sum(len(rows) for _, rows in batches) == 3
    assert told == sorted(told)
    assert told[-1] == 6
