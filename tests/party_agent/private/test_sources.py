"""Files and databases as they come, read in batches."""

import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commingle.party_agent.errors import DataError, SourceError, SourceRefusedError
from commingle.party_agent.private.derived import parse_derived
from commingle.party_agent.private.engine import IN_PROCESS
from commingle.party_agent.private.parquet_store import PartitionedSource
from commingle.party_agent.private.sources import (
    FileSource,
    SourceTable,
    TableScan,
    open_source,
    open_table,
    other_format,
    remedying,
)
from commingle.party_agent.private.sql_store import SqlSource
from commingle.shared.documents.schema import Attribute, BinaryAttribute, NumericAttribute
from commingle.shared.documents.subject_ids import IdRule, SubjectKey
from commingle.shared.errors import CommingleError
from commingle.shared.values import as_text, not_numbers, readable_numbers
from tests.party_agent.private.tables import rows_of, snapshot_from, sqlite_table

KEY = SubjectKey.of("id")
X = NumericAttribute(name="x", lower=0, upper=1000)
Write = Callable[..., FileSource]
WriteSql = Callable[..., SqlSource]


@pytest.fixture
def csv(tmp_path: Path) -> Write:
    def write(data: bytes, **form: Any) -> FileSource:
        (tmp_path / "t.csv").write_bytes(data)
        return FileSource(path=str(tmp_path / "t.csv"), **form)

    return write


@pytest.fixture
def parquet(tmp_path: Path) -> Write:
    def write(columns: dict[str, Any]) -> FileSource:
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
        return FileSource(path=str(tmp_path / "t.parquet"))

    return write


@pytest.fixture
def sql(tmp_path: Path) -> WriteSql:
    return partial(sqlite_table, tmp_path / "t.db")


def values(source: FileSource | SqlSource, *columns: str) -> list[tuple[Any, ...]]:
    """Rows; what a CSV holds as bytes as the text that it is."""
    batches = list(open_source(source)(columns))
    rows = [row for b in batches for row in zip(*(b.columns[c].to_pylist() for c in columns), strict=True)]
    return [tuple(cell.decode() if isinstance(cell, bytes) else cell for cell in row) for row in rows]


def scan(source: FileSource | SqlSource) -> TableScan:
    """As a table is registered."""
    found = SourceTable([open_source(source)], KEY, [X]).scan()
    list(found.sorter)
    found.require_one_row_each(KEY)
    return found


def rows(source: FileSource | SqlSource) -> dict[bytes, list[int]]:
    """Everybody's row, read as an agent does that may refuse nothing."""
    with TemporaryDirectory() as folder:
        table = SourceTable([open_source(source)], KEY, [X])
        return rows_of(snapshot_from(Path(folder), table, strict=False))


def encoded(x: int) -> list[int]:
    return [int((x / 500 - 1) * 32768)]


def subjects(source: FileSource | SqlSource) -> list[bytes]:
    scan(source)
    return list(rows(source))


AB = [("a", "1"), ("b", "2")]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"id,x\na,1\nb,2\n", AB),
        (b"id,x\r\na,1\r\nb,2\r\n", AB),
        (b"\xef\xbb\xbfid,x\na,1\nb,2", AB),
        (b'"id","x"\n"a","1"\n"b","2"\n', AB),
        (b"x,other,id\n1,q,a\n2,,b\n", AB),
        (b"id,x\na,1\n\nb,2\n", AB),
        (b'id,x\n"a,""q""\nz",1\n', [('a,"q"\nz', "1")]),
        (b'id,x\na,\nb,NA\nc,""\nd,null\ne,N/A\n', [(one, None) for one in "abcde"]),
    ],
    ids=[
        "plain",
        "crlf",
        "bom, no newline at last",
        "quoted",
        "other order",
        "blank line",
        "declared line end",
        "missing",
    ],
)
def test_csv_of_every_shape_reads_the_same(csv: Write, data: bytes, found: list[tuple[Any, ...]]) -> None:
    lines = 2 if b'\nz"' in data else 1
    assert values(csv(data, lines_per_record=lines), "id", "x") == found


