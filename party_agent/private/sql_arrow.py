"""Queries whose database gives Arrow arrays: a column at a time, where SQLAlchemy would make an object of each cell.

Whole numbers, doubles and texts come as they are. Other types come as the text that the database writes for them, which
is what the encoder would read of them: Arrow would know the amount of a `money` by its cents and some types not at all.
Which is which depends on the columns' declared types, never on a cell.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from commingle.party_agent.errors import SourceError
from commingle.shared.errors import MissingExtraError
from commingle.shared.runtime.tables import ROWS_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

_BATCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ArrowDatabase:
    """A kind of database that can.

    Attributes:
        type_of: SQL for the name of a column's type.
        plain: types whose cells are read as they are.
        reading: runs a statement.
    """

    type_of: str
    plain: frozenset[str]
    reading: "Callable[[Engine, str], AbstractContextManager[pa.RecordBatchReader]]"

    def batches(self, engine: "Engine", table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Columns of a query, in whatever order of rows.

        Args:
            engine: of the database.
            table: the query in brackets, and its name.
            columns: quoted, with that name.

        Raises:
            SourceError: the database refuses.
        """
        types = ", ".join(self.type_of.format(name) for name in columns)
        asked = f"SELECT {types} FROM (SELECT 1) one LEFT JOIN {table} ON FALSE"  # noqa: S608 - the party's own query on its own database; a row without cells, whatever rows there are
        with self.reading(engine, asked) as reader:
            declared = [cells[0].as_py() for cells in reader.read_all().columns]
        cells = [n if t in self.plain else f"CAST({n} AS text)" for n, t in zip(columns, declared, strict=True)]
        rows = f"SELECT {', '.join(cells)} FROM {table}"  # noqa: S608 - as above
        with self.reading(engine, rows) as reader:
            for batch in reader:
                for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                    yield batch.slice(start, ROWS_AT_ONCE)


def arrow_database(engine: "Engine") -> ArrowDatabase | None:
    """How rows of this one are read; None where one by one."""
    return _DATABASES.get(f"{engine.dialect.name}+{engine.dialect.driver}")


def refused(error: Exception) -> SourceError:
    """What its owner is told; messages of a database may quote rows."""
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
        with (
            engine.connect() as connection,
            connection.connection.cursor().sql(statement).to_arrow_reader(ROWS_AT_ONCE) as rows,
        ):
            yield rows
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise refused(error) from None


_DATABASES: Mapping[str, ArrowDatabase] = {
    "postgresql+psycopg": ArrowDatabase(
        "CAST(pg_typeof({}) AS text)",
        frozenset(
            {"smallint", "integer", "bigint", "double precision", "boolean", "text", "character varying", "bytea"}
        ),
        _from_postgresql,
    ),
    "duckdb+duckdb_sqlalchemy": ArrowDatabase(
        "typeof({})",
        frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "VARCHAR", "BLOB"}),
        _from_duckdb,
    ),
}
