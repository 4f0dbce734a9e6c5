"""Rows from a database, by any SQLAlchemy URL; as Arrow arrays if the database gives them.

Arrow comes a column at a time, where SQLAlchemy would make an object of each cell. Whole numbers, doubles and texts
come as they are. Other types come as the text that the database writes for them, which is what the encoder would read
of them: Arrow would know the amount of a `money` by its cents and some types not at all. The declared types of columns
decide this, never a cell.

PostgreSQL hands texts out as UTF-8, and ends the query at one byte of another encoding that UTF-8 has nothing for: one
person's record could fail a release. So such texts leave it as the bytes that it stores, and we decode them.
"""

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pydantic import Field

from commingle.party_agent.errors import SourceError
from commingle.party_agent.private.rows import RawBatch, cells_of
from commingle.shared.documents.model import WireModel, tagged_by
from commingle.shared.errors import MissingExtraError
from commingle.shared.runtime.files import require_plain
from commingle.shared.runtime.tables import ROWS_AT_ONCE
from commingle.shared.text import printable
from commingle.shared.values import LONGEST_CELL, UNREADABLE, Cells

if TYPE_CHECKING:  # SQLAlchemy loads slowly, and most tables are files
    import sqlite3
    from collections.abc import Callable

    from sqlalchemy import Engine

_BATCH_BYTES = 1 << 20
_TOGETHER_BYTES = 1 << 26
_ROWS_OF_DUCKDB = 1 << 11
"""At once: of texts as long as they may be they take 2 GiB a column."""

_LONGEST_NAME = 40
_DRIVERS = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mssql": "mssql+pymssql",
    "oracle": "oracle+oracledb",
}
"""Where a URL names no driver, the one that our extra brings."""
_EXTRAS = {"psycopg": "postgresql", "pymssql": "sqlserver", "oracledb": "oracle", "duckdb": "duckdb"}


Query = Annotated[str, Field(min_length=1)]
Queries = Query | Annotated[tuple[Query, ...], Field(min_length=1)]
"""One, or one for each partition of a table: no row may be in two of them."""


class SqlSource(WireModel):
    """A query. Each row of its result is of one person's records alone (`queries`).

    Attributes:
        url: of the database, as SQLAlchemy writes it.
        query: a SELECT that returns what identifies people, and every attribute.
        promised: its owner says that each row is of one person's records alone, where a parser cannot see it.
    """

    model_config = tagged_by("kind")
    kind: Literal["sql"] = "sql"
    url: Annotated[str, Field(min_length=1, repr=False)]
    query: Queries
    promised: bool = False

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query,) if isinstance(self.query, str) else self.query

    @property
    def partitions(self) -> "tuple[SqlSource, ...] | None":
        """Each query as a source of its own; None if the table is one query's."""
        if isinstance(self.query, str):
            return None
        return tuple(self.model_copy(update={"query": query}) for query in self.query)


def read_query(source: SqlSource, columns: Sequence[str]) -> Iterator[RawBatch]:
    """The named columns of the query's result, streamed.

    Raises SourceError: it does not work; what the database says is not repeated, as it may quote rows.
    """
    from sqlalchemy import text  # noqa: PLC0415 - as above
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    if "\0" in "".join((unquote(source.url), *source.queries)):
        raise SourceError("the database URL or the query holds a NUL character", remedy="Give it without.")
    engine = _engine(source.url)
    _require_plain(source)
    quote = engine.dialect.identifier_preparer.quote
    wanted = list(dict.fromkeys(columns))
    names = ", ".join(quote(name) for name in wanted)
    (query,) = (query.strip().rstrip(";") for query in source.queries)
    table = f"({query}) commingle_source"  # Oracle knows no AS here
    try:
        if (database := _DATABASES.get(f"{engine.dialect.name}+{engine.dialect.driver}")) is not None:
            named = [f"commingle_source.{quote(name)}" for name in wanted]
            for cells in database.batches(engine, table, named):
                yield RawBatch(dict(zip(wanted, cells, strict=True)), len(cells[0]))
            return
        statement = f"SELECT {names} FROM {table}"  # noqa: S608 - the party's own query on its own database
        with engine.connect().execution_options(stream_results=True) as connection:
            result = connection.execute(text(statement.replace(":", r"\:")))  # a colon is no parameter here
            for rows in result.partitions(ROWS_AT_ONCE):
                values = zip(*rows, strict=True)
                yield RawBatch({name: cells_of(column) for name, column in zip(wanted, values, strict=True)}, len(rows))
    except (SQLAlchemyError, ValueError, OverflowError) as error:  # the latter by drivers, of a value they cannot show
        raise refused(error) from None
    finally:
        engine.dispose()


