"""Rows from a database, by any SQLAlchemy URL. The only module of the agent that knows SQLAlchemy."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pydantic import Field

from commingle.party_agent.errors import SourceError
from commingle.party_agent.private.rows import RawBatch
from commingle.shared.documents.model import WireModel
from commingle.shared.documents.subject_ids import SubjectColumns
from commingle.shared.encoding import Cells, as_text
from commingle.shared.errors import MissingExtraError
from commingle.shared.text import printable

if TYPE_CHECKING:  # SQLAlchemy loads slowly, and most tables are files
    import sqlite3

    from sqlalchemy import Engine

_ROWS_AT_ONCE = 1 << 15
_LONGEST_NAME = 40
_NOTHING = "\0"
"""Neither a number nor a level that a schema could have."""
_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.large_string(), bytes: pa.large_binary()}


Query = Annotated[str, Field(min_length=1)]
Queries = Query | Annotated[tuple[Query, ...], Field(min_length=1)]
"""One, or one for each partition of a table: no row may be in two of them."""


class SqlSource(WireModel):
    """A query. Its rows are read in the order of what identifies subjects, so that every reading sees one order."""

    kind: Literal["sql"] = "sql"
    url: Annotated[str, Field(min_length=1, repr=False)]
    query: Queries
    order_by: SubjectColumns

    @property
    def partitions(self) -> "tuple[SqlSource, ...] | None":
        """Each query as a source of its own; None where the table is one query's."""
        if isinstance(self.query, str):
            return None
        return tuple(self.model_copy(update={"query": query}) for query in self.query)


def read_query(source: SqlSource, columns: Sequence[str]) -> Iterator[RawBatch]:
    """The named columns of the query's result, streamed.

    Raises:
        SourceError: the database or the query does not work; database messages are not repeated, they may quote rows.
    """
    from sqlalchemy import text  # noqa: PLC0415 - as above
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    order = (source.order_by,) if isinstance(source.order_by, str) else source.order_by
    queries = (source.query,) if isinstance(source.query, str) else source.query
    if "\0" in "".join((unquote(source.url), *queries, *order)):
        raise SourceError("the database URL or the query holds a NUL character", remedy="Give it without.")
    engine = _engine(source.url)
    quote = engine.dialect.identifier_preparer.quote
    wanted = list(dict.fromkeys(columns))
    names = ", ".join(quote(name) for name in wanted)
    (query,) = (query.strip().rstrip(";") for query in queries)
    statement = f"SELECT {names} FROM ({query}) AS commingle_source ORDER BY {', '.join(map(quote, order))}"  # noqa: S608 - the party's own query on its own database
    try:
        with engine.connect().execution_options(stream_results=True) as connection:
            result = connection.execute(text(statement.replace(":", r"\:")))  # a colon is no parameter here
            for rows in result.partitions(_ROWS_AT_ONCE):
                values = zip(*rows, strict=True)
                yield RawBatch({name: _array(column) for name, column in zip(wanted, values, strict=True)}, len(rows))
    except SQLAlchemyError as error:
        raise SourceError(
            f"the database refused the query ({type(error).__name__})",
            remedy="Run the query by hand with the same account; it must return the subject id and every attribute.",
        ) from None
    finally:
        engine.dispose()


def database_file(source: SqlSource) -> str | None:
    """The file that a query reads from, where its database is SQLite; None for others, and where the URL is none."""
    from sqlalchemy import make_url  # noqa: PLC0415 - as above
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

    try:
        url = make_url(source.url)
    except (ArgumentError, ValueError):
        return None  # reading it says so
    if url.get_backend_name() != "sqlite" or not url.database:
        return None
    is_uri = url.database.startswith("file:")
    return unquote(urlsplit(url.database).path) if is_uri else url.database


def _engine(url: str) -> "Engine":
    from sqlalchemy import create_engine, event, make_url  # noqa: PLC0415 - as above
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError  # noqa: PLC0415

    try:
        parsed = make_url(url)
        if parsed.drivername in {"postgres", "postgresql"}:
            parsed = parsed.set(drivername="postgresql+psycopg")  # the driver that our extra brings
        engine = create_engine(parsed)
    except ModuleNotFoundError as error:
        if error.name == "psycopg":
            raise MissingExtraError("psycopg", extra="postgresql") from None
        raise SourceError(
            f"the driver {error.name} for this database is not installed",
            remedy="Install the package that brings it where the agent runs, or name another driver in the URL.",
        ) from None
    except NoSuchModuleError:
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
    """Else one text that is no UTF-8 fails the whole query."""
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")


def _array(values: tuple[Any, ...]) -> Cells:
    """Cells of one plain type as they are; of several types or of another each as its text, whatever is beside it."""
    kinds = set(map(type, values)) - {NoneType}
    kind = _TYPES.get(kinds.pop()) if len(kinds) == 1 else None
    if kind is not None:
        with suppress(pa.ArrowException, OverflowError, UnicodeError):
            array: Cells = pa.array(values, kind)
            return array
    floats = pa.array([value for value in values if isinstance(value, float)], pa.float64())
    written = iter(as_text("", floats).to_pylist())
    texts = (next(written) or _NOTHING if isinstance(v, float) else v if v is None else _text(v) for v in values)
    return pa.array(list(texts), pa.large_string())


def _text(value: object) -> str:
    """As the encoder reads a cell of that type where it stands in a column of its own."""
    try:
        if isinstance(value, bytes):
            return value.decode()
        return str(value).lower() if isinstance(value, bool) else str(value).encode().decode()
    except ValueError:  # no Unicode, or digits without end
        return _NOTHING
