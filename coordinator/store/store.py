"""The coordinator's database as one object, brought up to date: transactions of members, releases and events."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from threading import Event, Thread
from typing import Any

import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import ColumnElement, Connection, RowMapping, and_, bindparam, exists, func, insert, not_, or_, select

from commingle.coordinator.errors import DamagedDatabaseError, StorageError, UnreachableDatabaseError
from commingle.coordinator.store.database import Database, Part, as_recorded
from commingle.coordinator.store.members import Access, LinkageKeys, Members, WitnessedHeads
from commingle.coordinator.store.releases import Releases
from commingle.coordinator.store.tables import events, shares
from commingle.shared.release.audit import event_body
from commingle.shared.release.charge import GENESIS, link_digest
from commingle.shared.release.rounds import State
from commingle.shared.runtime import faults
from commingle.shared.runtime.errors import ANOTHER_VERSION
from commingle.shared.wire import ReleaseEvent

_ONE_AFTER_THE_OTHER = ("approval", "columns", "reply", "block")
_HASHED = ("release", "at", "kind", "party", "state", "document")
_others = shares.alias()


def _body(event: RowMapping | dict[str, Any], previous: str) -> str:
    return event_body(previous=previous, **{name: event[name] for name in _HASHED})


def _sent_by_all(kind: str) -> ColumnElement[bool]:
    missing = exists().where(_others.c.release == events.c.release, _others.c[kind].is_(None))
    return and_(events.c.kind == kind, not_(missing))


_IS_STEP = or_(
    events.c.kind.not_in(_ONE_AFTER_THE_OTHER),
    and_(events.c.kind == "approval", events.c.state != State.PROPOSED),
    _sent_by_all("columns"),
    _sent_by_all("reply"),
)
"""After it something can be due of every party, not of those only that have not done yet what others did."""

_NEWEST = select(events.c.digest).order_by(events.c.seq.desc()).limit(1)
_LAST = select(events.c.seq).where(events.c.release.is_not(None)).order_by(events.c.seq.desc()).limit(1)
_STEP = (
    select(events.c.release, func.max(events.c.seq).label("seq"))
    .where(events.c.seq > bindparam("after"), events.c.seq <= bindparam("last"), _IS_STEP)
    .group_by(events.c.release)
    .subquery()
)
_STEPS = select(_STEP, shares.c.party).join(shares, shares.c.release == _STEP.c.release).order_by(_STEP.c.seq)
_NEWEST_STEPS = (
    select(shares.c.party, func.max(events.c.seq))
    .join(events, shares.c.release == events.c.release)
    .where(events.c.seq > bindparam("after"), _IS_STEP)
    .group_by(shares.c.party)
)


_SINCE = select(events.c.release, events.c.seq).where(events.c.seq > bindparam("after")).order_by(events.c.seq)
"""Not grouped by release: SQLite would go through all events in the order of releases."""


@dataclass(frozen=True, slots=True)
class Step:
    """An event of a release after which something can be due of every party, and these parties."""

    release: str
    seq: int
    parties: frozenset[str]


class Events(Part):
    """The history, each event chained to the one before.

    Attributes:
        added: whether this transaction recorded one.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.added = False

    def add(
        self,
        *,
        release: str | None,
        at: datetime,
        kind: str,
        party: str | None = None,
        state: State | None = None,
        document: str | None = None,
    ) -> None:
        """Append an event; `document` is the digest of what was recorded with it. There is one writer at a time."""
        self.added = True
        values = {"release": release, "at": at, "kind": kind, "party": party, "state": state, "document": document}
        body = _body(values, self._connection.execute(_NEWEST).scalar() or GENESIS)
        self._connection.execute(insert(events), values | {"digest": link_digest(body)})

    def add_membership(self, *, at: datetime, kind: str, party: str, key: str) -> None:
        """Append that a membership began, changed its key or ended, with the key's fingerprint."""
        self.add(release=None, at=at, kind=kind, party=party, document=key)

    def chain(self) -> tuple[tuple[str, ...], str]:
        """The text of every event, the oldest first, and the newest digest.

        Raises StorageError: an event was altered, removed or put in.
        """
        bodies, previous = [], GENESIS
        for row in self._connection.execute(select(events).order_by(events.c.seq)).mappings():
            body = _body(row, previous)
            previous = link_digest(body)
            if row["digest"] != previous:
                raise StorageError(
                    f"event {row['seq']} does not fit the chain of events",
                    remedy="Somebody has changed the database. Restore its backup and compare it with earlier exports.",
                )
            bodies.append(body)
        return tuple(bodies), previous

    def memberships(self) -> tuple[tuple[datetime, str, str, str], ...]:
        """Every change of a membership, the oldest first: its time, kind, party and key."""
        query = select(events.c.at, events.c.kind, events.c.party, events.c.document).where(events.c.release.is_(None))
        rows = self._connection.execute(query.order_by(events.c.seq))
        return tuple((row.at, row.kind, row.party, row.document) for row in rows)

    @as_recorded()
    def after(self, seq: int, *, limit: int, release: str | None = None) -> tuple[ReleaseEvent, ...]:
        query = select(events).where(events.c.seq > seq, events.c.release.is_not(None))
        if release is not None:
            query = query.where(events.c.release == release)
        rows = self._connection.execute(query.order_by(events.c.seq).limit(limit)).mappings()
        return tuple(ReleaseEvent.model_validate({**row, "state": State(row["state"])}) for row in rows)

    def steps(self, *, after: int, last: int) -> tuple[Step, ...]:
        """The newest step of each release that took one between two events, the oldest first."""
        rows = self._connection.execute(_STEPS, {"after": after, "last": last})
        steps = groupby(rows, key=lambda row: (row.release, row.seq))
        return tuple(Step(release, seq, frozenset(row.party for row in group)) for (release, seq), group in steps)

    def newest_steps(self, after: int) -> dict[str, int]:
        """The newest event after one with which a release of a party took a step, by party."""
        return {row[0]: row[1] for row in self._connection.execute(_NEWEST_STEPS, {"after": after})}

    def newest_of_releases(self, after: int) -> dict[str, int]:
        found = self._connection.execute(_SINCE, {"after": after})
        return {release: seq for release, seq in found if release is not None}

    def last(self) -> int:
        """Number of the newest event about a release; 0 if there is none."""
        return self._connection.execute(_LAST).scalar() or 0


_MIGRATIONS = Path(__file__).parent / "migrations"
_AWAY_SECONDS = 5.0
_log = structlog.get_logger()


class Transaction:
    def __init__(self, connection: Connection) -> None:
        self.access = Access(connection)
        self.members = Members(connection)
        self.releases = Releases(connection)
        self.events = Events(connection)
        self.linkage = LinkageKeys(connection)
        self.heads = WitnessedHeads(connection)


class Store:
    """Transactions over one database. Use `open_store`.

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

    If it `has_files`, an empty database is refused: the files belong to another, and it would have them removed.

    If `patient`, a database server that does not answer yet is no fault: everything is refused until `prepare` has
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
            current = MigrationContext.configure(connection).get_current_revision()
            _require_not_emptied(current, has_files)
            if current != _newest_revision():
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
    except CommandError:
        raise _foreign() from None
    except StorageError as error:
        if error.__cause__ is None or isinstance(error, DamagedDatabaseError):  # the database answered
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


@cache
def _newest_revision() -> str | None:
    return ScriptDirectory.from_config(_config()).get_current_head()


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
