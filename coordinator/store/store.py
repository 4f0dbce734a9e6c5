"""The coordinator's memory as one object: transactions that offer access, members, releases and events."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection

from coordinator.store.access import Access
from coordinator.store.database import Database
from coordinator.store.events import Events
from coordinator.store.linkage import LinkageKeys
from coordinator.store.members import Members
from coordinator.store.migrate import migrate
from coordinator.store.releases import Releases
from shared.runtime import faults


@dataclass(frozen=True, slots=True)
class Transaction:
    """What can be read and, in a writing transaction, written."""

    access: Access
    members: Members
    releases: Releases
    events: Events
    linkage: LinkageKeys


class Store:
    """The memory over one database. Use `open_store`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A consistent view. Raises StorageError."""
        with self._database.reading() as connection:
            yield _transaction(connection)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """One transaction, alone in writing; undone on any exception. Raises StorageError."""
        with self._database.writing() as connection:
            yield _transaction(connection)
            faults.reach("coordinator.committing")

    def close(self) -> None:
        """Give every connection back."""
        self._database.close()


def open_store(url: str) -> Store:
    """Connect, and bring the tables up to date.

    Raises:
        SettingsError: not a URL this coordinator knows.
        StorageError: the database cannot be reached, or was written by a newer version.
    """
    database = Database(url)
    try:
        migrate(database)
    except BaseException:
        database.close()
        raise
    return Store(database)


def _transaction(connection: Connection) -> Transaction:
    return Transaction(
        Access(connection), Members(connection), Releases(connection), Events(connection), LinkageKeys(connection)
    )
