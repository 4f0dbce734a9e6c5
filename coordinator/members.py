"""Members: invites, enrolment, replaced keys, the end of a membership, what members tell each other; and tokens.

The coordinator checks the signatures of linkage keys; it cannot open the boxes. It witnesses how far members' ledgers
have come, so that nobody sets one back unnoticed: it takes only what follows the newest head, and keeps the last
thousand of each member. Any member may carry another's statement: that corrects a coordinator which was restored from a
backup, or which hides what it has.
"""

import re
import secrets
from datetime import datetime, timedelta
from typing import Literal

import structlog

from commingle.coordinator.coordinator import Coordinator, record, require_release
from commingle.coordinator.errors import InviteError, LedgerHeadError, NameTakenError, OtherBytesError, UnknownError
from commingle.coordinator.store.members import Invite, TokenRow
from commingle.coordinator.store.store import Transaction
from commingle.shared.documents.dsse import Envelope, VerifyingKey
from commingle.shared.documents.invitation import INVITE_PREFIX
from commingle.shared.documents.linkage import LinkageKeyMessage, open_identity, open_linkage_key
from commingle.shared.documents.model import decode, text_digest
from commingle.shared.documents.statements import (
    NO_HEAD,
    Enrolment,
    LedgerHead,
    RotationRequest,
    SignedDocument,
    open_departure,
    open_head,
    open_rotation,
)
from commingle.shared.errors import DocumentError, SignatureError
from commingle.shared.release.rounds import Abort, Refused, advance, complete
from commingle.shared.wire import PartyKey, PartyRecord

CoordinatorScope = Literal["read", "operate"]
_TOKEN_PREFIX = "commingle-token.v1"  # noqa: S105 - no secret
_NAME = re.compile("[a-z0-9_.-]{1,63}")
_log = structlog.get_logger()


def invite(coordinator: Coordinator, *, party: str, lifetime: timedelta) -> tuple[str, datetime]:
    """A new invite for one party, and when it expires. Only its digest is kept."""
    now = coordinator.clock()
    text = f"{INVITE_PREFIX}.{coordinator.key.fingerprint}.{secrets.token_urlsafe(32)}"
    with coordinator.store.write() as tx:
        member = tx.members.get(party)
        if member is not None and member.departure is None:
            raise NameTakenError(f"{party} is enrolled already", remedy="Invite under another name.")
        tx.members.add_invite(Invite(text_digest(text), party, now, now + lifetime))
    return text, now + lifetime


def enrol(coordinator: Coordinator, signed: SignedDocument) -> tuple[PartyRecord, bool]:
    """Enrol a party; whether it is new. The same enrolment again changes nothing."""
    document = signed.open(Enrolment).document
    if document.signing_key != signed.signing_key:
        raise SignatureError(
            "the enrolment names another key than the one it is signed with", remedy="Enrol again from the agent."
        )
    digest = text_digest(document.invite)
    party = PartyRecord(
        name=document.name,
        signing_key=document.signing_key,
        sealing_key=document.sealing_key,
        fingerprint=VerifyingKey.from_hex(document.signing_key).fingerprint,
        enrolled=coordinator.clock(),
    )
    with coordinator.store.write() as tx:
        present = tx.members.by_invite(digest)
        if present is not None:
            return _check_same(present, party), False
        _check_invite(tx.members.invite(digest), party)
        enter = tx.members.enrol_again if _has_left(tx, party) else tx.members.add
        enter(party, invite=digest)
        tx.events.add_membership(at=party.enrolled, kind="enrolment", party=party.name, key=party.fingerprint)
    _log.info("enrolled", party=party.name)
    return party, True


def require_party(tx: Transaction, name: str) -> PartyRecord:
    found = tx.members.get(name) if _NAME.fullmatch(name) else None
    if found is None:
        raise UnknownError("there is no such member", remedy="GET /v1/parties lists the members.")
    return found