def database_file(source: SqlSource) -> str | None:
    """The file that a query reads from, if its database is one; None for others and for what is no URL."""
    from sqlalchemy import make_url  # noqa: PLC0415 - as above
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

    try:
        url = make_url(source.url)
    except (ArgumentError, ValueError):
        return None  # reading it says so
    if url.get_backend_name() not in {"sqlite", "duckdb"} or not url.database:
        return None
    is_uri = url.database.startswith("file:")
    return unquote(urlsplit(url.database).path) if is_uri else url.database


def _require_plain(source: SqlSource) -> None:
    name = database_file(source)
    if name is None or name.startswith(":memory:"):
        return
    try:
        require_plain(name)
    except OSError as error:
        raise SourceError(
            f"cannot read the database ({error.strerror})", remedy="Check the path in its URL, and that it is a file."
        ) from None


def _engine(url: str) -> "Engine":
    from sqlalchemy import create_engine, event, make_url  # noqa: PLC0415 - as above
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError  # noqa: PLC0415

    try:
        parsed = make_url(url)
        parsed = parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
        engine = create_engine(parsed)
    except ModuleNotFoundError as error:
        if error.name in _EXTRAS:
            raise MissingExtraError(error.name, extra=_EXTRAS[error.name]) from None
        raise SourceError(
            f"the driver {error.name} for this database is not installed",
            remedy="Install the package that brings it where the agent runs, or name another driver in the URL.",
        ) from None
    except NoSuchModuleError:
        if parsed.get_backend_name() == "duckdb":  # whose dialect is a package of its own
            raise MissingExtraError("duckdb-sqlalchemy", extra="duckdb") from None
        raise SourceError(
            f"no driver is installed for {printable(parsed.drivername)[:_LONGEST_NAME]} databases",
            remedy="Install its SQLAlchemy dialect where the agent runs, or correct what stands before :// in the URL.",
        ) from None
    except (ArgumentError, ImportError, ValueError):
        raise SourceError(
            "the database URL cannot be used",
            remedy="Give an SQLAlchemy URL such as postgresql+psycopg://user@host/db or sqlite:////path/file.db.",
        ) from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _accept_any_text)
    return engine


def _accept_any_text(connection: "sqlite3.Connection", _: object) -> None:
    """Else one text that is no UTF-8 fails the whole query, and a long one is kept with four bytes a character."""
    connection.text_factory = _text_of_sqlite


def _text_of_sqlite(text: bytes) -> str | bytes:
    return UNREADABLE if len(text) > LONGEST_CELL else text.decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class ArrowDatabase:
    """A kind of database that gives Arrow arrays.

    Attributes:
        type_of: SQL for the name of a column's type.
        plain: types whose cells are read as they are, and short.
        long: other such types, with SQL for the bytes of a cell; the first is the type of what is cast to text.
        binary: the one of them whose cells are no text.
        reading: runs a statement.
        encoding: SQL for how texts are stored.
        as_stored: SQL for a text's bytes.
    """

    type_of: str
    plain: frozenset[str]
    long: Mapping[str, str]
    binary: str
    reading: "Callable[[Engine, str], AbstractContextManager[pa.RecordBatchReader]]"
    encoding: str = "'UTF8'"
    as_stored: str = "{}"

    def batches(self, engine: "Engine", table: str, columns: Sequence[str]) -> Iterator[list[Cells]]:
        """Columns, quoted, of a table, the query in brackets with a name of its own, in any order of rows."""
        types = ", ".join((self.encoding, *map(self.type_of.format, columns)))
        asked = f"SELECT {types} FROM (SELECT 1) one LEFT JOIN {table} ON FALSE"  # noqa: S608 - the party's own query on its own database; a row without cells, whatever rows there are
        with self.reading(engine, asked) as reader:
            stored, *declared = [cells[0].as_py() for cells in reader.read_all().columns]
        codec = _codec(stored)
        moved = [codec if self._is_text(kind) else None for kind in declared]
        cells = map(self._cell, columns, declared, moved)
        rows = f"SELECT {', '.join(cells)} FROM {table}"  # noqa: S608 - as above
        with self.reading(engine, rows) as reader:
            for batch in _together(reader):
                for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                    part = batch.slice(start, ROWS_AT_ONCE)
                    yield list(map(_as_utf8, part.columns, moved))

    def _is_text(self, kind: str) -> bool:
        return kind not in self.plain and kind != self.binary

    def _cell(self, name: str, kind: str, codec: str | None) -> str:
        if kind in self.plain:
            return name
        # a cell that is too long to be read stays in the database, and ends no batch of others
        cell = name if kind in self.long else f"CAST({name} AS text)"
        length = self.long.get(kind, next(iter(self.long.values()))).format(cell)
        return f"CASE WHEN {length} <= {LONGEST_CELL} THEN {self.as_stored.format(cell) if codec else cell} END"


