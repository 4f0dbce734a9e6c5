"""Replacing one member's key, and ending one membership: nobody else has to do anything but compare and pin."""

import structlog

from commingle.coordinator.coordinator import Coordinator, record, require_release
from commingle.coordinator.errors import NameTakenError, UnknownError
from commingle.coordinator.members import require_party
from commingle.coordinator.store.rows import KeyRow, PartyRow
from commingle.coordinator.store.store import Transaction
from commingle.shared.documents.keys import VerifyingKey
from commingle.shared.documents.model import encode
from commingle.shared.documents.statements import RotationRequest, open_rotation
from commingle.shared.release.rounds import Abort, Refused, advance, complete

_log = structlog.get_logger()


def rotate(coordinator: Coordinator, party: str, request: RotationRequest) -> tuple[PartyRow, bool]:
    """Replace a member's signing key; whether it is new. Once it is in place, nothing changes.

    Open releases that name the old key end, except those that only wait for their publication: every block of theirs
    was signed and paid for under the old key while it was valid.

    Raises:
        UnknownError, SignatureError, DocumentError: not this member's rotation.
        NameTakenError: the new key is or was somebody's already.
    """
    text = encode(request).decode()
    now = coordinator.clock()
    with coordinator.store.write() as tx:
        member = require_party(tx, party)
        if request.by_new.signatures[0].keyid == member.fingerprint:
            return member, False
        old = VerifyingKey.from_hex(member.signing_key)
        document = open_rotation(request, party=party, old_key=old).document
        new = VerifyingKey.from_hex(document.new_key)
        if tx.members.key(new.fingerprint) is not None:
            raise NameTakenError("the new key has been in use before", remedy="Rotate to a fresh key.")
        tx.members.rotate(KeyRow(new.fingerprint, party, document.new_key, now, text))
        tx.events.add_membership(at=now, kind="rotation", party=party, key=new.fingerprint)
        reason = f"{party} replaced its key {old.fingerprint[:16]} by {new.fingerprint[:16]}; propose it again"
        ended = _end_releases(tx, coordinator, party, reason, complete_too=False)
        member = require_party(tx, party)
    _log.info("key rotated", party=party, key=new.fingerprint, ended=len(ended))
    return member, True


def revoke(coordinator: Coordinator, party: str) -> tuple[str, ...]:
    """End a membership; ids of the open releases that ended with it. What was published stays as it is.

    Raises:
        UnknownError: no such member, or revoked already.
    """
    with coordinator.store.write() as tx:
        member = require_party(tx, party)
        if member.revoked is not None:
            raise UnknownError(f"{party} is revoked already", remedy="Nothing is to be done.")
        now = coordinator.clock()
        tx.members.revoke(party, now)
        tx.events.add_membership(at=now, kind="revocation", party=party, key=member.fingerprint)
        return _end_releases(tx, coordinator, party, f"{party} was revoked", complete_too=True)


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
