"""The tables that migrations make are those that this version reads and writes."""

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from commingle.coordinator.store.store import open_store
from commingle.coordinator.store.tables import metadata


def test_migrations_make_the_tables_of_this_version_and_a_second_start_finds_nothing_to_do(database_url: str) -> None:
    for _ in range(2):
        store = open_store(database_url)
        with store._database.reading() as connection:
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        store.close()
