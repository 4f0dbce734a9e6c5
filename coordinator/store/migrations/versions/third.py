"""The chain of events, parties' signed identities, and sealed linkage keys."""  # noqa: INP001 - Alembic loads this file by path

import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def upgrade() -> None:
    """Add columns and the table; events recorded so far are chained in their order."""
    op.add_column("events", sa.Column("document", sa.String(64)))
    op.add_column("events", sa.Column("digest", sa.String(64), nullable=False, server_default=""))
    _chain_events(op.get_bind())
    op.add_column("parties", sa.Column("identity", sa.Text()))
    op.create_table(
        "linkage_keys",
        sa.Column("recipient", sa.String(80), nullable=False),
        sa.Column("sender", sa.String(80), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("envelope", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("recipient", "sender", name="pk_linkage_keys"),
        sa.ForeignKeyConstraint(["recipient"], ["parties.name"], name="fk_linkage_keys_recipient"),
        sa.ForeignKeyConstraint(["sender"], ["parties.name"], name="fk_linkage_keys_sender"),
    )


def _chain_events(connection: sa.Connection) -> None:
    events = sa.table("events", *map(sa.column, ("seq", "release", "at", "kind", "party", "state", "digest")))
    previous = "0" * 64
    for row in connection.execute(sa.select(events).order_by(events.c.seq)).all():
        fields = {
            "previous": previous,
            "release": row.release,
            "at": (_EPOCH + timedelta(microseconds=row.at)).isoformat(),
            "kind": row.kind,
            "party": row.party,
            "state": row.state,
            "document": None,
        }
        previous = sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
        connection.execute(sa.update(events).where(events.c.seq == row.seq).values(digest=previous))
