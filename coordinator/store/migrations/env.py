"""Alembic runs this file on the connection that `coordinator.store.store` hands over."""  # noqa: INP001 - loaded by path

from alembic import context

from commingle.coordinator.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
