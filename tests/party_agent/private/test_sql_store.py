"""Databases: the same cells whatever a database makes of them, as Arrow arrays and as objects of its driver.

`COMMINGLE_TEST_DATABASE_URLS`, separated by blanks, adds servers that a developer has, such as MariaDB.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unicodedata import normalize

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.party_agent.edge.api import resolve_source
from commingle.party_agent.errors import SourceError, SourceRefusedError
from commingle.party_agent.home.home import Home
from commingle.party_agent.private.engine import IN_PROCESS
from commingle.party_agent.private.rows import cells_of
from commingle.party_agent.private.sources import FileSource, SourceTable, open_source, open_table
from commingle.party_agent.private.sql_store import SqlSource, read_query
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.encoding import encode_attribute
from commingle.shared.errors import MissingExtraError
from commingle.shared.values import LONGEST_CELL, UNREADABLE, Cells, plain_cells, subject_ids
from tests.party_agent.private.releases import before_noise, request_of
from tests.party_agent.private.tables import column, reader_of, snapshot_from
from tests.world.postgres import PostgresServer

Rows = Sequence[dict[str, Any]]

DAYS = (date(2020, 2, 28), date(2020, 2, 29), date(1000, 1, 1))
LEVELS = ("r", "é", "日本")
ATTRIBUTES: tuple[Attribute, ...] = (
    NumericAttribute(name="real", lower=-3, upper=7, missing="indicator"),
    NumericAttribute(name="whole", lower=-(2**40), upper=2**60, missing="indicator"),
    NumericAttribute(name="decimal", lower=-1000, upper=1000, missing="midpoint"),
    NumericAttribute(name="written", lower=-10, upper=10, missing="midpoint"),
    BinaryAttribute(name="flag", levels=("0", "1"), missing="midpoint"),
    CategoricalAttribute(name="level", levels=LEVELS, missing="indicator"),
    CategoricalAttribute(name="day", levels=tuple(map(str, DAYS)), missing="indicator"),
)
TABLE = sa.Table(
    "cells",
    sa.MetaData(),
    sa.Column("id", sa.Unicode(60)),
    sa.Column("born", sa.Date),
    sa.Column("real", sa.Double),
    sa.Column("whole", sa.BigInteger),
    sa.Column("decimal", sa.Numeric(12, 3, asdecimal=True)),
    sa.Column("written", sa.Unicode(40)),
    sa.Column("flag", sa.SmallInteger),
    sa.Column("level", sa.Unicode(20)),
    sa.Column("day", sa.Date),
)
KEY = SubjectKey.of(("id", "born"), ("exact/1", "date/1"))

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
_ID = _TEXT.filter(str.strip)
_BORN = st.dates(date(1900, 1, 1), date(2026, 1, 1))
_CELLS = {
    "real": st.none() | st.floats(-4, 8, allow_subnormal=False) | st.sampled_from([1e-300, -1e300, 0.1 + 0.2, 1 / 3]),
    "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
    "decimal": st.none() | st.decimals(-999, 999, places=3),
    "written": st.none()
    | st.floats(-11, 11).map(repr)
    | _TEXT
    | st.sampled_from(["NaN", "inf", " 1.5 ", "1e1", "\u0661"]),
    "flag": st.none() | st.integers(0, 2),
    "level": st.none() | st.sampled_from([*LEVELS, " r ", "e\u0301", ""]),
    "day": st.none() | st.sampled_from([*DAYS, date(2020, 3, 1)]),
}


def _canonical(row: dict[str, Any]) -> tuple[str, date]:
    return normalize("NFC", row["id"]).strip(), row["born"]


_ROW = st.fixed_dictionaries({"id": _ID, "born": _BORN, **_CELLS})
ROWS = st.lists(_ROW, min_size=2, max_size=12, unique_by=_canonical)
OWN = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


@contextmanager
def filled(url: str, rows: Rows) -> Iterator[SqlSource]:
    """The table, as the database's own types have it, while it is there."""
    engine = sa.create_engine(url)
    try:
        TABLE.drop(engine, checkfirst=True)
        TABLE.create(engine)
        with engine.begin() as db:
            db.execute(TABLE.insert(), list(rows))
        yield SqlSource(url=url, query="SELECT * FROM cells")
    finally:
        TABLE.drop(engine, checkfirst=True)
        engine.dispose()


def block(table: SourceTable, n: int) -> NDArray[np.int64]:
    """Of dgm, so the rows themselves, by rank; whatever their cells are, as for an agent that is bound to them."""
    with TemporaryDirectory() as folder:
        snapshot = snapshot_from(Path(folder), table, strict=False)
        return before_noise(snapshot, request_of("dgm", *ATTRIBUTES, n=n))[0]


