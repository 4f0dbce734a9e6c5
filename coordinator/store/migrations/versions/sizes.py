"""How much releases take."""  # noqa: INP001 - Alembic loads this file by path

import sqlalchemy as sa
from alembic import op

revision = "sizes"
down_revision = "exchange"


def upgrade() -> None:
    """Bytes of each release, by its spec; those that are there already count as nothing."""
    for name in ("exchanged_bytes", "kept_bytes"):
        op.add_column("releases", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("party_keys", sa.Column("published_bytes", sa.BigInteger(), nullable=False, server_default="0"))
    whole = sa.text("spec != ''")
    columns = ["proposer_key", "state"]
    op.create_index("ix_releases_whole", "releases", columns, sqlite_where=whole, postgresql_where=whole)
    op.create_index("ix_events_state", "events", ["state", "at"])
