"""The exchange of moments releases: deals, masks, countersignatures."""  # noqa: INP001 - Alembic loads this file by path

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add columns and the table of sealed packages."""
    op.add_column("releases", sa.Column("deal", sa.Text()))
    op.add_column("shares", sa.Column("mask", sa.Text()))
    op.add_column("shares", sa.Column("countersignature", sa.Text()))
    op.create_table(
        "packages",
        sa.Column("release", sa.String(64), nullable=False),
        sa.Column("party", sa.String(80), nullable=False),
        sa.Column("package", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("release", "party", name="pk_packages"),
        sa.ForeignKeyConstraint(["release"], ["releases.id"], name="fk_packages_release"),
    )