_CODECS = {"SQL_ASCII": "utf-8", "KOI8R": "koi8_r", "KOI8U": "koi8_u"}


def _codec(stored: str) -> str | None:
    if stored == "UTF8":
        return None
    try:
        return codecs.lookup(_CODECS.get(stored, stored.replace("WIN", "cp"))).name
    except LookupError:
        raise SourceError(
            f"texts of this database are stored as {stored}, which cannot be read",
            remedy="Copy the table to a database in UTF8, and read that.",
        ) from None


def _as_utf8(cells: Cells, codec: str | None) -> Cells:
    if codec is None:
        return cells
    return pa.array([None if cell is None else _decoded(cell, codec) for cell in cells.to_pylist()], pa.large_binary())


def _decoded(cell: bytes, codec: str) -> bytes:
    try:
        return cell.decode(codec).encode()
    except UnicodeError:
        return UNREADABLE


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    part = list[pa.RecordBatch]()
    for batch in batches:
        part.append(batch)
        if sum(one.num_rows for one in part) >= ROWS_AT_ONCE or sum(one.nbytes for one in part) >= _TOGETHER_BYTES:
            yield from pa.Table.from_batches(part).combine_chunks().to_batches()
            part = []
    if part:
        yield from pa.Table.from_batches(part).combine_chunks().to_batches()


def refused(error: Exception) -> SourceError:
    """The owner's error; messages of a database may quote rows."""
    return SourceError(
        f"the database refused the query ({type(error).__name__})",
        remedy="Run the query by hand with the same account; it must return the subject id and every attribute.",
    )


@contextmanager
def _from_postgresql(engine: "Engine", statement: str) -> Iterator[pa.RecordBatchReader]:
    import psycopg  # noqa: PLC0415 - an extra, as all drivers

    try:
        from adbc_driver_manager import Error  # noqa: PLC0415
        from adbc_driver_postgresql.dbapi import connect  # type: ignore[import-untyped] # noqa: PLC0415
    except ModuleNotFoundError:
        raise MissingExtraError("adbc-driver-postgresql", extra="postgresql") from None
    _, arguments = engine.dialect.create_connect_args(engine.url)
    arguments.pop("context", None)  # SQLAlchemy's, for psycopg
    try:
        with (
            connect(psycopg.conninfo.make_conninfo(**{**arguments, "client_encoding": "utf8"})) as connection,
            connection.cursor() as rows,
        ):
            rows.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            rows.execute(statement)
            yield rows.fetch_record_batch()
    except (Error, psycopg.Error, pa.ArrowException, OSError) as error:
        raise refused(error) from None


@contextmanager
def _from_duckdb(engine: "Engine", statement: str) -> Iterator[pa.RecordBatchReader]:
    import duckdb  # noqa: PLC0415 - an extra

    try:
        # a cursor of its own, and a stream that is closed, so that a reading may end early
        with engine.connect() as connection:
            cursor = connection.connection.cursor()
            with suppress(duckdb.InvalidInputException):  # of a URL that locks settings
                cursor.execute("SET arrow_large_buffer_size = true")  # or texts of 2^31 bytes in all would end it
            with cursor.sql(statement).to_arrow_reader(_ROWS_OF_DUCKDB) as rows:
                yield rows
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise refused(error) from None


_DATABASES: Mapping[str, ArrowDatabase] = {
    "postgresql+psycopg": ArrowDatabase(
        "CAST(pg_typeof({}) AS text)",
        frozenset({"smallint", "integer", "bigint", "double precision", "boolean"}),
        dict.fromkeys(("text", "character varying", "bytea"), "octet_length({})"),
        "bytea",
        _from_postgresql,
        encoding="CAST(getdatabaseencoding() AS text)",
        as_stored="convert_to({}, getdatabaseencoding())",
    ),
    "duckdb+duckdb_sqlalchemy": ArrowDatabase(
        "typeof({})",
        frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN"}),
        {"VARCHAR": "strlen({})", "BLOB": "octet_length({})"},
        "BLOB",
        _from_duckdb,
    ),
}
