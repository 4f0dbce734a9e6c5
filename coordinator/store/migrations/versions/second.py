"""Trust: revoked members, the history of their keys, nonces of signed requests, bearer tokens."""  # noqa: INP001 - Alembic loads this file by path

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables; the keys enrolled so far begin the history."""
    op.add_column("parties", sa.Column("revoked", sa.BigInteger()))
    op.create_table(
        "party_keys",
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("party", sa.String(80), nullable=False),
        sa.Column("signing_key", sa.String(64), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("rotation", sa.Text()),
        sa.PrimaryKeyConstraint("fingerprint", name="pk_party_keys"),
        sa.ForeignKeyConstraint(["party"], ["parties.name"], name="fk_party_keys_party"),
    )
    op.create_index("ix_party_keys_party", "party_keys", ["party"])
    op.execute(
        "INSERT INTO party_keys (fingerprint, party, signing_key, since) "
        "SELECT fingerprint, name, signing_key, enrolled FROM parties"
    )
    op.create_table(
        "nonces",
        sa.Column("signer", sa.String(64), nullable=False),
        sa.Column("nonce", sa.String(80), nullable=False),
        sa.Column("forget", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("signer", "nonce", name="pk_nonces"),
    )
    op.create_index("ix_nonces_forget", "nonces", ["forget"])
    op.create_table(
        "tokens",
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scope", sa.String(80), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.BigInteger()),
        sa.Column("revoked", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name", name="pk_tokens"),
        sa.UniqueConstraint("digest", name="uq_tokens_digest"),
    )
