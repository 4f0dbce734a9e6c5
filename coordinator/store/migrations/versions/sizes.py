"""How much releases take."""  # noqa: INP001 - Alembic loads this file by path

import sqlalchemy as sa
from alembic import op

revision = "sizes"
down_revision = "exchange"


def upgrade() -> None:
    """Bytes of each release, by its spec; those that are there already count as nothing."""
    for name in ("exchanged_bytes", "kept_bytes"):
        op.add_column("releases", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index(op.f("ix_releases_proposer_key"), "releases", ["proposer_key"])
