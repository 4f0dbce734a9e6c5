"""The first tables: those of `tables.py`, while nothing has been migrated. Before a second revision, write them out."""  # noqa: INP001 - Alembic loads this file by path

from alembic import op

from commingle.coordinator.store.tables import metadata

revision = "one"
down_revision = None


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
