"""Files and databases as they come, read in batches."""

import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commingle.party_agent.errors import DataError, SourceError
from commingle.party_agent.private.sources import FileSource, open_source
from commingle.party_agent.private.sql_store import SqlSource
from commingle.party_agent.private.table import PrivateTable, TableScan
from commingle.shared.documents.model import encode
from commingle.shared.documents.schema import BinaryAttribute, NumericAttribute
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.errors import CommingleError
from tests.party_agent.private.ranking import ids_of

X = NumericAttribute(name="x", lower=0, upper=1000)
Write = Callable[..., FileSource]


@pytest.fixture
def csv(tmp_path: Path) -> Write:
    def write(data: bytes, **form: Any) -> FileSource:
        (tmp_path / "t.csv").write_bytes(data)
        return FileSource(path=str(tmp_path / "t.csv"), **form)

    return write


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[[dict[str, Any]], FileSource]:
    def write(columns: dict[str, Any]) -> FileSource:
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
        return FileSource(path=str(tmp_path / "t.parquet"))

    return write


@pytest.fixture
def sql(tmp_path: Path) -> Callable[..., SqlSource]:
    def write(
        rows: Sequence[tuple[object, ...]], *, query: str = "SELECT * FROM t", columns: str = "id, x"
    ) -> SqlSource:
        path = tmp_path / "t.db"
        with sqlite3.connect(path) as db:
            db.execute(f"CREATE TABLE t ({columns})")
            db.executemany("INSERT INTO t VALUES (?, ?)", rows)
        db.close()
        return SqlSource(url=f"sqlite:///{path}", query=query, order_by="id")

    return write


def values(source: FileSource | SqlSource, *columns: str) -> list[tuple[Any, ...]]:
    batches = list(open_source(source)(columns))
    return [row for b in batches for row in zip(*(b.columns[c].to_pylist() for c in columns), strict=True)]


def scan(source: FileSource | SqlSource) -> TableScan:
    return PrivateTable(open_source(source), SubjectKey.of("id"), [X]).scan()


def ranked(source: FileSource | SqlSource) -> list[bytes]:
    table = PrivateTable(open_source(source, strict=False), SubjectKey.of("id"), [X])
    return ids_of(table.ranks(scan(source).digest))


@pytest.mark.parametrize(
    "data",
    [
        b"id,x\na,1\nb,2\n",
        b"id,x\r\na,1\r\nb,2\r\n",
        b"\xef\xbb\xbfid,x\na,1\nb,2",
        b'"id","x"\n"a","1"\n"b","2"\n',
        b"x,other,id\n1,q,a\n2,,b\n",
        b"id,x\na,1\n\nb,2\n",
    ],
    ids=["plain", "crlf", "bom without last newline", "quoted", "other order", "blank line"],
)
def test_csv_of_every_shape_reads_the_same(csv: Callable[[bytes], FileSource], data: bytes) -> None:
    assert values(csv(data), "id", "x") == [("a", "1"), ("b", "2")]


def test_csv_quoted_fields_keep_commas_quotes_and_newlines(csv: Callable[[bytes], FileSource]) -> None:
    assert values(csv(b'id,x\n"a,""q""\nz",1\n'), "id") == [('a,"q"\nz',)]


def test_csv_newline_inside_quotes_survives_the_end_of_a_block(csv: Callable[[bytes], FileSource]) -> None:
    data = b"id,x\n" + b"".join(b'"%d\n%s",1\n' % (i, b"y" * 90) for i in range(60_000))  # 6 MB, blocks of 4 MiB
    batches = list(open_source(csv(data))(["id"]))
    assert len(batches) > 1
    assert sum(batch.size for batch in batches) == 60_000


def test_csv_column_nobody_asked_for_may_hold_anything(csv: Callable[[bytes], FileSource]) -> None:
    # numbers in the first block, text in the second, and bytes that are no text
    data = b"id,x,note\n" + b"%s,1,1\n" * 1 % b"z" + b"".join(b"%d,1,1\n" % i for i in range(500_000)) + b"e,1,\xff\n"
    assert sum(batch.size for batch in open_source(csv(data))(["id", "x"])) == 500_002


def test_csv_missing_words_are_missing(csv: Callable[[bytes], FileSource]) -> None:
    assert values(csv(b'id,x\na,\nb,NA\nc,""\nd,null\ne,N/A\n'), "x") == [(None,)] * 5


