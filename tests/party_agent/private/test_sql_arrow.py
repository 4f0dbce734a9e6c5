"""Columns that databases give as Arrow arrays, beside the same cells as their drivers make Python objects of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pytest

from commingle.party_agent.errors import SourceError
from commingle.party_agent.private.cells import cells_of
from commingle.party_agent.private.sql_store import SqlSource, read_query
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.encoding import Cells, encode_attribute, plain_cells, subject_ids
from tests.world.postgres import PostgresServer

COMMON = {
    "smallint": ("-7", "NULL"),
    "integer": ("12", "0"),
    "bigint": ("9223372036854775807", "-9223372036854775808"),
    "double precision": ("0.1", "'NaN'::double precision", "'-Infinity'::double precision", "1e-320", "1e22"),
    "numeric(12,3)": ("10.250", "-9", "1000"),
    "text": ("'Zoë'", "' b '", "''", "'NA'", "'1e3'"),
    "boolean": ("true", "false"),
    "date": ("date '2020-02-29'", "date '0999-12-31'"),
    "timestamp": ("timestamp '2020-01-01 07:08:09'", "NULL"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid",),
}
POSTGRESQL = {
    "real": ("0.1", "1e30"),
    "varchar(4)": ("'é'",),
    "oid": ("5",),
    "time": ("time '01:02:03'",),
    "name": ("'n'",),
}
DUCKDB = {"float": ("0.1", "1e30"), "hugeint": ("9223372036854775808", "7"), "utinyint": ("200",)}
NUMBER = NumericAttribute(name="c", lower=-10, upper=1100, missing="indicator")

Read = tuple[list[Cells], list[Cells]]


def statements(types: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """A table with a column for each type, and a row for each place in `cells`."""
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(types))
    rows = [", ".join(one[place] if place < len(one) else "NULL" for one in cells) for place in range(5)]
    values = ", ".join(f"({place}, {row})" for place, row in enumerate(rows))
    return [f"CREATE TABLE kinds (id integer, {columns})", f"INSERT INTO kinds VALUES {values}"]  # noqa: S608 - cells from above


def both(url: str, run: Callable[[str], list[tuple[Any, ...]]], kinds: dict[str, tuple[str, ...]]) -> Read:
    """Columns as they are read, and as the driver's objects would be."""
    for statement in statements(list(kinds), list(kinds.values())):
        run(statement)
    names = [f"c{number}" for number in range(len(kinds))]
    read = list(read_query(SqlSource(url=url, query="SELECT * FROM kinds;"), names))
    rows = run(f"SELECT {', '.join(names)} FROM kinds")  # noqa: S608 - as above
    columns = [pa.concat_arrays([plain_cells(batch.columns[name]) for batch in read]) for name in names]
    return columns, [cells_of(column) for column in zip(*rows, strict=True)]


def require_same(found: Read) -> None:
    """As identifiers and as numbers: what the encoder reads of a cell."""
    for read, expected in zip(*found, strict=True):
        ids = [subject_ids(SubjectKey.of("c"), {"c": cells}).ids.to_pylist() for cells in (read, expected)]
        assert ids[0] == ids[1] or read.type == pa.float32()  # of which Python writes digits that are not its own
        encoded = [encode_attribute(NUMBER, cells) for cells in (read, expected)]
        assert np.array_equal(encoded[0].columns, encoded[1].columns)
        counts = [(e.clipped, e.missing, e.not_finite, e.unreadable) for e in encoded]
        assert counts[0] == counts[1]


@pytest.mark.slow
def test_cells_of_postgresql_are_those_of_its_driver(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as db:

        def run(statement: str) -> list[tuple[Any, ...]]:
            cursor = db.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

        require_same(both(postgres.url, run, COMMON | POSTGRESQL))
        db.execute("CREATE TABLE paid (id numeric, amount money, code char(5), level text)")
        db.execute("INSERT INTO paid VALUES (10, 1.5, 'a', 'x'), (9, NULL, 'b', NULL)")
        source = SqlSource(url=postgres.url, query="SELECT * FROM paid")
        (batch,) = read_query(source, ["id", "amount", "code"])
        cells = {name: [cell and cell.strip() for cell in column.to_pylist()] for name, column in batch.columns.items()}
        assert cells == {"id": ["10", "9"], "amount": ["$1.50", None], "code": ["a", "b"]}
        db.execute("INSERT INTO paid VALUES (11, 1, 'c', 'SENTINEL')")
        for query in ("SELECT id, CAST(level AS integer) AS level FROM paid", "SELECT id, level FROM absent", "no"):
            with pytest.raises(SourceError, match="refused the query") as failed:
                list(read_query(source.model_copy(update={"query": query}), ["id", "level"]))
            assert "SENTINEL" not in failed.value.diagnostics()


def test_cells_of_duckdb_are_those_of_its_driver(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"

    def run(statement: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(path) as db:
            return db.execute(statement).fetchall()

    require_same(both(f"duckdb:///{path}", run, COMMON | DUCKDB))


def test_table_without_rows_gives_none() -> None:
    source = SqlSource(url="duckdb://", query="SELECT 1 AS id, 'x' AS level LIMIT 0")
    assert not sum(batch.size for batch in read_query(source, ["id", "level"]))


def test_reading_that_ends_early_lets_go_of_the_database(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with duckdb.connect(path) as db:
        db.execute("CREATE TABLE t AS SELECT i AS id FROM range(100000) AS r(i)")
    batches = read_query(SqlSource(url=f"duckdb:///{path}", query="SELECT * FROM t"), ["id"])
    assert next(batches).size < 100_000
    batches.close()  # type: ignore[attr-defined] # it is a generator
    with duckdb.connect(path) as db:
        db.execute("INSERT INTO t VALUES (-1)")


def test_duckdb_that_fails_says_so_without_quoting_rows() -> None:
    query = "SELECT 1 AS id, CAST(level AS integer) AS level FROM (SELECT 'SENTINEL' AS level)"
    with pytest.raises(SourceError, match="refused the query") as failed:
        list(read_query(SqlSource(url="duckdb://", query=query), ["id", "level"]))
    assert "SENTINEL" not in failed.value.diagnostics()