def rotate(coordinator: Coordinator, party: str, request: RotationRequest) -> tuple[PartyRecord, bool]:
    """Replace a member's signing key; whether it is new. Once it is in place, nothing changes.

    Open releases that name the old key end, except those that only wait for their publication: each of their blocks was
    signed and paid for while the old key was valid.
    """
    now = coordinator.clock()
    with coordinator.store.write() as tx:
        member = require_party(tx, party)
        if request.by_new.signatures[0].keyid == member.fingerprint:
            return member, False
        old = VerifyingKey.from_hex(member.signing_key)
        document = open_rotation(request, party=party, old_key=old).document
        new = VerifyingKey.from_hex(document.new_key)
        if tx.members.owner_of(new.fingerprint) is not None:
            raise NameTakenError("the new key has been in use before", remedy="Rotate to a fresh key.")
        key = PartyKey(fingerprint=new.fingerprint, signing_key=document.new_key, since=now, rotation=request)
        tx.members.rotate(party, key)
        tx.events.add_membership(at=now, kind="rotation", party=party, key=new.fingerprint)
        reason = f"{party} replaced its key {old.fingerprint[:16]} by {new.fingerprint[:16]}; propose it again"
        ended = _end_releases(tx, coordinator, party, reason, complete_too=False)
        member = require_party(tx, party)
    _log.info("key rotated", party=party, key=new.fingerprint, ended=len(ended))
    return member, True


def revoke(coordinator: Coordinator, party: str) -> tuple[str, ...]:
    """End a membership; ids of the open releases that ended with it. What was published stays."""
    with coordinator.store.write() as tx:
        member = require_party(tx, party)
        if member.revoked is not None:
            raise UnknownError(f"{party} is revoked already", remedy="There is nothing to do.")
        now = coordinator.clock()
        tx.members.end(party, now, departure=None)
        tx.events.add_membership(at=now, kind="revocation", party=party, key=member.fingerprint)
        return _end_releases(tx, coordinator, party, f"{party} was revoked", complete_too=True)


def depart(coordinator: Coordinator, party: str, envelope: Envelope) -> PartyRecord:
    """End a membership as the member itself says. Open releases end, except those that only wait for publication."""
    now = coordinator.clock()
    with coordinator.store.write() as tx:
        member = require_party(tx, party)
        if member.revoked is not None:  # by another request at the same time
            return member
        key = VerifyingKey.from_hex(member.signing_key)
        open_departure(envelope, party=party, key=key, coordinator=coordinator.key.fingerprint)
        tx.members.end(party, now, departure=envelope)
        tx.events.add_membership(at=now, kind="departure", party=party, key=member.fingerprint)
        ended = _end_releases(tx, coordinator, party, f"{party} left", complete_too=False)
        member = require_party(tx, party)
    _log.info("left", party=party, ended=len(ended))
    return member


def _check_same(present: PartyRecord, party: PartyRecord) -> PartyRecord:
    identity = (present.name, present.signing_key, present.sealing_key)
    if identity != (party.name, party.signing_key, party.sealing_key) or present.departure is not None:
        raise InviteError("this invite has been used", remedy="Ask the coordinator's operator for another.")
    return present


def _check_invite(found: Invite | None, party: PartyRecord) -> None:
    remedy = "Ask the coordinator's operator for an invite in this member's name."
    if found is None:
        raise InviteError("this coordinator did not issue that invite", remedy=remedy)
    if found.party != party.name:
        raise InviteError("the invite is for another member", remedy=remedy)
    if party.enrolled >= found.expires:
        raise InviteError("the invite has expired", remedy=remedy)


def _has_left(tx: Transaction, party: PartyRecord) -> bool:
    present = tx.members.get(party.name)
    if present is not None and present.departure is not None and present.fingerprint == party.fingerprint:
        return True
    if present is not None:
        raise NameTakenError(f"{party.name} is enrolled with other keys", remedy="Enrol under another name.")
    if tx.members.owner_of(party.fingerprint) is not None:
        raise NameTakenError("this key is enrolled under another name", remedy="Use one key per member.")
    return False


def _end_releases(
    tx: Transaction, coordinator: Coordinator, party: str, reason: str, *, complete_too: bool
) -> tuple[str, ...]:
    ended = []
    for release in tx.releases.open_with(party):
        current = require_release(tx, release).round
        if complete(current) and not complete_too:
            continue
        after = advance(current, Abort(reason), now=coordinator.clock())
        if not isinstance(after, Refused):
            record(tx, coordinator, release, after, kind="aborted", party=party)
            ended.append(release)
    return tuple(ended)