def test_csv_numbers_with_leading_zeros_stay_text(csv: Callable[[bytes], FileSource]) -> None:
    assert ranked(csv(b"id,x\n007,1\n7,1\n")) == [b"007", b"7"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", SourceError),
        (b"id,x\na,1\nb\n", SourceError),
        ("größe,id\n1,2\n".encode("latin-1"), SourceError),
        (b"id,x\n\xff,1\n", SourceError),
        (b"id,x\n", DataError),
        (b"id,y\na,1\n", DataError),
        (b"id,x,x\na,1,2\n", DataError),
        (b"a;b\n1;2\n", DataError),
    ],
    ids=["empty", "ragged", "latin-1 header", "latin-1 cell", "no rows", "missing column", "twice", "semicolons"],
)
def test_csv_that_cannot_be_read_is_a_clear_error(
    csv: Callable[[bytes], FileSource], data: bytes, said: type[CommingleError]
) -> None:
    with pytest.raises(said):
        scan(csv(data))


@pytest.mark.parametrize(
    "name", ["absent.csv", "absent.parquet", "folder.csv", "folder.parquet", "text.parquet", "cut.pq"]
)
def test_unreadable_file_says_so_without_quoting_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "text.parquet").write_text("id,x\nSENTINEL,1\n")
    pq.write_table(pa.table({"id": ["SENTINEL"] * 99, "x": [1] * 99}), tmp_path / "whole.parquet")
    (tmp_path / "cut.pq").write_bytes((tmp_path / "whole.parquet").read_bytes()[:-20])
    with pytest.raises(SourceError, match="cannot read") as refused:
        scan(FileSource(path=str(tmp_path / name)))
    assert "SENTINEL" not in refused.value.diagnostics()


def test_parquet_types_are_kept(parquet: Callable[[dict[str, Any]], FileSource]) -> None:
    source = parquet(
        {"x": pa.array([1, 2], pa.int16()), "note": [[1], [2]], "id": pa.array(["b", "a"]).dictionary_encode()}
    )
    assert values(source, "id", "x") == [("b", 1), ("a", 2)]


def test_parquet_missing_and_doubled_columns_are_named(
    parquet: Callable[[dict[str, Any]], FileSource], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="no column id among its 1"):
        scan(parquet({"x": [1]}))
    twice = pa.table([pa.array(["a"]), pa.array([1]), pa.array([2])], names=["id", "x", "x"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(DataError, match="column x more than once"):
        scan(FileSource(path=str(tmp_path / "twice.parquet")))


def test_parquet_empty_table_is_refused(parquet: Callable[[dict[str, Any]], FileSource]) -> None:
    with pytest.raises(DataError, match="no rows"):
        scan(parquet({"id": pa.array([], pa.string()), "x": pa.array([], pa.int64())}))


def test_one_row_is_a_table(csv: Callable[[bytes], FileSource]) -> None:
    assert scan(csv(b"id,x\na,1\n")).n == 1


def test_large_file_is_read_in_several_batches_without_loss(parquet: Callable[[dict[str, Any]], FileSource]) -> None:
    n = 200_000
    source = parquet({"id": np.arange(n), "x": np.arange(n) % 1000})
    sizes = [batch.size for batch in open_source(source)(["id", "x"])]
    assert len(sizes) >= 3
    assert max(sizes) <= 1 << 16
    assert scan(source).n == n


def test_sql_streams_ordered_batches(sql: Callable[..., SqlSource]) -> None:
    n = 70_000
    source = sql([(n - i, float(i)) for i in range(n)])
    batches = list(open_source(source)(["x", "id"]))
    assert [batch.size for batch in batches] == [16384, 16384, 16384, 16384, n - 65536]
    ids = np.concatenate([batch.columns["id"].to_numpy() for batch in batches])
    assert np.array_equal(ids, np.arange(1, n + 1))


def test_sql_reads_what_the_query_says(sql: Callable[..., SqlSource]) -> None:
    source = sql(
        [("b", 2), ("a", None)], query="SELECT id, x * 2 AS x FROM t WHERE id <> ':none' AND id <> '\"a\":1';  "
    )
    assert values(source, "id", "x") == [("a", None), ("b", 4)]


def test_sql_columns_that_need_quoting_are_quoted(sql: Callable[..., SqlSource]) -> None:
    source = sql([(1, 2)], columns='"id", "x y"')
    assert values(source, "x y") == [(2,)]


def test_sql_cells_of_mixed_types_and_sizes_are_read_as_text(sql: Callable[..., SqlSource]) -> None:
    source = sql([("a", 1), ("b", "2"), ("c", None), ("d", 2.5)])
    assert values(source, "x") == [("1",), ("2",), (None,), ("2.5",)]


@pytest.mark.parametrize(
    ("query", "column"), [("SELECT nothing", "x"), ("SELECT * FROM t", "absent"), ("DELETE FROM t", "x"), ("'", "x")]
)
def test_sql_that_fails_says_so_without_quoting_rows(sql: Callable[..., SqlSource], query: str, column: str) -> None:
    source = sql([("SENTINEL", 1)], query=query)
    with pytest.raises(SourceError, match="database refused the query") as refused:
        values(source, column)
    assert "SENTINEL" not in refused.value.diagnostics()


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "nosuch://host/db",
        "postgresql+psycopg://user:hunter/2@host/db",
        "postgresql://user:hunter2@127.0.0.1/db?nosuch=1",
        "sqlite:////absent/folder/x.db",
    ],
)
def test_sql_url_that_cannot_be_used_is_a_source_error_without_the_url(url: str) -> None:
    source = SqlSource(url=url, query="SELECT 1", order_by="id")
    with pytest.raises(SourceError) as refused:
        values(source, "id")
    assert "hunter" not in refused.value.diagnostics() + repr(source)


