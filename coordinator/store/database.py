"""Transactions on SQLite and PostgreSQL: any number of readers, one writer at a time.

One writer at a time makes every use case serial (read the round, advance it, write it back with its event) and makes
event numbers grow in the order of commits, so that nobody who asks for "what came after N" ever misses one. Writes
are short and few: blobs are stored before a transaction begins.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

import structlog
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from commingle.coordinator.errors import DamagedDatabaseError, StorageError
from commingle.shared.errors import DocumentError, MissingExtraError
from commingle.shared.runtime.errors import SettingsError

Item = TypeVar("Item")


@contextmanager
def as_recorded() -> Iterator[None]:
    """Turn an error in reading a row into a StorageError: something other than a coordinator has written the row."""
    try:
        yield
    except (DocumentError, ValueError, TypeError, ArithmeticError):
        raise StorageError(
            "what the database holds was altered", remedy="Its operator runs: commingle coordinator doctor"
        ) from None


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items, and the number to continue after if there are more."""

    items: tuple[Item, ...]
    next: int | None


_WRITER = 0x636F6D6D696E676C  # the advisory lock every writer holds until it commits
WAIT_SECONDS = 30
_CHANNEL = "commingle_events"
_HEARING_SECONDS = 0.5  # how long a process that ends may wait for its listener
_PAUSE_SECONDS = 0.05
_log = structlog.get_logger()
_REPEAT = "Nothing was recorded. The operator checks that it runs, its URL and its permissions; then try again."
_FULL = ("the disk of the database is full", "Nothing was recorded. The operator frees space; then try again.")
_HELD = ("another program holds the database", "Nothing was recorded. Try again; the operator ends what holds it.")
_CAUSES = {
    "SQLITE_FULL": _FULL,
    "53100": _FULL,  # of PostgreSQL, as are the others of digits
    "SQLITE_BUSY": _HELD,
    "SQLITE_LOCKED": _HELD,
    "55P03": _HELD,
}
_OF_DAMAGE = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})
_RESTORE = "Stop the coordinator, move its home aside and restore the newest backup (docs/operations.md)."
_POOL = {"pool_size": 8, "max_overflow": 16, "pool_timeout": WAIT_SECONDS}
_SQLITE_POOL = _POOL | {"pool_size": 24, "max_overflow": 0}  # to open the file again costs more than to keep it open


class Database:
    """One database.

    Args:
        url: `sqlite:///FILE` or `postgresql://...`.

    Raises:
        SettingsError: another kind of URL.
    """

    def __init__(self, url: str) -> None:
        parsed = check_url(url)
        self._sqlite = parsed.get_backend_name() == "sqlite"
        self.serves_itself = not self._sqlite  # a server of its own, which may start after us
        self._engine = _sqlite_engine(parsed) if self._sqlite else _postgres_engine(parsed)
        self._turn = Lock()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A consistent view. Raises StorageError."""
        with _as_storage_error(), self._engine.connect() as connection:
            if not self._sqlite:
                connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction, alone in writing; committed at the end, undone on any exception. Raises StorageError."""
        with self._alone(), _as_storage_error(), self._engine.connect() as connection:
            connection.execution_options(commingle_writes=True)
            with connection.begin():
                if not self._sqlite:
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _WRITER})
                yield connection

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Take turns among the threads of this process: SQLite would let each sleep up to 0.1 s after another's end."""
        if not self._turn.acquire(timeout=WAIT_SECONDS):
            raise StorageError(
                f"another transaction takes more than {WAIT_SECONDS} seconds",
                remedy=_REPEAT,
            )
        try:
            yield
        finally:
            self._turn.release()

    def notify(self, connection: Connection) -> None:
        if self.serves_itself:
            connection.exec_driver_sql(f"NOTIFY {_CHANNEL}")

    def listen(self, hear: Callable[[], object], stopping: Event) -> None:
        """Call `hear` after every transaction that notified, over a connection of its own. Raises StorageError."""
        with _as_storage_error(), self._engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql(f"LISTEN {_CHANNEL}")
            driver: Any = connection.connection.driver_connection
            connection.detach()  # never one of the pool's again: it closes at the end of the block
            hear()  # nothing was heard before
            try:
                while not stopping.is_set():
                    for _ in driver.notifies(timeout=_HEARING_SECONDS, stop_after=1):
                        hear()
            except driver.Error as error:
                raise DBAPIError("LISTEN", None, error) from error

    def check(self) -> str:
        """Whether the database answers and, for SQLite, is undamaged. Raises StorageError."""
        with self.reading() as connection:
            asked = "PRAGMA quick_check(1)" if self._sqlite else "SELECT 1"
            found = connection.exec_driver_sql(asked).scalar()
        if self._sqlite and found != "ok":
            raise StorageError(f"the database file is damaged: {found}", remedy="Restore it (docs/operations.md).")
        return "SQLite finds no damage" if self._sqlite else "PostgreSQL answers"

    def close(self) -> None:
        self._engine.dispose()


class Part:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection


def check_url(url: str) -> URL:
    """The URL, parsed and mapped to the drivers in use."""
    try:
        parsed = None if "\0" in unquote(url) else make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        parsed = None
    kind = "" if parsed is None else parsed.drivername
    if parsed is not None and kind in {"postgres", "postgresql", "postgresql+psycopg"}:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed is not None and kind == "sqlite" and parsed.database not in {None, "", ":memory:"}:
        return parsed
    raise SettingsError(
        "the database URL is neither sqlite:///FILE nor postgresql://USER:PASSWORD@HOST/DATABASE",
        remedy="Correct database_url: commingle config show coordinator says where it is set.",
    )


def _postgres_engine(url: URL) -> Engine:
    limits = f"-c lock_timeout={WAIT_SECONDS}s -c statement_timeout={2 * WAIT_SECONDS}s"
    try:
        return create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 5, "options": limits}, **_POOL)
    except ModuleNotFoundError:
        raise MissingExtraError("psycopg", extra="postgresql") from None


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(url, connect_args={"timeout": WAIT_SECONDS}, **_SQLITE_POOL)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:  # noqa: ANN401 - the driver's connection
    connection.isolation_level = None  # transactions begin below, not behind our back
    until = time.monotonic() + WAIT_SECONDS
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        while True:
            try:
                connection.execute(f"PRAGMA {pragma}").close()
                break
            except sqlite3.OperationalError as error:
                # the driver does not wait where another process changes the journal
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_SECONDS)


def _begin_sqlite(connection: Connection) -> None:
    # a writer that starts as a reader could find its snapshot outdated and fail instead of waiting
    writes = connection.get_execution_options().get("commingle_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _as_storage_error() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        which = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None)
        _log.error("database fault", error=type(cause).__name__, code=which)
        code = "_".join(str(which).split("_")[:2])  # SQLite's own, without what says more
        if code in _OF_DAMAGE:
            raise DamagedDatabaseError("the database is damaged", remedy=_RESTORE) from error
        said, remedy = _CAUSES.get(code, (f"the database does not work ({type(cause).__name__})", _REPEAT))
        raise StorageError(said, remedy=remedy) from error
