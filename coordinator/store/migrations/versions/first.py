"""The first tables: invites, parties, releases, shares, events."""  # noqa: INP001 - Alembic loads this file by path

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create everything."""
    op.create_table(
        "invites",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("party", sa.String(80), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_invites"),
    )
    op.create_table(
        "parties",
        sa.Column("seq", _SEQUENCE, nullable=False),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("signing_key", sa.String(64), nullable=False),
        sa.Column("sealing_key", sa.String(64), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("invite", sa.String(64), nullable=False),
        sa.Column("enrolled", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_parties"),
        sa.UniqueConstraint("name", name="uq_parties_name"),
        sa.UniqueConstraint("fingerprint", name="uq_parties_fingerprint"),
        sa.UniqueConstraint("invite", name="uq_parties_invite"),
        sa.ForeignKeyConstraint(["invite"], ["invites.digest"], name="fk_parties_invite"),
    )
    _create_releases()
    op.create_table(
        "events",
        sa.Column("seq", _SEQUENCE, nullable=False),
        sa.Column("release", sa.String(64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(80), nullable=False),
        sa.Column("party", sa.String(80)),
        sa.Column("state", sa.String(80), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_events"),
        sa.ForeignKeyConstraint(["release"], ["releases.id"], name="fk_events_release"),
    )
    op.create_index("ix_events_release", "events", ["release"])


def _create_releases() -> None:
    op.create_table(
        "releases",
        sa.Column("seq", _SEQUENCE, nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("proposer_key", sa.String(64), nullable=False),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("mechanism", sa.String(80), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger(), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("k", sa.BigInteger()),
        sa.Column("epsilon", sa.Double(), nullable=False),
        sa.Column("delta", sa.Double(), nullable=False),
        sa.Column("state", sa.String(80), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("manifest", sa.String(64)),
        sa.Column("matrix", sa.String(64)),
        sa.Column("moments", sa.String(64)),
        sa.PrimaryKeyConstraint("seq", name="pk_releases"),
        sa.UniqueConstraint("id", name="uq_releases_id"),
    )
    op.create_index("ix_releases_state", "releases", ["state"])
    op.create_table(
        "shares",
        sa.Column("release", sa.String(64), nullable=False),
        sa.Column("party", sa.String(80), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("approval", sa.Text()),
        sa.Column("alignment", sa.Text()),
        sa.Column("subjects", sa.BigInteger()),
        sa.Column("alignment_digest", sa.String(64)),
        sa.Column("rejection", sa.Text()),
        sa.Column("statement", sa.Text()),
        sa.Column("body", sa.String(64)),
        sa.PrimaryKeyConstraint("release", "party", name="pk_shares"),
        sa.ForeignKeyConstraint(["release"], ["releases.id"], name="fk_shares_release"),
    )
