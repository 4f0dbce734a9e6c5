"""The coordinator's database as one object, brought up to date: transactions of members, releases and events."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection

from commingle.coordinator.errors import StorageError, UnreachableDatabaseError
from commingle.coordinator.store.database import Database
from commingle.coordinator.store.events import Events
from commingle.coordinator.store.members import Access, LinkageKeys, Members, WitnessedHeads
from commingle.coordinator.store.releases import Releases
from commingle.shared.runtime import faults
from commingle.shared.runtime.errors import ANOTHER_VERSION

_MIGRATIONS = Path(__file__).parent / "migrations"
_AWAY_SECONDS = 5.0
_log = structlog.get_logger()


class Transaction:
    """What can be read and, in a writing transaction, written."""

    def __init__(self, connection: Connection) -> None:
        self.access = Access(connection)
        self.members = Members(connection)
        self.releases = Releases(connection)
        self.events = Events(connection)
        self.linkage = LinkageKeys(connection)
        self.heads = WitnessedHeads(connection)


class Store:
    """The memory over one database. Use `open_store`.

    Attributes:
        on_event: called after every transaction that recorded an event, on the thread that wrote.
    """

    def __init__(
        self, database: Database, *, prepared: bool = True, has_files: Callable[[], bool] = lambda: False
    ) -> None:
        self._database = database
        self._prepared = prepared
        self._has_files = has_files
        self.on_event: Callable[[], None] = lambda: None

    def prepare(self) -> None:
        """Bring the tables up to date, unless that was done. Raises StorageError."""
        if not self._prepared:
            migrate(self._database, has_files=self._has_files)
            self._prepared = True

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A consistent view. Raises StorageError."""
        self._require_prepared()
        with self._database.reading() as connection:
            yield Transaction(connection)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """One transaction, alone in writing; undone on any exception. Raises StorageError."""
        self._require_prepared()
        with self._database.writing() as connection:
            transaction = Transaction(connection)
            yield transaction
            if transaction.events.added:
                self._database.notify(connection)
            faults.reach("coordinator.committing")
        if transaction.events.added:
            self.on_event()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Call `on_event` after events of other replicas too, as far as the database tells of them."""
        stopping = Event()
        thread = Thread(target=self._listen, args=(stopping,), name="listener", daemon=True)
        if self._database.serves_itself:
            thread.start()
        try:
            yield
        finally:
            stopping.set()
            if thread.is_alive():
                thread.join()

    def _listen(self, stopping: Event) -> None:
        while not stopping.is_set():
            try:
                self._database.listen(lambda: self.on_event(), stopping)  # noqa: PLW0108 - whichever it is by then
            except StorageError:  # logged there; events are looked for every second meanwhile
                stopping.wait(_AWAY_SECONDS)

    def close(self) -> None:
        self._database.close()

    def _require_prepared(self) -> None:
        if not self._prepared:
            raise StorageError(
                "the database has not been reached since this process started",
                remedy="It is tried again every few seconds; the operator checks that the database runs, and its URL.",
            )


def open_store(url: str, *, patient: bool = False, has_files: Callable[[], bool] = lambda: False) -> Store:
    """Connect, and bring the tables up to date.

    Where it `has_files`, an empty database is not the one that they belong to: as a new one it would have them removed.

    Where `patient`, a database server that does not answer yet is no fault: everything is refused until `prepare` has
    reached it.
    """
    database = Database(url)
    store = Store(database, prepared=False, has_files=has_files)
    try:
        store.prepare()
    except UnreachableDatabaseError as error:
        if not (patient and database.serves_itself):
            database.close()
            raise
        _log.warning("the database does not answer; it is tried again until it does", remedy=error.remedy)
    except BaseException:
        database.close()
        raise
    return store


def migrate(database: Database, *, has_files: Callable[[], bool] = lambda: False) -> None:
    """Upgrade to the newest revision in one transaction. Replicas that start together take turns."""
    config = _config()
    try:
        with database.writing() as connection:
            _require_not_emptied(MigrationContext.configure(connection).get_current_revision(), has_files)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except CommandError:
        raise _foreign() from None
    except StorageError as error:
        if error.__cause__ is None:  # the database answered
            raise
        cause = getattr(error.__cause__, "orig", None) or error.__cause__
        said = (str(cause).splitlines() or [""])[0]
        raise UnreachableDatabaseError(
            f"cannot open the database: {said}", remedy="Check that it runs, its URL and its permissions."
        ) from None


def pending_migration(database: Database, *, has_files: Callable[[], bool] = lambda: False) -> str | None:
    """From which to which revision the tables have still to be brought, or None. Nothing is changed."""
    script = ScriptDirectory.from_config(_config())
    with database.reading() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    _require_not_emptied(current, has_files)
    newest = script.get_current_head()
    if current == newest:
        return None
    if current not in {None, *(revision.revision for revision in script.walk_revisions())}:
        raise _foreign()
    return f"the tables have revision {current}, and this version brings them to {newest} when it starts"


def _require_not_emptied(revision: str | None, has_files: Callable[[], bool]) -> None:
    if revision is None and has_files():
        raise StorageError(
            "the database is empty, and there are files of releases beside it",
            remedy="Restore its backup (docs/operations.md), or correct its URL. A new coordinator takes a new home.",
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return config


def _foreign() -> StorageError:
    return StorageError("the database was written by another version of Commingle", remedy=ANOTHER_VERSION)
