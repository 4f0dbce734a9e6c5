"""Alembic runs this file on the connection that `coordinator.store.store` hands over."""  # noqa: INP001 - loaded by path

from alembic import context
from sqlalchemy import inspect, text

from commingle.coordinator.store.tables import metadata

connection = context.config.attributes["connection"]
if inspect(connection).has_table("alembic_version"):  # "heads" is Alembic's own word, and was a revision of ours once
    connection.execute(text("UPDATE alembic_version SET version_num = 'ledger_heads' WHERE version_num = 'heads'"))
context.configure(connection=connection, target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