def test_csv_numbers_with_leading_zeros_stay_text(csv: Write) -> None:
    assert subjects(csv(b"id,x\n007,1\n7,1\n")) == [b"007", b"7"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", SourceError),
        (b'id,"x\na,1\n', SourceError),
        (b"id," + b"x" * (1 << 25) + b"\na,1\n", SourceError),
        (b"id,x\na,1\nb\n", DataError),
        ("größe,id\n1,2\n".encode("latin-1"), SourceError),
        (b"id,x\n", DataError),
        (b"id,y\na,1\n", DataError),
        (b"id,x,x\na,1,2\n", DataError),
        (b"a;b\n1;2\n", DataError),
    ],
    ids=[
        "empty",
        "open header",
        "long header",
        "ragged",
        "latin-1 header",
        "no rows",
        "missing column",
        "twice",
        "semicolons",
    ],
)
def test_csv_that_cannot_be_read_is_a_clear_error(csv: Write, data: bytes, said: type[CommingleError]) -> None:
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


def test_parquet_types_are_kept(parquet: Write) -> None:
    source = parquet(
        {"x": pa.array([1, 2], pa.int16()), "note": [[1], [2]], "id": pa.array(["b", "a"]).dictionary_encode()}
    )
    assert values(source, "id", "x") == [("b", 1), ("a", 2)]


