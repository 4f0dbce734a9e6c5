"""Invites and parties in the database."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from commingle.coordinator.store.rows import Invite, KeyRow, Page, PartyRow
from commingle.coordinator.store.tables import invites, keys, parties

_COLUMNS = (
    parties.c.name,
    parties.c.signing_key,
    parties.c.sealing_key,
    parties.c.fingerprint,
    parties.c.invite,
    parties.c.enrolled,
    parties.c.revoked,
    parties.c.identity,
)


class Members:
    """Invites and parties, within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add_invite(self, invite: Invite) -> None:
        """Remember an invite."""
        self._connection.execute(
            insert(invites).values(
                digest=invite.digest, party=invite.party, created=invite.created, expires=invite.expires
            )
        )

    def invite(self, digest: str) -> Invite | None:
        """The invite whose secret has this digest."""
        row = self._connection.execute(select(invites).where(invites.c.digest == digest)).one_or_none()
        return None if row is None else Invite(*row)

    def add(self, party: PartyRow) -> None:
        """Enrol a party."""
        self._connection.execute(
            insert(parties).values(
                name=party.name,
                signing_key=party.signing_key,
                sealing_key=party.sealing_key,
                fingerprint=party.fingerprint,
                invite=party.invite,
                enrolled=party.enrolled,
            )
        )
        self._add_key(KeyRow(party.fingerprint, party.name, party.signing_key, party.enrolled, None))

    def rotate(self, key: KeyRow) -> None:
        """Give a party another signing key."""
        # the identity is signed with the former key: it says nothing any more
        values = {"signing_key": key.signing_key, "fingerprint": key.fingerprint, "identity": None}
        self._connection.execute(update(parties).where(parties.c.name == key.party).values(values))
        self._add_key(key)

    def set_identity(self, name: str, identity: str, *, sealing_key: str) -> None:
        """Keep a party's signed identity and the sealing key in it."""
        values = {"identity": identity, "sealing_key": sealing_key}
        self._connection.execute(update(parties).where(parties.c.name == name).values(values))

    def revoke(self, name: str, at: datetime) -> None:
        """End a party's membership."""
        self._connection.execute(update(parties).where(parties.c.name == name).values(revoked=at))

    def key(self, fingerprint: str) -> KeyRow | None:
        """The key of that fingerprint, whoever has or had it."""
        row = self._connection.execute(select(keys).where(keys.c.fingerprint == fingerprint)).one_or_none()
        return None if row is None else KeyRow(*row)

    def keys(self, party: str) -> tuple[KeyRow, ...]:
        """All signing keys of a party, the oldest first."""
        query = select(keys).where(keys.c.party == party).order_by(keys.c.since)
        return tuple(KeyRow(*row) for row in self._connection.execute(query))

    def _add_key(self, key: KeyRow) -> None:
        self._connection.execute(insert(keys).values(asdict(key)))

    def named(self, name: str) -> PartyRow | None:
        """The party of that name."""
        return _party(self._connection.execute(select(*_COLUMNS).where(parties.c.name == name)).one_or_none())

    def with_key(self, fingerprint: str) -> PartyRow | None:
        """The party whose signing key has that fingerprint."""
        query = select(*_COLUMNS).where(parties.c.fingerprint == fingerprint)
        return _party(self._connection.execute(query).one_or_none())

    def invited_by(self, digest: str) -> PartyRow | None:
        """The party that has used the invite with this digest."""
        return _party(self._connection.execute(select(*_COLUMNS).where(parties.c.invite == digest)).one_or_none())

    def page(self, *, after: int | None, limit: int) -> Page[PartyRow]:
        """Parties in the order they enrolled."""
        query = select(parties.c.seq, *_COLUMNS).where(parties.c.seq > (after or 0)).order_by(parties.c.seq)
        found = self._connection.execute(query.limit(limit + 1)).all()
        items = tuple(PartyRow(*row[1:]) for row in found[:limit])
        return Page(items, found[limit - 1].seq if len(found) > limit else None)


def _party(row: Row[*tuple[Any, ...]] | None) -> PartyRow | None:
    return None if row is None else PartyRow(*row)
