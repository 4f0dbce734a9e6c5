import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import httpx
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from benchmarks.consortium import Commingle
from commingle.coordinator.errors import StorageError, UnreachableDatabaseError
from commingle.coordinator.store.database import Database, check_url
from commingle.coordinator.store.members import Invite
from commingle.coordinator.store.store import open_store
from commingle.coordinator.store.tables import Moment, metadata
from commingle.shared.runtime.errors import SettingsError
from tests.world.command import Command, eventually
from tests.world.coordinator import Honest, Hub, Parties, problem
from tests.world.documents import START
from tests.world.postgres import own_postgres
from tests.world.waiting import at_once


def test_replicas_that_start_together_migrate_once(database_url: str) -> None:
    for store in at_once(*[lambda: open_store(database_url)] * 4):
        store.close()


def test_database_of_a_newer_version_is_refused(hub: Hub) -> None:
    hub.sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StorageError, match="another version"):
        open_store(hub.url)


def test_unreachable_database_says_why(tmp_path: Path) -> None:
    with pytest.raises(UnreachableDatabaseError, match="unable to open database file"):
        open_store(f"sqlite:///{tmp_path / 'missing' / 'file.sqlite'}", patient=True)
    with pytest.raises(StorageError, match="cannot open the database"):
        open_store(f"postgresql://nobody@/nowhere?host={tmp_path}")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "mysql://host/db",
        "sqlite://",
        "sqlite:///:memory:",
        "postgresql",
        "sqlite:///a\0b",
        "postgresql://user:a%00b@host/db",
        "postgresql://user:secret@host:port/db",
    ],
)
def test_other_databases_are_refused_without_repeating_the_url(url: str) -> None:
    with pytest.raises(SettingsError, match="neither sqlite:///FILE nor postgresql://"):
        Database(url)


def test_postgresql_urls_get_the_driver_in_use() -> None:
    for url in ("postgres://a@h/d", "postgresql://a@h/d", "postgresql+psycopg://a@h/d"):
        assert check_url(url).drivername == "postgresql+psycopg"


def test_sqlite_is_durable_and_checks_references(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'file.sqlite'}")
    with database.reading() as connection:
        found = [
            connection.exec_driver_sql(f"PRAGMA {p}").scalar() for p in ("journal_mode", "synchronous", "foreign_keys")
        ]
    database.close()
    assert found == ["wal", 2, 1]


def test_moments_keep_instants_and_their_order_across_offsets() -> None:
    column, sqlite = Moment(), None
    east = datetime(2026, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    west = datetime(2025, 12, 31, 23, 45, 0, 1, tzinfo=UTC)
    stored = [column.process_bind_param(value, sqlite) for value in (east, west)]  # type: ignore[arg-type] # unused
    assert stored == sorted(stored, key=lambda value: value or 0)
    assert [column.process_result_value(value, sqlite) for value in stored] == [east, west]  # type: ignore[arg-type]


def test_writer_that_waits_too_long_for_another_thread_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commingle.coordinator.store.database.WAIT_SECONDS", 0.05)
    store = open_store(f"sqlite:///{tmp_path / 'db'}")

    def write() -> None:
        with store.write():
            pass

    with store.write(), pytest.raises(StorageError, match=r"^another transaction takes more than 0\.05 seconds$"):
        at_once(write)
    write()  # it goes on
    store.close()


def test_failed_transaction_leaves_nothing(hub: Hub) -> None:
    invite = Invite("0" * 64, "clinic", START, START)

    def fail() -> None:
        with hub.store.write() as tx:
            tx.members.add_invite(invite)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with hub.store.read() as tx:
        assert tx.members.invite("0" * 64) is None


def test_concurrent_approvals_on_replicas_are_all_recorded(
    hub: Hub, open_hub: Callable[[], Hub], parties: Parties
) -> None:
    replica = open_hub()
    proposals = [hub.proposed(parties, study=f"study {i}") for i in range(6)]

    def approve(at: Hub, party: Honest) -> None:
        for proposed in proposals:
            at.approve(proposed, party.name, party.approval(proposed))

    at_once(partial(approve, hub, parties[0]), partial(approve, replica, parties[1]))
    assert [hub.state(proposed) for proposed in proposals] == ["approved"] * 6
    seqs = [item["seq"] for item in hub.http.get("/v1/events").json()["items"]]
    assert seqs == list(range(3, 21))  # the first two are the members' enrolments


def test_race_of_two_uploads_records_one(hub: Hub, open_hub: Callable[[], Hub], parties: Parties) -> None:
    replica = open_hub()
    proposed = hub.approved(parties)
    blocks = [hub.block(proposed, parties[0]) for _ in range(2)]
    uploads = [partial(at.upload, proposed, "clinic", block) for at, block in zip((hub, replica), blocks, strict=True)]
    codes = [answer.status_code for answer in at_once(*uploads)]
    assert sorted(codes) == [201, 409]
    assert hub.kinds(proposed).count("block") == 1


def test_migrations_make_the_tables_of_this_version_and_a_second_start_finds_nothing_to_do(database_url: str) -> None:
    for _ in range(2):
        open_store(database_url).close()
        database = Database(database_url)
        with database.reading() as connection:
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        database.close()


@pytest.mark.slow
def test_coordinator_waits_for_its_database_and_says_so(command: Command, tmp_path: Path) -> None:
    with own_postgres() as postgres:
        postgres.stop()
        (tmp_path / "url").write_text(postgres.url)
        command.json("init", "--home", tmp_path / "hub", "--database-url-file", tmp_path / "url")
        serve = ("coordinator", "serve", "--home", tmp_path / "hub")
        with Commingle().serving(*serve, log=subprocess.PIPE) as (process, said):
            with httpx.Client(base_url=said["url"], timeout=60) as http:
                assert http.get("/healthz").status_code == 200
                for path in ("/readyz", "/v1/parties"):
                    assert problem(http.get(path)) == (503, "storage")
                assert "commingle_coordinator_database_up 0.0" in http.get("/metrics").text
                assert "cannot open the database" in command.refused(
                    "invite", "--home", tmp_path / "hub", "--party", "clinic"
                )
                postgres.start()
                eventually(lambda: http.get("/readyz").status_code == 200, what="not ready", seconds=60)
                assert http.get("/v1/parties").json() == {"items": [], "next": None}
                command.json("invite", "--home", tmp_path / "hub", "--party", "clinic")
                postgres.stop()
                assert problem(http.get("/readyz")) == (503, "storage")
                postgres.start()
                eventually(lambda: http.get("/readyz").status_code == 200, what="not ready", seconds=60)
            process.terminate()
            assert process.stderr is not None
            log = process.stderr.read()
        assert process.returncode in {0, -signal.SIGTERM}
        assert "it is tried again until it does" in log
        assert "publisher works again" in log
        assert postgres.url not in log


def test_full_disk_and_a_database_that_another_program_holds_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commingle.coordinator.store.database.WAIT_SECONDS", 0.05)
    file = tmp_path / "some.sqlite"
    with closing(Database(f"sqlite:///{file}")) as database:
        with database.writing() as connection:
            connection.exec_driver_sql("CREATE TABLE rows (body BLOB)")

        def fill() -> None:
            with database.writing() as connection:
                connection.exec_driver_sql("PRAGMA max_page_count = 3")
                connection.exec_driver_sql("INSERT INTO rows VALUES (zeroblob(100000))")

        with pytest.raises(StorageError, match=r"^the disk of the database is full$") as full:
            fill()
        assert "frees space" in full.value.remedy
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageError, match=r"^another program holds the database$"), database.writing():
                pass