def test_parquet_missing_and_doubled_columns_are_named(parquet: Write, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column id among its 1"):
        scan(parquet({"x": [1]}))
    twice = pa.table([pa.array(["a"]), pa.array([1]), pa.array([2])], names=["id", "x", "x"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(DataError, match="column x more than once"):
        scan(FileSource(path=str(tmp_path / "twice.parquet")))


@pytest.mark.parametrize("partitioned", [False, True])
def test_parquet_column_of_a_type_without_text_is_refused_by_its_type(tmp_path: Path, partitioned: bool) -> None:
    columns = {"id": ["SENTINEL", "b"], "x": [[1.0], None]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    file = FileSource(path=str(tmp_path / "t.parquet"))
    source = PartitionedSource(path=str(tmp_path)) if partitioned else file
    for strict in (True, False):
        table = open_table(source, SubjectKey.of("id"), [X], engine=IN_PROCESS, strict=strict)
        with pytest.raises(DataError, match=r"column x: values of type list<.*> cannot be read as text") as refused:
            table.scan(strict=strict)
        assert "SENTINEL" not in refused.value.diagnostics()


def test_parquet_bytes_of_a_fixed_size_are_the_texts_that_they_hold(parquet: Write, tmp_path: Path) -> None:
    source = parquet(
        {"id": pa.array([b"aa", b"bb", b"\xff\xff"], pa.binary(2)), "x": pa.array([b"10", b"07", b"no"], pa.binary(2))}
    )
    table = SourceTable([open_source(source)], SubjectKey.of("id"), [X])
    read = rows_of(snapshot_from(tmp_path / "made", table, strict=False))
    assert read == {b"aa": encoded(10), b"bb": encoded(7)}


def test_large_file_is_read_in_several_batches_without_loss(parquet: Write) -> None:
    n = 200_000
    source = parquet({"id": np.arange(n), "x": np.arange(n) % 1000})
    sizes = [batch.size for batch in open_source(source)(["id", "x"])]
    assert len(sizes) >= 3
    assert max(sizes) <= 1 << 16
    assert scan(source).counts.rows == n


def test_sql_streams_batches(sql: WriteSql) -> None:
    n = 70_000
    source = sql([(n - i, float(i)) for i in range(n)])
    batches = list(open_source(source)(["x", "id"]))
    assert [batch.size for batch in batches] == [16384, 16384, 16384, 16384, n - 65536]
    ids = np.concatenate([batch.columns["id"].to_numpy() for batch in batches])
    assert np.array_equal(np.sort(ids), np.arange(1, n + 1))


ODD_TEXTS = "SELECT id, x * 2 AS x FROM t WHERE id <> ':none' AND id <> '\"a\":1';  "


@pytest.mark.parametrize(
    ("rows", "form", "column", "found"),
    [
        ([("b", 2), ("a", None)], {"query": ODD_TEXTS}, "x", [None, 4]),
        ([(1, 2)], {"columns": '"id", "x y"'}, "x y", [2]),
        ([("a", 1), ("b", "2"), ("c", None), ("d", 2.5)], {}, "x", ["1", "2", None, "2.5"]),
    ],
    ids=["as the query says", "name that needs quotes", "mixed types as text"],
)
def test_sql_cells_are_those_of_the_query(
    sql: WriteSql, rows: list[tuple[object, ...]], form: dict[str, str], column: str, found: list[Any]
) -> None:
    read = sorted(values(sql(rows, **form), "id", column), key=lambda row: str(row[0]))
    assert [cell for _, cell in read] == found


@pytest.mark.parametrize(
    ("query", "column"), [("SELECT nothing", "x"), ("SELECT * FROM t", "absent"), ("DELETE FROM t", "x"), ("'", "x")]
)
def test_sql_that_fails_says_so_without_quoting_rows(sql: WriteSql, query: str, column: str) -> None:
    source = sql([("SENTINEL", 1)], query=query)
    with pytest.raises(SourceError, match="database refused the query") as refused:
        values(source, column)
    assert "SENTINEL" not in refused.value.diagnostics()


def test_subject_ids_as_text_whole_numbers_and_floats_are_the_same_subjects(
    csv: Write, parquet: Write, sql: WriteSql, tmp_path: Path
) -> None:
    seqn = [83732, 109263, 123456789012, 7]
    as_int = subjects(parquet({"id": seqn, "x": [1] * 4}))
    pq.write_table(pa.table({"id": [float(s) for s in seqn], "x": [1] * 4}), tmp_path / "f.parquet")
    as_float = subjects(FileSource(path=str(tmp_path / "f.parquet")))
    as_text = subjects(csv(b"id,x\n" + b"".join(b" %d ,1\n" % s for s in reversed(seqn))))
    as_rows = subjects(sql([(float(s), 1) for s in seqn]))
    assert as_int == as_float == as_text == as_rows == [b"109263", b"123456789012", b"7", b"83732"]


def test_csv_without_a_header_does_not_show_its_first_row(csv: Write) -> None:
    with pytest.raises(DataError, match="no column id, x among its 2") as refused:
        scan(csv(b"SENTINEL,1\nb,2\n"))
    assert "SENTINEL" not in refused.value.diagnostics()


def test_blanks_around_a_columns_name_count_nothing_unless_two_names_would_be_alike(csv: Write) -> None:
    assert values(csv(b"id, x ,\ty\n1,2,3\n"), "id", "x", "y") == [("1", "2", "3")]
    assert values(csv(b"id,x,x ,y \n1,2,3,4\n"), "id", "x", "x ", "y") == [("1", "2", "3", "4")]


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"id,AGE,SENTINEL", "There with other capitals or outer blanks: age, Sex. Write it as the source does."),
        (b"id,Age,x", "outer blanks: age. Write it as the source does. Check the spelling of the others"),
        (b"SENTINEL,1,2", "Check the spelling in the schema"),
    ],
)
def test_column_whose_name_differs_in_capitals_is_said_to_be_there_and_no_other_name_is_shown(
    csv: Write, header: bytes, said: str
) -> None:
    with pytest.raises(DataError, match="no column age, Sex among its") as refused:
        values(csv(header + (b",sex" if b"AGE" in header else b"") + b"\n1,2,3\n"), "age", "Sex")
    assert said in refused.value.remedy
    assert "SENTINEL" not in refused.value.diagnostics()


def test_query_whose_subjects_need_two_columns_is_read_by_both(tmp_path: Path) -> None:
    rows = [("b", "1980-01-02", 1), ("a", "1980-01-02", 2), ("b", "1979-01-02", 3)]
    source = sqlite_table(tmp_path / "people.db", rows, columns="name, born, x")
    key = SubjectKey.of(("name", "born"), ("exact/1", "date/1"))
    table = SourceTable([open_source(source)], key, [X])
    found = table.scan()
    assert rows_of(snapshot_from(tmp_path / "made", table)) == {
        b'["a","1980-01-02"]': encoded(2),
        b'["b","1979-01-02"]': encoded(3),
        b'["b","1980-01-02"]': encoded(1),
    }
    assert (found.counts.rows, found.counts.problems) == (3, [])


FORMATS: list[tuple[bytes, dict[str, str], str]] = [
    ("id;x\nMüller;1,5\n".encode("latin-1"), {"separator": ";", "decimal": ","}, "--encoding windows-1252"),
    (b"id;x\nM;1,5\n", {}, "--separator ';' --decimal ','"),
    (b"id\tx\nM\t1.5\n", {}, "--separator tab"),
    ("id,x\nMüller,1.5\n".encode("latin-1"), {}, "--encoding windows-1252"),
    (b"id,x\nM,1.5\n", {"separator": ";"}, "leave out the options that say otherwise"),
]


@pytest.mark.parametrize(("data", "said", "asked"), FORMATS)
def test_csv_in_another_format_is_told_what_it_looks_like(
    csv: Write, data: bytes, said: dict[str, str], asked: str
) -> None:
    source = csv(data, **said)
    assert asked in other_format(source)
    if "encoding" not in asked:  # of bytes that are no text a reader says nothing: they are cells
        with pytest.raises(CommingleError) as refused:
            values(source, "id", "x")
        assert asked in refused.value.remedy


@pytest.mark.parametrize(
    ("note", "lines_per_record", "asked"), [('"k\nl"', 1, True), ('"k\nl"', 2, False), ('"k, l"', 1, False)]
)
def test_rows_that_a_line_end_in_quotes_breaks_are_told_to_be_so_beside_the_remedy(
    csv: Write, note: str, lines_per_record: int, asked: bool
) -> None:
    source = csv(f"id,x,note\na,1,{note}\nc,2,d\n".encode(), lines_per_record=lines_per_record)
    with pytest.raises(DataError) as refused, remedying(source):
        raise DataError("column x: 1 missing values", remedy="Complete them.")
    assert ("seem to hold line ends: if so, give --lines-per-record" in refused.value.remedy) is asked
    assert refused.value.remedy.endswith("Complete them.")


def test_decimal_comma_that_number_reads_is_not_proposed_to_be_read_before(csv: Write) -> None:
    source = csv(b"id;x\nM;<0,5\nN;1,5\n", separator=";")
    assert "--decimal" in other_format(source)
    assert other_format(source, [parse_derived("x = number(x, decimal=comma)")]) == ""
    asked = other_format(csv(b"id;x\nM;1,5\n"), [parse_derived("x = number(x, decimal=comma)")])
    assert asked.endswith("Read it so: --separator ';'")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"id;x\n1;1.234,5\n2;2.000\n3;7,5\n", {"separator": ";", "decimal": ","}),
        (b"id;x\n1;1,5\n", {"separator": ";", "decimal": ",", "encoding": "windows-1252"}),
        (b"id;a,b,c\n1;2\n", {"separator": ";"}),
        (b'id,x\n1,"1.234,5"\n2,"2.000"\n', {"decimal": ","}),
    ],
)
def test_option_that_the_owner_gave_and_that_may_be_right_is_not_advised_against(
    csv: Write, data: bytes, said: dict[str, str]
) -> None:
    assert other_format(csv(data, **said)) == ""


