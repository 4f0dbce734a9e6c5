"""How far members' ledgers have come."""  # noqa: INP001 - Alembic loads this file by path

import sqlalchemy as sa
from alembic import op

revision = "ledger_heads"
down_revision = "first"


def upgrade() -> None:
    """Add what is witnessed."""
    op.create_table(
        "ledger_heads",
        sa.Column("party", sa.String(80), sa.ForeignKey("parties.name"), primary_key=True),
        sa.Column("height", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("head", sa.String(64), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
    )
