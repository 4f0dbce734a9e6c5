"""Exchanges without a dealer."""  # noqa: INP001 - Alembic loads this file by path

import sqlalchemy as sa
from alembic import op

revision = "exchange"
down_revision = "ledger_heads"


def upgrade() -> None:
    """Add what parties sign now, and drop what they signed: events keep its digests."""
    op.drop_table("packages")
    op.drop_column("releases", "deal")
    for name in ("mask", "countersignature"):
        op.drop_column("shares", name)
    for name in ("columns", "reply"):
        op.add_column("shares", sa.Column(name, sa.Text()))