@pytest.mark.parametrize("decimal", [",", "."])
def test_points_between_thousands_are_told_how_to_be_read_beside_the_columns_own_remedy(
    csv: Write, decimal: str
) -> None:
    source = csv(b"id;x\n1;1.234,5\n2;2.000\n3;7,5\n", separator=";", decimal=decimal)
    with pytest.raises(DataError) as refused, remedying(source):
        raise not_numbers("x", 1)
    own, remedy = not_numbers("x", 1).remedy, refused.value.remedy
    assert remedy.startswith(own)
    assert "--derive 'COLUMN = number(COLUMN, thousands=point, decimal=comma)'" in remedy[len(own) :]


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"SQLite format 3\0\x10\x00", "--database-url sqlite:////path/file.db --query"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "Save it as .xlsx"),
        (b"PK\x03\x04\x14\x00", "a name that ends in .xlsx"),
        (b"PAR1\x15\x04", "a name that ends in .parquet"),
        (b"\x1f\x8b\x08\x00", "Unpack it"),
    ],
)
def test_file_that_is_no_text_is_called_what_it_is_and_its_owner_told_what_to_do(
    csv: Write, start: bytes, said: str
) -> None:
    source = csv(start + b"\xff\xfe\x00,\n" * 40)
    with pytest.raises(CommingleError) as refused:
        values(source, "id", "x")
    assert said in refused.value.remedy