def test_subject_ids_as_text_whole_numbers_and_floats_are_the_same_subjects(
    csv: Callable[[bytes], FileSource],
    parquet: Callable[[dict[str, Any]], FileSource],
    sql: Callable[..., SqlSource],
    tmp_path: Path,
) -> None:
    seqn = [83732, 109263, 123456789012, 7]
    as_int = ranked(parquet({"id": seqn, "x": [1] * 4}))
    pq.write_table(pa.table({"id": [float(s) for s in seqn], "x": [1] * 4}), tmp_path / "f.parquet")
    as_float = ranked(FileSource(path=str(tmp_path / "f.parquet")))
    as_text = ranked(csv(b"id,x\n" + b"".join(b" %d ,1\n" % s for s in reversed(seqn))))
    as_rows = ranked(sql([(float(s), 1) for s in seqn]))
    assert as_int == as_float == as_text == as_rows == [b"109263", b"123456789012", b"7", b"83732"]


def test_the_same_table_from_every_source_has_the_same_digest(
    csv: Callable[[bytes], FileSource],
    parquet: Callable[[dict[str, Any]], FileSource],
    sql: Callable[..., SqlSource],
) -> None:
    rows = [("a", 1.5), ("b", 2.0), ("c", 999.0)]
    found = [
        scan(csv(b"id,x\n" + "".join(f"{i},{x}\n" for i, x in rows).encode())),
        scan(parquet({"id": [i for i, _ in rows], "x": [x for _, x in rows]})),
        scan(sql(rows)),
    ]
    assert found[0].digest == found[1].digest == found[2].digest


def test_sql_uuid_column_is_text() -> None:
    from uuid import UUID

    from commingle.party_agent.private.cells import cells_of

    array = cells_of((UUID(int=1), None))
    assert array.to_pylist() == ["00000000-0000-0000-0000-000000000001", None]


def test_levels_from_a_database_flag_column(sql: Callable[..., SqlSource]) -> None:
    source = sql([("a", 0), ("b", 1)])
    flag = BinaryAttribute(name="x", levels=("0", "1"))
    (batch,) = PrivateTable(open_source(source), SubjectKey.of("id"), [flag]).batches(
        PrivateTable(open_source(source), SubjectKey.of("id"), [flag]).scan().digest
    )
    assert batch.attributes["x"][:, 0].tolist() == [-32768, 32768]


def test_csv_without_a_header_does_not_show_its_first_row(csv: Callable[[bytes], FileSource]) -> None:
    with pytest.raises(DataError, match="no column id, x among its 2") as refused:
        scan(csv(b"SENTINEL,1\nb,2\n"))
    assert "SENTINEL" not in refused.value.diagnostics()