def publish_identity(coordinator: Coordinator, party: str, envelope: Envelope) -> tuple[PartyRecord, bool]:
    """Show a member's signed identity with its keys; whether it is new.

    The first one under a signing key may bring another sealing key: so a member replaces both together.
    """
    with coordinator.store.write() as tx:
        member = require_party(tx, party)
        identity = open_identity(envelope, VerifyingKey.from_hex(member.signing_key), name=party).document
        if member.identity == envelope:
            return member, False
        first_of_a_rotation = member.identity is None and len(tx.members.keys(party)) > 1
        if identity.sealing_key != member.sealing_key and not first_of_a_rotation:
            raise DocumentError(
                "another sealing key is known for this signing key", remedy="Run: commingle party rotate-key"
            )
        tx.members.set_identity(party, envelope, sealing_key=identity.sealing_key)
        return require_party(tx, party), True


def relay(coordinator: Coordinator, recipient: str, sender: str, envelope: Envelope) -> bool:
    """Keep a sealed linkage key for its recipient; whether it is new. A newer one takes the place of an older one."""
    with coordinator.store.write() as tx:
        require_party(tx, recipient)
        key = VerifyingKey.from_hex(require_party(tx, sender).signing_key)
        message = open_linkage_key(
            envelope, key, sender=sender, recipient=recipient, coordinator=coordinator.key.fingerprint
        ).document
        known = tx.linkage.get(recipient, sender)
        if known is not None and known.envelope == envelope:
            return False
        if known is not None and decode(LinkageKeyMessage, known.envelope.payload_bytes).created > message.created:
            raise OtherBytesError("a newer linkage key from this sender is here", remedy="Send it again.")
        tx.linkage.put(recipient, sender, message.created, envelope)
    _log.info("linkage key relayed", sender=sender, recipient=recipient)
    return True


def witness(coordinator: Coordinator, party: str, signed: SignedDocument, *, after: str) -> bool:
    """Keep a member's newest ledger head, which has to follow the head that is kept; whether it is new.

    Its key is or was the member's. `after` is the head that it follows, or `NO_HEAD` for the first.
    """
    offered, key = open_head(signed, party=party)
    with coordinator.store.write() as tx:
        member = require_party(tx, party)
        if key.fingerprint not in {known.fingerprint for known in tx.members.keys(member.name)}:
            raise SignatureError(
                "the ledger head is signed with a key that was never this member's", remedy="Sign it with the member's."
            )
        newest = next((open_head(signed)[0] for signed in tx.heads.history(party, below=None, limit=1)), None)
        if newest is not None and newest.head == offered.head:
            return False
        if (refused := _refuse(newest, offered, after=after)) is not None:
            raise LedgerHeadError(
                refused.reason, remedy="Compare with the party's own ledger: GET /v1/parties/{party}/ledger-heads."
            )
        tx.heads.add(offered, signed)
    _log.info("ledger head witnessed", party=party, height=offered.height)
    return True


def newest_heads(coordinator: Coordinator) -> tuple[SignedDocument, ...]:
    with coordinator.store.read() as tx:
        return tuple(decode(SignedDocument, text.encode()) for text in tx.heads.newest_of_each())


def _refuse(newest: LedgerHead | None, offered: LedgerHead, *, after: str) -> Refused | None:
    if newest is None:
        return None if after == NO_HEAD else Refused("no ledger head of this member is known here")
    if after != newest.head:
        return Refused(f"the newest ledger head here is {newest.head}, of height {newest.height}")
    if offered.height <= newest.height:
        return Refused(f"height {offered.height} is not beyond {newest.height}, where the newest ledger head here is")
    return None


def create_token(coordinator: Coordinator, *, name: str, scope: CoordinatorScope, lifetime: timedelta | None) -> str:
    """A new bearer token. Only its digest is kept."""
    now = coordinator.clock()
    text = f"{_TOKEN_PREFIX}.{secrets.token_urlsafe(32)}"
    with coordinator.store.write() as tx:
        if tx.access.token(name=name) is not None:
            raise NameTakenError(f"there is a token named {name}", remedy="Choose another name.")
        expires = None if lifetime is None else now + lifetime
        tx.access.add_token(TokenRow(name, text_digest(text), scope, now, expires, None))
    return text


def revoke_token(coordinator: Coordinator, name: str) -> None:
    with coordinator.store.write() as tx:
        if tx.access.token(name=name) is None:
            raise UnknownError(f"there is no token named {name}", remedy="commingle coordinator token list")
        tx.access.revoke_token(name, coordinator.clock())
