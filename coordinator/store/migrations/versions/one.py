"""The first tables. Constraints are named by the convention in `tables.py`."""  # noqa: INP001 - Alembic loads this file by path

import sqlalchemy as sa
from alembic import op

revision = "one"
down_revision = None

_SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MOMENT = sa.BigInteger()
_NAME = sa.String(80)
_DIGEST = sa.String(64)


def upgrade() -> None:
    """Create everything."""
    _create_members()
    _create_access()
    _create_releases()
    op.create_table(
        "events",
        sa.Column("seq", _SEQUENCE, primary_key=True),
        sa.Column("release", _DIGEST, sa.ForeignKey("releases.id"), index=True),
        sa.Column("at", _MOMENT, nullable=False),
        sa.Column("kind", _NAME, nullable=False),
        sa.Column("party", _NAME),
        sa.Column("state", _NAME),
        sa.Column("document", _DIGEST),
        sa.Column("digest", _DIGEST, nullable=False, server_default=""),
    )
    op.create_index("ix_events_state", "events", ["state", "at"])


def _create_members() -> None:
    op.create_table(
        "invites",
        sa.Column("digest", _DIGEST, primary_key=True),
        sa.Column("party", _NAME, nullable=False),
        sa.Column("created", _MOMENT, nullable=False),
        sa.Column("expires", _MOMENT, nullable=False),
    )
    op.create_table(
        "parties",
        sa.Column("seq", _SEQUENCE, primary_key=True),
        sa.Column("name", _NAME, nullable=False, unique=True),
        sa.Column("signing_key", _DIGEST, nullable=False),
        sa.Column("sealing_key", _DIGEST, nullable=False),
        sa.Column("fingerprint", _DIGEST, nullable=False, unique=True),
        sa.Column("invite", _DIGEST, sa.ForeignKey("invites.digest"), nullable=False, unique=True),
        sa.Column("enrolled", _MOMENT, nullable=False),
        sa.Column("revoked", _MOMENT),
        sa.Column("identity", sa.Text()),
        sa.Column("departure", sa.Text()),
    )
    op.create_table(
        "party_keys",
        sa.Column("fingerprint", _DIGEST, primary_key=True),
        sa.Column("party", _NAME, sa.ForeignKey("parties.name"), nullable=False, index=True),
        sa.Column("signing_key", _DIGEST, nullable=False),
        sa.Column("since", _MOMENT, nullable=False),
        sa.Column("rotation", sa.Text()),
        sa.Column("published_bytes", sa.BigInteger(), nullable=False, server_default="0"),
    )
    op.create_table(
        "linkage_keys",
        sa.Column("recipient", _NAME, sa.ForeignKey("parties.name"), primary_key=True),
        sa.Column("sender", _NAME, sa.ForeignKey("parties.name"), primary_key=True),
        sa.Column("created", _MOMENT, nullable=False),
        sa.Column("envelope", sa.Text(), nullable=False),
    )
    op.create_table(
        "ledger_heads",
        sa.Column("party", _NAME, sa.ForeignKey("parties.name"), primary_key=True),
        sa.Column("height", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("head", _DIGEST, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
    )


def _create_access() -> None:
    op.create_table(
        "nonces",
        sa.Column("signer", _DIGEST, primary_key=True),
        sa.Column("nonce", _NAME, primary_key=True),
        sa.Column("forget", _MOMENT, nullable=False, index=True),
    )
    op.create_table(
        "tokens",
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("digest", _DIGEST, nullable=False, unique=True),
        sa.Column("scope", _NAME, nullable=False),
        sa.Column("created", _MOMENT, nullable=False),
        sa.Column("expires", _MOMENT),
        sa.Column("revoked", _MOMENT),
    )


def _create_releases() -> None:
    op.create_table(
        "releases",
        sa.Column("seq", _SEQUENCE, primary_key=True),
        sa.Column("id", _DIGEST, nullable=False, unique=True),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("proposer_key", _DIGEST, nullable=False),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("mechanism", _NAME, nullable=False),
        sa.Column("created", _MOMENT, nullable=False),
        sa.Column("expires", _MOMENT, nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("k", sa.BigInteger()),
        sa.Column("epsilon", sa.Double(), nullable=False),
        sa.Column("delta", sa.Double(), nullable=False),
        sa.Column("state", _NAME, nullable=False, index=True),
        sa.Column("reason", sa.Text()),
        sa.Column("manifest", _DIGEST),
        sa.Column("matrix", _DIGEST),
        sa.Column("moments", _DIGEST),
        sa.Column("exchanged_bytes", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("kept_bytes", sa.BigInteger(), nullable=False, server_default="0"),
    )
    op.create_table(
        "shares",
        sa.Column("release", _DIGEST, sa.ForeignKey("releases.id"), primary_key=True),
        sa.Column("party", _NAME, primary_key=True),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("approval", sa.Text()),
        sa.Column("alignment", sa.Text()),
        sa.Column("subjects", sa.BigInteger()),
        sa.Column("alignment_digest", _DIGEST),
        sa.Column("rejection", sa.Text()),
        sa.Column("statement", sa.Text()),
        sa.Column("body", _DIGEST),
        sa.Column("columns", sa.Text()),
        sa.Column("reply", sa.Text()),
    )
    whole = sa.text("spec != ''")
    columns = ["proposer_key", "state"]
    op.create_index("ix_releases_whole", "releases", columns, sqlite_where=whole, postgresql_where=whole)