def in_plain_python(rows: Rows) -> NDArray[np.int64]:
    """The same of cells as Arrow has them, without any database."""
    texts: dict[str, Callable[[Any], Any]] = {
        "decimal": lambda v: None if v is None else str(v),
        "day": str,
        "born": str,
    }
    columns = {}
    for name in rows[0]:
        written = texts.get(name, lambda v: v)
        columns[name] = column([None if row[name] is None else written(row[name]) for row in rows])
    return block(SourceTable([reader_of(columns)], KEY, ATTRIBUTES), len(rows))


def read_back(url: str, rows: Rows) -> NDArray[np.int64]:
    with filled(url, rows) as source:
        return block(open_table(source, KEY, ATTRIBUTES, engine=IN_PROCESS), len(rows))


@pytest.mark.slow
@OWN
@given(rows=ROWS)
def test_block_from_a_file_is_that_of_the_cells(tmp_path_factory: pytest.TempPathFactory, rows: Rows) -> None:
    folder = tmp_path_factory.mktemp("databases")
    expected = in_plain_python(rows)
    assert np.array_equal(read_back(f"sqlite:///{folder}/t.db", rows), expected)
    assert np.array_equal(read_back(f"duckdb:///{folder}/t.duckdb", rows), expected)


@pytest.mark.slow
def test_block_from_a_server_is_that_of_the_cells(postgres: PostgresServer) -> None:
    urls = [postgres.url, *os.environ.get("COMMINGLE_TEST_DATABASE_URLS", "").split()]

    @OWN
    @given(rows=ROWS)
    def hold(rows: Rows) -> None:
        expected = in_plain_python(rows)
        for url in urls:
            assert np.array_equal(read_back(url, rows), expected)

    hold()


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
        counts = [(e.counts.clipped, e.counts.missing, e.counts.not_finite, e.counts.unreadable) for e in encoded]
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "varchar", "bytea", "json"])
def test_text_of_postgresql_above_the_longest_is_missing_and_no_other(postgres: PostgresServer, kind: str) -> None:
    cell = "convert_to(repeat('1', {}), 'UTF8')" if kind == "bytea" else f"repeat('1', {{}})::{kind}"
    rows = (f"('{who}', {cell.format(LONGEST_CELL + beyond)})" for who, beyond in (("longest", 0), ("long", 1)))
    with psycopg.connect(postgres.url, autocommit=True) as db:
        db.execute(f"CREATE TABLE long_{kind} (id text, x {kind})".encode())
        db.execute(f"INSERT INTO long_{kind} VALUES ('short', '1'), {', '.join(rows)}".encode())  # noqa: S608 - ours
    source = SqlSource(url=postgres.url, query=f"SELECT * FROM long_{kind}")  # noqa: S608 - ours
    read = dict[Any, Any]()
    for batch in read_query(source, ["id", "x"]):
        ids, cells = (batch.columns[name].to_pylist() for name in ("id", "x"))
        read |= {who: cell and len(cell) for who, cell in zip(ids, cells, strict=True)}
    assert read == {"short": 1, "longest": LONGEST_CELL, "long": None}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "stored", "read"),
    [
        ("SQL_ASCII", b"\xe9", UNREADABLE),
        ("SQL_ASCII", "\u00e9".encode(), "\u00e9".encode()),
        ("WIN1252", b"\x81", UNREADABLE),
        ("WIN1252", b"\xe9", "\u00e9".encode()),
        ("KOI8R", b"\xc1", "\u0430".encode()),
        ("EUC_JP", b"\xc6\xfc", "\u65e5".encode()),
        ("EUC_JP", b"\xad\xa1", UNREADABLE),
        ("EUC_KR", b"\xc9\xa1", UNREADABLE),
    ],
)
def test_text_of_postgresql_in_another_encoding_is_read_and_an_odd_one_ends_no_reading(
    postgres: PostgresServer, encoding: str, stored: bytes, read: bytes
) -> None:
    with stored_as(postgres, encoding) as url:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("SET client_encoding = 'SQL_ASCII'")  # the server takes and stores bytes
            db.execute("CREATE TABLE t (id integer, level text, name varchar(9), document json)")
            row = b"(2, '%b', '%b', '\"%b\"')" % (stored, stored, stored)
            db.execute(b"INSERT INTO t VALUES (1, 'a', NULL, NULL), " + row)
        found = dict[Any, Any]()
        for batch in read_query(SqlSource(url=url, query="SELECT * FROM t"), ["id", "level", "name", "document"]):
            cells = [batch.columns[name].to_pylist() for name in ("id", "level", "name", "document")]
            found |= {who: others for who, *others in zip(*cells, strict=True)}
    quoted = UNREADABLE if read == UNREADABLE else b'"%b"' % read
    assert found == {1: [b"a", None, None], 2: [read, read, quoted]}