def test_file_that_is_not_there_is_said_to_be_any_kind_that_is_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as refused:
        values(FileSource(path=str(tmp_path / "t.csv")), "id")
    assert "a CSV with a header line, Parquet or Excel (.xlsx)" in refused.value.remedy


def test_other_format_keeps_the_lines_that_were_declared(csv: Write) -> None:
    assert other_format(csv(b'id,x\n"a\nb",1\n', lines_per_record=4)) == ""
    said = other_format(csv(b'id;x\n"a\nb";1\n', lines_per_record=4))
    assert said.endswith("Read it so: --separator ';' --lines-per-record 4")


@pytest.mark.parametrize("encoding", ["windows-1252", "latin-1", "utf-16"])
def test_csv_is_read_as_it_was_registered(csv: Write, encoding: str) -> None:
    data = 'id;x;note\nMüller; 1,5 ;"a;b"\nNA;;-2,5e1\n'.encode(encoding)
    source = csv(data, encoding=encoding, separator=";", decimal=",")
    assert values(source, "id", "x", "note") == [("Müller", " 1.5 ", "a;b"), (None, None, "-2.5e1")]


def test_point_beside_decimal_commas_makes_a_cell_no_number_and_leaves_other_columns_as_they_are(csv: Write) -> None:
    source = csv(b"id;x;level;born;y\n1.234;1.234;1.5;31.12.80;2.5\nb;7,5;2;1.1.90;2,5\n", separator=";", decimal=",")
    attributes: list[Attribute] = [
        X,
        BinaryAttribute(name="level", levels=("1.5", "2")),
        NumericAttribute(name="age", lower=0, upper=99),
    ]
    derived = [parse_derived("age = age_at(born, 2026-01-01)"), parse_derived("z = log(y)")]
    [read] = open_table(source, KEY, attributes, engine=IN_PROCESS, derived=derived).partitions
    [batch] = read(["id", "x", "level", "born", "y"])
    assert as_text("id", batch.columns["id"]).to_pylist() == ["1.234", "b"]
    assert as_text("level", batch.columns["level"]).to_pylist() == ["1.5", "2"]
    assert as_text("born", batch.columns["born"]).to_pylist() == ["31.12.80", "1.1.90"]
    assert [np.isnan(readable_numbers(batch.columns[name])).tolist() for name in "xy"] == [[True, False]] * 2
    with pytest.raises(DataError, match="column x: 1 value is no number"):
        SourceTable([open_source(source, ["x"])], KEY, [X]).scan()


def test_agent_reads_on_whatever_bytes_an_encoding_does_not_have(csv: Write) -> None:
    """0x81 is no letter of windows-1252; a short line is read by another reader, and alike."""
    source = csv(b"id;x\n\x81a;1,5\nb;2,5\nc\n", encoding="windows-1252", separator=";", decimal=",")
    [batch] = open_source(source)(["id", "x"])
    assert batch.columns["id"].to_pylist() == [b"\x81a", b"b", b"c"]
    assert batch.columns["x"].to_pylist() == [b"1.5", b"2.5", None]
    assert (batch.unreadable, batch.uneven) == (0, 1)


def test_query_that_looks_at_other_rows_is_not_asked(tmp_path: Path) -> None:
    source = SqlSource(url=f"sqlite:///{tmp_path}/absent.db", query="SELECT *, sum(x) OVER () AS s FROM t")
    with pytest.raises(SourceRefusedError, match="it uses window"):
        open_table(source, KEY, [X], engine=IN_PROCESS)
    open_table(source.model_copy(update={"promised": True}), KEY, [X], engine=IN_PROCESS)


