"""Members in the database: invites, parties and their keys, what they left for each other, and who has called."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Row, Select, bindparam, delete, func, insert, select, update

from commingle.coordinator.store.database import Page, Part, as_recorded
from commingle.coordinator.store.tables import invites, keys, ledger_heads, linkage_keys, nonces, parties, tokens
from commingle.shared.documents.dsse import Envelope, VerifyingKey, parse_envelope
from commingle.shared.documents.model import WireModel, decode, encode
from commingle.shared.documents.statements import LedgerHead, RotationRequest, SignedDocument
from commingle.shared.wire import PartyKey, PartyRecord, SealedLinkageKey


@dataclass(frozen=True, slots=True)
class Invite:
    """An invite as stored, without the secret itself."""

    digest: str
    party: str
    created: datetime
    expires: datetime


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A bearer token as stored, without the secret itself."""

    name: str
    digest: str
    scope: str
    created: datetime
    expires: datetime | None
    revoked: datetime | None

    def holds(self, now: datetime) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)


Kept = TypeVar("Kept", Invite, PartyRecord, PartyKey, SealedLinkageKey, TokenRow)
_DOCUMENTS: Mapping[str, Callable[[bytes], WireModel]] = {
    "identity": parse_envelope,
    "departure": parse_envelope,
    "envelope": parse_envelope,
    "rotation": partial(decode, RotationRequest),
}
_PARTY = tuple(parties.c[name] for name in PartyRecord.model_fields)
# what every signed request asks for
_BY_NAME = select(*_PARTY).where(parties.c.name == bindparam("is"))
_BY_KEY = select(*_PARTY).where(parties.c.fingerprint == bindparam("is"))
_BY_INVITE = select(*_PARTY).where(parties.c.invite == bindparam("is"))
_KEY = tuple(keys.c[name] for name in PartyKey.model_fields)
_KEYS = select(*_KEY).where(keys.c.party == bindparam("is")).order_by(keys.c.since)
_DUE_NONCES = delete(nonces).where(nonces.c.forget < bindparam("now"))
_NONCE = select(nonces.c.nonce).where(nonces.c.signer == bindparam("by"), nonces.c.nonce == bindparam("is"))
_SEALED = tuple(linkage_keys.c[name] for name in SealedLinkageKey.model_fields)


class Members(Part):
    def add_invite(self, invite: Invite) -> None:
        self._connection.execute(insert(invites).values(asdict(invite)))

    def invite(self, digest: str) -> Invite | None:
        row = self._connection.execute(select(invites).where(invites.c.digest == digest)).one_or_none()
        return None if row is None else _read(Invite, row)

    def forget_invites(self, before: datetime) -> None:
        used = select(parties.c.invite)
        self._connection.execute(delete(invites).where(invites.c.expires < before, invites.c.digest.not_in(used)))

    def add(self, party: PartyRecord, *, invite: str) -> None:
        """Enrol a party that has used the invite with this digest."""
        self._connection.execute(insert(parties).values(**_stored(party), invite=invite))
        key = PartyKey(fingerprint=party.fingerprint, signing_key=party.signing_key, since=party.enrolled)
        self._add_key(party.name, key)

    def enrol_again(self, party: PartyRecord, *, invite: str) -> None:
        """Enrol a party that left, with the key it left with. Its former invite is forgotten: it works once."""
        own = parties.c.name == party.name
        former = self._connection.execute(select(parties.c.invite).where(own)).scalar_one()
        self._connection.execute(update(parties).where(own).values(**_stored(party), invite=invite))
        self._connection.execute(delete(invites).where(invites.c.digest == former))

    def rotate(self, name: str, key: PartyKey) -> None:
        # the identity is signed with the former key: it says nothing any more
        values = {"signing_key": key.signing_key, "fingerprint": key.fingerprint, "identity": None}
        self._connection.execute(update(parties).where(parties.c.name == name).values(values))
        self._add_key(name, key)

    def set_identity(self, name: str, identity: Envelope, *, sealing_key: str) -> None:
        values = {"identity": _text(identity), "sealing_key": sealing_key}
        self._connection.execute(update(parties).where(parties.c.name == name).values(values))

    def end(self, name: str, at: datetime, *, departure: Envelope | None) -> None:
        values = {"revoked": at, "departure": None if departure is None else _text(departure)}
        self._connection.execute(update(parties).where(parties.c.name == name).values(values))

    def owner_of(self, fingerprint: str) -> str | None:
        query = select(keys.c.party).where(keys.c.fingerprint == fingerprint)
        return self._connection.execute(query).scalar_one_or_none()

    def keys(self, party: str) -> tuple[PartyKey, ...]:
        """All signing keys of a party, the oldest first."""
        return tuple(_read(PartyKey, row) for row in self._connection.execute(_KEYS, {"is": party}))

    def get(self, name: str) -> PartyRecord | None:
        return self._one(_BY_NAME, name)

    def by_key(self, fingerprint: str) -> PartyRecord | None:
        return self._one(_BY_KEY, fingerprint)

    def by_invite(self, digest: str) -> PartyRecord | None:
        return self._one(_BY_INVITE, digest)

    def page(self, *, after: int | None, limit: int) -> Page[PartyRecord]:
        """Parties in the order they enrolled."""
        query = select(parties.c.seq, *_PARTY).where(parties.c.seq > (after or 0)).order_by(parties.c.seq)
        found = self._connection.execute(query.limit(limit + 1)).all()
        items = tuple(map(_party, found[:limit]))
        return Page(items, found[limit - 1].seq if len(found) > limit else None)

    def _add_key(self, party: str, key: PartyKey) -> None:
        self._connection.execute(insert(keys).values(**_stored(key), party=party))

    def _one(self, query: Select[*tuple[Any, ...]], value: str) -> PartyRecord | None:
        row = self._connection.execute(query, {"is": value}).one_or_none()
        return None if row is None else _party(row)