@pytest.mark.slow
def test_postgresql_whose_encoding_python_lacks_is_refused_whatever_its_rows(postgres: PostgresServer) -> None:
    with stored_as(postgres, "EUC_TW") as url, pytest.raises(SourceError, match="stored as EUC_TW"):
        list(read_query(SqlSource(url=url, query="SELECT 1 AS id"), ["id"]))


@contextmanager
def stored_as(server: PostgresServer, encoding: str) -> Iterator[str]:
    """The URL of a database of the server's that stores texts so, while it is there."""
    name = encoding.lower()
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0".encode())
        try:
            yield server.url.replace("/postgres?", f"/{name}?")
        finally:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


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


def test_duckdb_whose_settings_are_locked_is_read() -> None:
    source = SqlSource(url="duckdb:///:memory:?lock_configuration=true", query="SELECT 'x' AS level")
    assert [batch.columns["level"].to_pylist() for batch in read_query(source, ["level"])] == [["x"]]


def test_duckdb_that_fails_says_so_without_quoting_rows() -> None:
    query = "SELECT 1 AS id, CAST(level AS integer) AS level FROM (SELECT 'SENTINEL' AS level)"
    with pytest.raises(SourceError, match="refused the query") as failed:
        list(read_query(SqlSource(url="duckdb://", query=query), ["id", "level"]))
    assert "SENTINEL" not in failed.value.diagnostics()


SCHEMA = (NumericAttribute(name="age", lower=0, upper=100), BinaryAttribute(name="smoker", levels=("no", "yes")))
BY_ID = SubjectKey.of("id", None)


def table(source: FileSource | SqlSource) -> SourceTable:
    return SourceTable([open_source(source)], BY_ID, SCHEMA)


def test_duckdb_file_is_a_database_like_others_and_no_way_to_the_agents_own(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE t (id VARCHAR, age DOUBLE, smoker VARCHAR)")
        db.execute("INSERT INTO t VALUES ('p2', 7.5, 'yes'), ('p1', 54, 'no')")
    read = snapshot_from(tmp_path / "made", table(SqlSource(url=f"duckdb:///{path}", query="SELECT * FROM t;")))
    assert read.n == 2
    home = Home(tmp_path / "home")
    home.root.mkdir()
    own = SqlSource(url=f"duckdb:///{home.root}/ledger.sqlite", query="SELECT 1 AS id")
    with pytest.raises(SourceRefusedError, match="own home"):
        resolve_source(home, own)


QUERY = "SELECT 1 AS id"


@pytest.mark.parametrize(
    ("url", "said", "remedy"),
    [
        ("nonsense", "URL cannot be used", "Give an SQLAlchemy URL"),
        ("nosuch://host/db", "no driver is installed for nosuch databases", "Install"),
        ("sqlite+absent:////x.db", "no driver is installed for sqlite+absent databases", "Install"),
        ("mysql+pymysql://user:hunter2@host/db", "the driver pymysql for this database is not installed", "Install"),
        ("postgresql+psycopg://user:hunter/2@host/db", "refused the query", "Run the query by hand"),
        ("postgresql://user:hunter2@127.0.0.1/db?nosuch=1", "refused the query", "Run the query by hand"),
        ("sqlite:////absent/folder/x.db", "cannot read the database", "Check the path"),
        ("sqlite:///a\0b", "NUL", "without"),
        ("postgresql+psycopg://user:a%00b@host/db", "NUL", "without"),
    ],
)
def test_url_that_cannot_be_used_is_a_source_error_without_the_url(url: str, said: str, remedy: str) -> None:
    source = SqlSource(url=url, query=QUERY)
    with pytest.raises(SourceError, match=re.escape(said)) as refused:
        list(read_query(source, ["id"]))
    assert remedy in refused.value.remedy
    assert "hunter" not in refused.value.diagnostics() + repr(source)


def test_nul_in_a_query_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(SourceError, match="NUL"):
        list(read_query(SqlSource(url="sqlite:////absent/x.db", query=f"{QUERY}\0"), ["id"]))


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("mssql://sa:hunter2@host/db", "pymssql", "sqlserver"),
        ("mssql+pymssql://sa:hunter2@host/db", "pymssql", "sqlserver"),
        ("oracle://me:hunter2@host/?service_name=x", "oracledb", "oracle"),
        ("oracle+oracledb://me:hunter2@host/?service_name=x", "oracledb", "oracle"),
    ],
)
def test_driver_that_is_missing_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    source = SqlSource(url=url, query=QUERY)
    with pytest.raises(MissingExtraError, match=f"{module} is not installed") as refused:
        table(source).scan()
    assert f"commingle[{extra}]" in refused.value.remedy
    assert "hunter2" not in refused.value.diagnostics()
