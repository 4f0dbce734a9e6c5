"""The tables, as the newest migration leaves them."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    literal_column,
)
from sqlalchemy.engine import Dialect

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NAME = 80
_DIGEST = 64


class Moment(TypeDecorator[datetime]):
    """An aware datetime as whole microseconds since 1970: exact and ordered alike in both databases."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:  # noqa: ARG002 - SQLAlchemy's signature
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - as above
        return None if value is None else _EPOCH + value * _MICROSECOND


# SQLite numbers rows by itself only in a column of its own INTEGER type
Sequence = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

invites = Table(
    "invites",
    metadata,
    Column("digest", String(_DIGEST), primary_key=True),
    Column("party", String(_NAME), nullable=False),
    Column("created", Moment, nullable=False),
    Column("expires", Moment, nullable=False),
)

parties = Table(
    "parties",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("name", String(_NAME), nullable=False, unique=True),
    Column("signing_key", String(_DIGEST), nullable=False),
    Column("sealing_key", String(_DIGEST), nullable=False),
    Column("fingerprint", String(_DIGEST), nullable=False, unique=True),
    Column("invite", ForeignKey("invites.digest"), nullable=False, unique=True),
    Column("enrolled", Moment, nullable=False),
    Column("revoked", Moment),
    Column("identity", Text),
    Column("departure", Text),
)

linkage_keys = Table(
    "linkage_keys",
    metadata,
    Column("recipient", ForeignKey("parties.name"), primary_key=True),
    Column("sender", ForeignKey("parties.name"), primary_key=True),
    Column("created", Moment, nullable=False),
    Column("envelope", Text, nullable=False),
)

ledger_heads = Table(
    "ledger_heads",
    metadata,
    Column("party", ForeignKey("parties.name"), primary_key=True),
    Column("height", BigInteger, primary_key=True, autoincrement=False),
    Column("head", String(_DIGEST), nullable=False),
    Column("document", Text, nullable=False),
)

keys = Table(
    "party_keys",
    metadata,
    Column("fingerprint", String(_DIGEST), primary_key=True),
    Column("party", ForeignKey("parties.name"), nullable=False, index=True),
    Column("signing_key", String(_DIGEST), nullable=False),
    Column("since", Moment, nullable=False),
    Column("rotation", Text),
    Column("published_bytes", BigInteger, nullable=False, server_default="0"),  # that releases proposed with it keep
)

nonces = Table(
    "nonces",
    metadata,
    Column("signer", String(_DIGEST), primary_key=True),
    Column("nonce", String(_NAME), primary_key=True),
    Column("forget", Moment, nullable=False, index=True),
)

tokens = Table(
    "tokens",
    metadata,
    Column("name", String(_NAME), primary_key=True),
    Column("digest", String(_DIGEST), nullable=False, unique=True),
    Column("scope", String(_NAME), nullable=False),
    Column("created", Moment, nullable=False),
    Column("expires", Moment),
    Column("revoked", Moment),
)

releases = Table(
    "releases",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("id", String(_DIGEST), nullable=False, unique=True),
    Column("spec", Text, nullable=False),
    Column("proposer_key", String(_DIGEST), nullable=False),
    Column("study", Text, nullable=False),
    Column("mechanism", String(_NAME), nullable=False),
    Column("created", Moment, nullable=False),
    Column("expires", Moment, nullable=False),
    Column("n", BigInteger, nullable=False),
    Column("k", BigInteger),
    Column("epsilon", Double, nullable=False),
    Column("delta", Double, nullable=False),
    Column("state", String(_NAME), nullable=False, index=True),
    Column("reason", Text),
    Column("manifest", String(_DIGEST)),
    Column("matrix", String(_DIGEST)),
    Column("moments", String(_DIGEST)),
    Column("exchanged_bytes", BigInteger, nullable=False, server_default="0"),
    Column("kept_bytes", BigInteger, nullable=False, server_default="0"),
)
IS_WHOLE = releases.c.spec != literal_column("''")
"""Its documents are not dropped. A literal, by which databases see that the index below serves."""
Index("ix_releases_whole", releases.c.proposer_key, releases.c.state, sqlite_where=IS_WHOLE, postgresql_where=IS_WHOLE)

shares = Table(
    "shares",
    metadata,
    Column("release", ForeignKey("releases.id"), primary_key=True),
    Column("party", String(_NAME), primary_key=True),
    Column("position", Integer, nullable=False),
    Column("approval", Text),
    Column("alignment", Text),
    Column("subjects", BigInteger),
    Column("alignment_digest", String(_DIGEST)),
    Column("rejection", Text),
    Column("statement", Text, key="block"),
    Column("body", String(_DIGEST)),
    Column("columns", Text),
    Column("reply", Text),
)

events = Table(
    "events",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("release", ForeignKey("releases.id"), index=True),  # none: the event is about a membership
    Column("at", Moment, nullable=False),
    Column("kind", String(_NAME), nullable=False),
    Column("party", String(_NAME)),
    Column("state", String(_NAME)),
    Column("document", String(_DIGEST)),
    Column("digest", String(_DIGEST), nullable=False, server_default=""),
)
Index("ix_events_state", events.c.state, events.c.at)
