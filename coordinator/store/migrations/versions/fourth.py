"""Enrolments, rotations and revocations in the chain of events."""  # noqa: INP001 - Alembic loads this file by path

import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def upgrade() -> None:
    """Events need no release any more; what is known of memberships so far is appended, with the time it happened."""
    with op.batch_alter_table("events") as events:
        events.alter_column("release", existing_type=sa.String(64), nullable=True)
        events.alter_column("state", existing_type=sa.String(80), nullable=True)
    _append_memberships(op.get_bind())


def _append_memberships(connection: sa.Connection) -> None:
    keys = sa.table("party_keys", *map(sa.column, ("fingerprint", "party", "since", "rotation")))
    parties = sa.table("parties", *map(sa.column, ("name", "fingerprint", "revoked")))
    events = sa.table("events", *map(sa.column, ("seq", "at", "kind", "party", "document", "digest")))
    known = [
        (row.since, 0 if row.rotation is None else 1, row.party, row.fingerprint)
        for row in connection.execute(sa.select(keys))
    ]
    ended = sa.select(parties).where(parties.c.revoked.is_not(None))
    known += [(row.revoked, 2, row.name, row.fingerprint) for row in connection.execute(ended)]
    newest = sa.select(events.c.digest).order_by(events.c.seq.desc()).limit(1)
    previous = connection.execute(newest).scalar() or "0" * 64
    for at, which, party, key in sorted(known):
        kind = ("enrolment", "rotation", "revocation")[which]
        fields = {
            "previous": previous,
            "release": None,
            "at": (_EPOCH + timedelta(microseconds=at)).isoformat(),
            "kind": kind,
            "party": party,
            "state": None,
            "document": key,
        }
        previous = sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
        values = {"at": at, "kind": kind, "party": party, "document": key, "digest": previous}
        connection.execute(sa.insert(events).values(values))
