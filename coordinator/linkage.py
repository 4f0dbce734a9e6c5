"""Relaying what members tell each other about keys. The coordinator checks signatures and cannot open the boxes."""

from collections.abc import Mapping

import structlog

from commingle.coordinator.coordinator import Coordinator
from commingle.coordinator.errors import OtherBytesError
from commingle.coordinator.members import require_party
from commingle.coordinator.store.rows import PartyRow
from commingle.shared.documents.dsse import Envelope, parse_envelope
from commingle.shared.documents.errors import DocumentError
from commingle.shared.documents.keys import VerifyingKey
from commingle.shared.documents.linkage import open_identity, open_linkage_key

_log = structlog.get_logger()


def publish_identity(coordinator: Coordinator, party: str, envelope: Envelope) -> tuple[PartyRow, bool]:
    """Show a member's signed identity with its keys; whether it is new.

    The first one under a signing key may bring another sealing key: that is how both are replaced together.

    Raises:
        UnknownError, SignatureError, DocumentError: not this member's, or with another sealing key than the one before
            under the same signing key.
    """
    text = envelope.to_json().decode()
    with coordinator.store.write() as tx:
        member = require_party(tx, party)
        identity = open_identity(envelope, VerifyingKey.from_hex(member.signing_key), name=party).document
        if member.identity == text:
            return member, False
        first_of_a_rotation = member.identity is None and len(tx.members.keys(party)) > 1
        if identity.sealing_key != member.sealing_key and not first_of_a_rotation:
            raise DocumentError(
                "another sealing key is known for this signing key", remedy="Run: commingle party rotate-key"
            )
        tx.members.set_identity(party, text, sealing_key=identity.sealing_key)
        return require_party(tx, party), True


def relay(coordinator: Coordinator, recipient: str, sender: str, envelope: Envelope) -> bool:
    """Keep a sealed linkage key for its recipient; whether it is new. A newer one takes the place of an older one.

    Raises:
        UnknownError, SignatureError, DocumentError: not from and for these members of this consortium.
        OtherBytesError: the sender has sent a newer one meanwhile.
    """
    text = envelope.to_json().decode()
    with coordinator.store.write() as tx:
        require_party(tx, recipient)
        key = VerifyingKey.from_hex(require_party(tx, sender).signing_key)
        message = open_linkage_key(
            envelope, key, sender=sender, recipient=recipient, coordinator=coordinator.key.fingerprint
        ).document
        known = tx.linkage.get(recipient, sender)
        if known is not None and known.envelope == text:
            return False
        if known is not None and known.created > message.created:
            raise OtherBytesError("a newer linkage key from this sender is here", remedy="Send it again.")
        tx.linkage.put(recipient, sender, message.created, text)
    _log.info("linkage key relayed", sender=sender, recipient=recipient)
    return True


def linkage_keys(coordinator: Coordinator, recipient: str) -> Mapping[str, Envelope]:
    """What members sent to this one, by sender. Raises UnknownError."""
    with coordinator.store.read() as tx:
        kept = tx.linkage.of(require_party(tx, recipient).name)
    return {one.sender: parse_envelope(one.envelope.encode()) for one in kept}
