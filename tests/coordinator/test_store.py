import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from commingle.coordinator.errors import StorageError
from commingle.coordinator.store.database import Database, check_url
from commingle.coordinator.store.rows import Invite
from commingle.coordinator.store.store import open_store
from commingle.coordinator.store.tables import Moment, metadata
from commingle.shared.runtime.errors import SettingsError
from tests.world.coordinator import Honest, Hub
from tests.world.documents import START


def test_migrations_lead_to_the_tables_the_code_uses(database_url: str) -> None:
    store = open_store(database_url)
    with store._database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    store.close()


def test_replicas_that_start_together_migrate_once(database_url: str) -> None:
    together = threading.Barrier(4)
    faults: list[BaseException] = []

    def start() -> None:
        together.wait()
        try:
            open_store(database_url).close()
        except BaseException as error:  # noqa: BLE001 - collected for the assertion
            faults.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_database_of_a_newer_version_is_refused(database_url: str) -> None:
    store = open_store(database_url)
    with store._database.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    store.close()
    with pytest.raises(StorageError, match="another version"):
        open_store(database_url)


def test_unreachable_database_says_why(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="unable to open database file"):
        open_store(f"sqlite:///{tmp_path / 'missing' / 'file.sqlite'}")
    with pytest.raises(StorageError, match="cannot open the database"):
        open_store(f"postgresql://nobody@/nowhere?host={tmp_path}")


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://host/db", "sqlite://", "sqlite:///:memory:", "postgresql"])
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
    monkeypatch.setattr("commingle.coordinator.store.database._WAIT_SECONDS", 0.05)
    store, refusals = open_store(f"sqlite:///{tmp_path / 'db'}"), list[StorageError]()

    def write() -> None:
        try:
            with store.write():
                pass
        except StorageError as error:
            refusals.append(error)

    with store.write():
        other = threading.Thread(target=write)
        other.start()
        other.join()
    assert [str(error) for error in refusals] == ["another transaction takes more than 0.05 seconds"]
    write()
    assert len(refusals) == 1, "it goes on"
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


def test_concurrent_approvals_on_replicas_are_all_recorded(open_hub: Callable[[], Hub]) -> None:
    hub, replica = open_hub(), open_hub()
    parties: tuple[Honest, Honest] = hub.enrolled("clinic"), hub.enrolled("registry")
    proposals = [hub.proposed(parties, study=f"study {i}") for i in range(6)]
    together = threading.Barrier(2)

    def approve(at: Hub, party: Honest) -> None:
        together.wait()
        for proposed in proposals:
            at.approve(proposed, party.name, party.approval(proposed))

    threads = [threading.Thread(target=approve, args=pair) for pair in zip((hub, replica), parties, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [hub.state(proposed) for proposed in proposals] == ["approved"] * 6
    seqs = [item["seq"] for item in hub.http.get("/v1/events").json()["items"]]
    assert seqs == list(range(3, 21))  # the first two are the members' enrolments


def test_race_of_two_uploads_records_one(open_hub: Callable[[], Hub]) -> None:
    hub, replica = open_hub(), open_hub()
    parties: tuple[Honest, Honest] = hub.enrolled("clinic"), hub.enrolled("registry")
    proposed = hub.approved(parties)
    blocks = [hub.block(proposed, parties[0]) for _ in range(2)]
    together = threading.Barrier(2)
    codes: list[int] = []

    def upload(at: Hub, which: int) -> None:
        together.wait()
        codes.append(at.upload(proposed, "clinic", blocks[which]).status_code)

    threads = [threading.Thread(target=upload, args=pair) for pair in ((hub, 0), (replica, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [201, 409]
    assert hub.kinds(proposed).count("block") == 1


@pytest.mark.parametrize("url", ["sqlite:///a\0b", "postgresql://user:a%00b@host/db"])
def test_nul_in_a_database_url_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="database URL"):
        check_url(url)