@pytest.mark.parametrize(
    "odd",
    [b"\xff", b"\xed\xa0\x80", "\ufffd" * 2, "a" + "\u0315\u0300" * 50_000, b"x" * 1025],
    ids=lambda v: f"{v[:3]!r}",
)
@pytest.mark.parametrize("rule", ["exact/1", "text/1"])
def test_id_that_nobody_can_read_is_none_and_the_others_are_there(tmp_path: Path, odd: Any, rule: IdRule) -> None:
    as_text = "SELECT CASE typeof(id) WHEN 'blob' THEN CAST(id AS TEXT) ELSE id END AS id, x FROM t"
    rows = [(one, 1) for one in ("p1", odd, odd, "p2")]
    source = sqlite_table(tmp_path / "t.db", rows, query=as_text).model_copy(update={"promised": True})
    key = SubjectKey.of("id", (rule,))
    found = open_table(source, key, [X], engine=IN_PROCESS).scan()
    ids = [one for piece, _ in found.sorter for one in piece.to_pylist()]
    is_text = odd == "\ufffd" * 2
    assert ids == [b"p1", b"p2", *([odd.encode()] if is_text else [])]
    with pytest.raises(DataError, match="1 duplicate" if is_text else "2 subject ids do not follow their rule"):
        found.require_one_row_each(key)


def _parquet_of(path: Path, long: str) -> FileSource:
    values = [*map(str, range(1000)), long]
    pq.write_table(pa.table({"id": [f"p{place}" for place in range(1001)], "x": values}), path / "t.parquet")
    return FileSource(path=str(path / "t.parquet"))


def _sqlite_of(path: Path, long: str) -> SqlSource:
    return sqlite_table(path / "t.db", [*((f"p{place}", place) for place in range(1000)), ("p1000", long)])


def _duckdb_of(path: Path, long: str) -> SqlSource:
    with duckdb.connect(path / "t.duckdb") as db:
        db.execute("CREATE TABLE t AS SELECT 'p' || i AS id, i::VARCHAR AS x FROM range(1000) r(i)")
        db.execute("INSERT INTO t VALUES ('p1000', ?)", [long])
    return SqlSource(url=f"duckdb:///{path}/t.duckdb", query="SELECT * FROM t")


@pytest.mark.parametrize("write", [_parquet_of, _sqlite_of, _duckdb_of])
def test_long_cell_takes_no_memory_that_others_would_miss_and_is_missing(
    tmp_path: Path, write: Callable[[Path, str], FileSource | SqlSource]
) -> None:
    """A text that was no number stood in one error for each halving: 30 MB of them took 3.5 GB, and a small agent."""
    source = write(tmp_path, "\U0001f469" + "x" * (16 << 20))
    one = X.model_copy(update={"missing": "indicator"})
    tracemalloc.start()
    try:
        (piece,) = open_table(source, KEY, [one], engine=IN_PROCESS).scan(strict=False).sorter
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
    rows = dict(zip(piece[0].to_pylist(), piece[1].tolist(), strict=True))
    assert len(rows) == 1001
    assert [who for who, row in rows.items() if row[1]] == [b"p1000"]


@pytest.mark.slow
@pytest.mark.parametrize("several", [2046, 2049])
def test_texts_of_2_gib_in_all_end_no_reading_of_duckdb(several: int) -> None:
    query = f"SELECT 'p' || i AS id, repeat('1', 1048576) AS x FROM range({several}) r(i)"  # noqa: S608 - a number
    source = SqlSource(url="duckdb:///:memory:", query=query, promised=True)
    found = open_table(source, KEY, [X], engine=IN_PROCESS).scan(strict=False)
    assert sum(len(ids) for ids, _ in found.sorter) == several


@pytest.mark.slow
def test_cells_that_fill_a_batch_of_duckdb_end_no_reading() -> None:
    query = (
        "SELECT 'p' || i AS id, CASE WHEN i < 3 THEN repeat('1', 750000000) ELSE i::VARCHAR END AS x FROM range(9) r(i)"
    )
    source = SqlSource(url="duckdb:///:memory:", query=query, promised=True)
    found = open_table(source, KEY, [X], engine=IN_PROCESS).scan(strict=False)
    assert sum(len(ids) for ids, _ in found.sorter) == 9