class LinkageKeys(Part):
    def get(self, recipient: str, sender: str) -> SealedLinkageKey | None:
        return next((row for row in self.of(recipient) if row.sender == sender), None)

    def of(self, recipient: str) -> tuple[SealedLinkageKey, ...]:
        query = select(*_SEALED).where(linkage_keys.c.recipient == recipient).order_by(linkage_keys.c.sender)
        return tuple(_read(SealedLinkageKey, row) for row in self._connection.execute(query))

    def put(self, recipient: str, sender: str, created: datetime, envelope: Envelope) -> None:
        same = (linkage_keys.c.recipient == recipient, linkage_keys.c.sender == sender)
        self._connection.execute(delete(linkage_keys).where(*same))
        values = {"recipient": recipient, "sender": sender, "created": created, "envelope": _text(envelope)}
        self._connection.execute(insert(linkage_keys).values(values))

    def forget(self, before: datetime) -> None:
        """Forget keys sealed before then: their recipients have them, or ask for them again."""
        self._connection.execute(delete(linkage_keys).where(linkage_keys.c.created < before))


MOST_HEADS = 1000
"""Heads kept of one member: enough to share one with a backup of months ago."""

_HEADS = (
    select(ledger_heads.c.document)
    .where(ledger_heads.c.party == bindparam("of"))
    .order_by(ledger_heads.c.height.desc())
)
_LAST_KEPT = _HEADS.with_only_columns(ledger_heads.c.height).offset(MOST_HEADS - 1).limit(1)
_own = ledger_heads.alias()
_TOP = select(func.max(_own.c.height)).where(_own.c.party == parties.c.name).correlate(parties).scalar_subquery()
_NEWEST_HEADS = (  # by member, of whom each has up to MOST_HEADS
    select(ledger_heads.c.document)
    .select_from(parties)
    .join(ledger_heads, (ledger_heads.c.party == parties.c.name) & (ledger_heads.c.height == _TOP))
    .order_by(parties.c.name)
)


class WitnessedHeads(Part):
    """How far members' ledgers have come: signed statements."""

    def add(self, head: LedgerHead, signed: SignedDocument) -> None:
        """Keep one more, and the newest `MOST_HEADS` in all."""
        values = {"party": head.party, "height": head.height, "head": head.head, "document": signed.model_dump_json()}
        self._connection.execute(insert(ledger_heads), values)
        last = self._connection.execute(_LAST_KEPT, {"of": head.party}).scalar()
        if last is not None:
            own = ledger_heads.c.party == head.party
            self._connection.execute(delete(ledger_heads).where(own, ledger_heads.c.height < last))

    def history(self, party: str, *, below: int | None, limit: int) -> tuple[SignedDocument, ...]:
        """Heads below a height, the furthest first."""
        query = _HEADS if below is None else _HEADS.where(ledger_heads.c.height < below)
        texts = self._connection.execute(query.limit(limit), {"of": party}).scalars()
        return tuple(decode(SignedDocument, text.encode()) for text in texts)

    def newest_of_each(self) -> tuple[str, ...]:
        """As JSON texts, which the end of a release passes on as they are."""
        return tuple(self._connection.execute(_NEWEST_HEADS).scalars())


class Access(Part):
    def remember(self, signer: str, nonce: str, *, forget: datetime, now: datetime) -> bool:
        """Remember a nonce until `forget`; False if it is remembered already. Forgets what is due."""
        self.forget(now)
        if self._connection.execute(_NONCE, {"by": signer, "is": nonce}).one_or_none() is not None:
            return False
        self._connection.execute(insert(nonces), {"signer": signer, "nonce": nonce, "forget": forget})
        return True

    def forget(self, now: datetime) -> None:
        self._connection.execute(_DUE_NONCES, {"now": now})

    def add_token(self, token: TokenRow) -> None:
        self._connection.execute(insert(tokens).values(asdict(token)))

    def token(self, *, name: str | None = None, digest: str | None = None) -> TokenRow | None:
        which = tokens.c.name == name if digest is None else tokens.c.digest == digest
        row = self._connection.execute(select(tokens).where(which)).one_or_none()
        return None if row is None else _read(TokenRow, row)

    def tokens(self) -> tuple[TokenRow, ...]:
        query = select(tokens).order_by(tokens.c.created, tokens.c.name)
        return tuple(_read(TokenRow, row) for row in self._connection.execute(query))

    def revoke_token(self, name: str, at: datetime) -> None:
        self._connection.execute(update(tokens).where(tokens.c.name == name).values(revoked=at))


@as_recorded()
def _read(kind: type[Kept], row: Row[*tuple[Any, ...]]) -> Kept:
    values = row._asdict()
    for name, parse in _DOCUMENTS.items():
        if values.get(name) is not None:
            values[name] = parse(values[name].encode())
    return kind(**values)


@as_recorded()
def _party(row: Row[*tuple[Any, ...]]) -> PartyRecord:
    found = _read(PartyRecord, row)
    if VerifyingKey.from_hex(found.signing_key).fingerprint != found.fingerprint:
        raise ValueError(found.fingerprint)
    return found


def _stored(answer: PartyRecord | PartyKey) -> dict[str, Any]:
    return {name: _text(value) if isinstance(value, WireModel) else value for name, value in answer}


def _text(document: WireModel) -> str:
    return encode(document).decode()