@pytest.mark.parametrize(
    "change",
    [{"url": "sqlite:///a\0b"}, {"url": "postgresql+psycopg://user:a%00b@host/db"}, {"query": "SELECT 1 AS id\0"}],
    ids=["url", "escaped", "query"],
)
def test_nul_in_a_url_or_query_is_refused_before_anything_is_opened(change: dict[str, str]) -> None:
    source = SqlSource(url="sqlite:////absent/x.db", query="SELECT 1 AS id", order_by="id").model_copy(update=change)
    with pytest.raises(SourceError, match="NUL"):
        values(source, "id")


def test_query_whose_subjects_need_two_columns_is_read_in_the_order_of_both(tmp_path: Path) -> None:
    path = tmp_path / "people.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (name, born, x)")
        rows = [("b", "1980-01-02", 1), ("a", "1980-01-02", 2), ("b", "1979-01-02", 3)]
        db.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    db.close()
    source = SqlSource(url=f"sqlite:///{path}", query="SELECT * FROM t", order_by=("name", "born"))
    key = SubjectKey.of(("name", "born"), ("exact/1", "date/1"))
    table = PrivateTable(open_source(source), key, [X])
    found = table.scan()
    ranks = table.ranks(found.digest)
    assert ids_of(ranks) == [
        b'["a","1980-01-02"]',
        b'["b","1979-01-02"]',
        b'["b","1980-01-02"]',
    ]
    assert ranks.by_row[:].tolist() == [0, 1, 2]
    assert table.count_ids(found.digest) == (found.ids, True)


FORMATS: list[tuple[bytes, dict[str, str], str]] = [
    ("id;x\nMüller;1,5\n".encode("latin-1"), {"separator": ";", "decimal": ","}, "--encoding windows-1252"),
    (b"id;x\nM;1,5\n", {}, "--separator ';' --decimal ','"),
    (b"id\tx\nM\t1.5\n", {}, "--separator tab"),
    ("id,x\nMüller,1.5\n".encode("latin-1"), {}, "--encoding windows-1252"),
]


@pytest.mark.parametrize(("data", "said", "asked"), FORMATS)
def test_csv_in_another_format_is_refused_with_what_it_looks_like(
    csv: Write, data: bytes, said: dict[str, str], asked: str
) -> None:
    with pytest.raises(CommingleError) as refused:
        values(csv(data, **said), "id", "x")
    assert asked in refused.value.remedy
    assert "Müller" not in refused.value.diagnostics()


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("encoding", ["windows-1252", "latin-1", "utf-16"])
def test_csv_is_read_as_it_was_registered(csv: Write, encoding: str, strict: bool) -> None:
    data = 'id;x;note\nMüller; 1,5 ;"a;b"\nNA;;-2,5e1\n'.encode(encoding)
    source = csv(data, encoding=encoding, separator=";", decimal=",")
    [batch] = open_source(source, strict=strict)(["id", "x", "note"])
    read = [
        [None if c is None else c if strict else c.decode() for c in batch.columns[n].to_pylist()]
        for n in ["id", "x", "note"]
    ]
    assert read == [["Müller", None], [" 1.5 ", None], ["a;b", "-2.5e1"]]


def test_agent_reads_on_whatever_bytes_an_encoding_does_not_have(csv: Write) -> None:
    """0x81 is no letter of windows-1252; a short line is read by another reader, and alike."""
    source = csv(b"id;x\n\x81a;1,5\nb;2,5\nc\n", encoding="windows-1252", separator=";", decimal=",")
    with pytest.raises(SourceError):
        values(source, "id", "x")
    batches = list(open_source(source, strict=False)(["id", "x"]))
    cells = [cell for batch in batches for cell in batch.columns["x"].to_pylist()]
    assert cells == [b"1.5", b"2.5", None]


def test_usual_format_leaves_what_is_stored_as_it_was() -> None:
    assert encode(FileSource(path="/t.csv")) == b'{"kind":"file","path":"/t.csv"}'
    assert b'"separator":";"' in encode(FileSource(path="/t.csv", separator=";"))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("duckling:////x.db", "no driver is installed for duckling databases"),
        ("sqlite+absent:////x.db", "no driver is installed for sqlite+absent databases"),
        ("mysql+pymysql://user:hunter2@host/db", "the driver pymysql for this database is not installed"),
    ],
)
def test_database_driver_that_is_missing_is_called_missing(url: str, said: str) -> None:
    with pytest.raises(SourceError, match=re.escape(said)) as refused:
        values(SqlSource(url=url, query="SELECT 1 AS id", order_by="id"), "id")
    assert "Install" in refused.value.remedy
    assert "hunter2" not in refused.value.diagnostics()
