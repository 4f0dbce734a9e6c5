"""One record at a time: whatever it holds, the rows of all others are the same, and reading ends well.

docs/proofs/records.md. Each test counts the neighbours that it tries.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import openpyxl
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commingle.party_agent.errors import SourceRefusedError
from commingle.party_agent.private.engine import IN_PROCESS
from commingle.party_agent.private.parquet_store import PartitionedSource
from commingle.party_agent.private.sources import FileSource, open_table
from commingle.party_agent.private.sql_store import SqlSource
from commingle.party_agent.private.table import ReadingRecords
from commingle.shared.documents.subject_ids import IdRules, SubjectKey
from commingle.shared.errors import DataError
from tests.conftest import PostgresServer
from tests.party_agent.private.hostile_cells import ATTRIBUTES, BYTES, DECIMALS, MOMENTS, VALUES

Row = tuple[Any, ...]
Source = FileSource | SqlSource | PartitionedSource
NAMES = ("id", *(attribute.name for attribute in ATTRIBUTES))
OTHERS: tuple[Row, ...] = (
    ("p1", 10, True, "r"),
    ("p2", 20.5, False, "s"),
    ("p3", None, None, None),
    ("p4", 1, True, "1"),
)
RULES: tuple[IdRules, ...] = (("exact/1",), ("text/1",))


def image(source: Source, rules: IdRules) -> dict[bytes, list[list[int]]]:
    """The encoded rows of every id, in no order."""
    table = open_table(source, SubjectKey.of("id", rules), ATTRIBUTES, engine=IN_PROCESS)
    found: dict[bytes, list[list[int]]] = {}
    work = ReadingRecords(table.key, table.attributes, strict=False)
    for _, read in table.engine.run(work, table.partitions, lambda _: None):
        subjects: list[Any] = read.ids.to_pylist()
        for subject, row in zip(subjects, read.rows.tolist(), strict=True):
            if subject:
                found.setdefault(subject, []).append(row)
    return {subject: sorted(rows) for subject, rows in found.items()}


def require_others_unmoved(write: Callable[[Sequence[Row]], Source], values: Iterable[Any]) -> None:
    """Put each value into each cell of one record, before, among and behind those of others."""
    expected = {rules: image(write(OTHERS), rules) for rules in RULES}
    assert all(len(rows) == len(OTHERS) for rows in expected.values())
    tried = 0
    for value in values:
        for record in (("odd", *[value] * len(ATTRIBUTES)), (value, 50, False, "s"), (value,) * len(NAMES)):
            place = tried % (len(OTHERS) + 1)
            rows = [*OTHERS[:place], record, *OTHERS[place:]]
            source = write(rows)
            rules = RULES[tried % len(RULES)]
            found = image(source, rules)
            for subject, others in expected[rules].items():
                own = record[0] if isinstance(record[0], str) else ""
                if SubjectKey.of("id", rules).canonical([own]) != subject:  # whose record it would be
                    assert found.pop(subject) == others, f"{value!r:.60} moved others"
                else:
                    assert others[0] in found.pop(subject)
            assert len(found) <= 1
            tried += 1
    print(f"{tried} neighbours")  # noqa: T201 - how far the search went


def excel(folder: Path) -> Callable[[Sequence[Row]], FileSource]:
    def write(rows: Sequence[Row]) -> FileSource:
        book = openpyxl.Workbook()
        sheet = book.worksheets[0]
        sheet.append(NAMES)
        for row in rows:
            sheet.append(row)
        book.save(folder / "t.xlsx")
        return FileSource(path=str(folder / "t.xlsx"))

    return write


@pytest.mark.slow
def test_excel(tmp_path: Path) -> None:
    def possible(value: Any) -> bool:
        return not isinstance(value, str) or len(value) <= 32767

    require_others_unmoved(excel(tmp_path), filter(possible, (*VALUES, *MOMENTS, *DECIMALS[::2])))


@pytest.mark.slow
def test_sqlite(tmp_path: Path) -> None:
    def write(rows: Sequence[Row]) -> SqlSource:
        with sqlite3.connect(tmp_path / "t.db") as db:
            db.execute("DROP TABLE IF EXISTS t")
            db.execute(f"CREATE TABLE t ({', '.join(NAMES)})")
            db.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [[as_text_bytes(v) for v in row] for row in rows])
            short = "typeof(id) = 'blob' AND length(id) < 3"
            db.execute(f"UPDATE t SET id = CAST(id AS TEXT) WHERE {short}")  # noqa: S608 - bytes that are to be text
        db.close()
        return SqlSource(url=f"sqlite:///{tmp_path}/t.db", query="SELECT * FROM t")

    def as_text_bytes(value: Any) -> Any:
        return {True: "true", False: "false"}[value] if isinstance(value, bool) else value

    require_others_unmoved(write, (*VALUES, *BYTES))


def as_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())]
)
@pytest.mark.parametrize("partitioned", [False, True])
def test_parquet(tmp_path: Path, kind: Any, partitioned: bool) -> None:
    def write(rows: Sequence[Row]) -> FileSource | PartitionedSource:
        columns = [column([as_bytes(row[at]) for row in rows]) for at in range(len(NAMES))]
        pq.write_table(pa.table(columns, names=list(NAMES)), tmp_path / "t.parquet")
        path = str(tmp_path)
        return PartitionedSource(path=path) if partitioned else FileSource(path=f"{path}/t.parquet")

    def column(values: list[bytes | None]) -> Any:
        raw = pa.array(values, pa.binary())
        if kind == pa.string():  # which nobody has looked at
            return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count)
        return raw.dictionary_encode() if isinstance(kind, pa.DictionaryType) else raw.cast(kind)

    require_others_unmoved(write, (*VALUES, *BYTES))


@pytest.mark.slow
def test_duckdb(tmp_path: Path) -> None:
    def write(rows: Sequence[Row]) -> SqlSource:
        with duckdb.connect(tmp_path / "t.duckdb") as db:
            db.execute("CREATE OR REPLACE TABLE t (id BLOB, number VARCHAR, flag VARCHAR, level BLOB)")
            texts = [[as_bytes(r[0]), text(r[1]), text(r[2]), as_bytes(r[3])] for r in rows]
            db.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", texts)
        return SqlSource(url=f"duckdb:///{tmp_path}/t.duckdb", query="SELECT * FROM t")

    def text(value: Any) -> str | None:
        written = as_bytes(value)
        return None if written is None else written.decode(errors="replace")

    require_others_unmoved(write, (*VALUES, *BYTES))


@pytest.mark.slow
def test_postgresql(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as db:

        def write(rows: Sequence[Row]) -> SqlSource:
            db.execute("DROP TABLE IF EXISTS alone")
            db.execute("CREATE TABLE alone (id bytea, number text, flag text, level bytea)")
            for row in rows:
                cells = [as_bytes(row[0]), text(row[1]), text(row[2]), as_bytes(row[3])]
                db.execute("INSERT INTO alone VALUES (%s, %s, %s, %s)", cells)
            return SqlSource(url=postgres.url, query="SELECT * FROM alone")

        def text(value: Any) -> str | None:
            written = as_bytes(value)
            return None if written is None else written.replace(b"\0", b"").decode(errors="replace")

        require_others_unmoved(write, (*VALUES, *BYTES))


def test_query_that_looks_at_other_rows_is_not_asked(tmp_path: Path) -> None:
    source = SqlSource(url=f"sqlite:///{tmp_path}/absent.db", query="SELECT *, sum(x) OVER () AS s FROM t")
    with pytest.raises(SourceRefusedError, match="it uses window"):
        open_table(source, SubjectKey.of("id"), ATTRIBUTES, engine=IN_PROCESS)
    open_table(source.model_copy(update={"promised": True}), SubjectKey.of("id"), ATTRIBUTES, engine=IN_PROCESS)


@pytest.mark.parametrize(
    "odd",
    [b"\xff", b"\xed\xa0\x80", "\ufffd" * 2, "a" + "\u0315\u0300" * 50_000, b"x" * 1025],
    ids=lambda v: f"{v[:3]!r}",
)
@pytest.mark.parametrize("rules", RULES)
def test_id_that_nobody_can_read_is_none_and_the_others_are_there(tmp_path: Path, odd: Any, rules: IdRules) -> None:
    with sqlite3.connect(tmp_path / "t.db") as db:
        db.execute("CREATE TABLE t (id, number, flag, level)")
        db.executemany("INSERT INTO t VALUES (?, 1, 'true', 'r')", [("p1",), (odd,), (odd,), ("p2",)])
        db.execute("UPDATE t SET id = CAST(id AS TEXT) WHERE typeof(id) = 'blob'")
    db.close()
    source = SqlSource(url=f"sqlite:///{tmp_path}/t.db", query="SELECT * FROM t")
    found = image(source, rules)
    readable = {odd.encode(): 2} if odd == "\ufffd" * 2 else {}
    assert {subject: len(rows) for subject, rows in found.items()} == {b"p1": 1, b"p2": 1, **readable}
    table = open_table(source, SubjectKey.of("id", rules), ATTRIBUTES, engine=IN_PROCESS)
    scan = table.scan()
    assert list(scan.sorter)
    with pytest.raises(DataError, match="1 duplicate" if readable else "2 subject ids do not follow their rule"):
        scan.require_one_row_each(table.key)
