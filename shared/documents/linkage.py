"""Alignment by the linkage key, and sending that key through a coordinator that cannot read it (docs/adr/0008).

We trust a member's sealing key only under that member's signature, and the signature only under a pinned key. Ordering
rule: open the identity of the recipient before sealing to it, and the message's envelope before its box.
"""

import hmac
import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AwareDatetime, StringConstraints

from commingle.shared.documents.dsse import Envelope, Verified, VerifyingKey, open_envelope
from commingle.shared.documents.model import Digest, Hex32, Name, Version, WireModel
from commingle.shared.errors import DocumentError

_CONTEXT = b"commingle/v1/linkage-key"
_SEALED_DIGITS = 2 * (32 + 32 + 16)  # encapsulated key, linkage key, tag
_CHECK_DIGITS = 16


class IdentityStatement(WireModel):
    """A member states its own sealing key."""

    type: Literal["commingle/identity"] = "commingle/identity"
    version: Version = 1
    name: Name
    signing_key: Hex32
    sealing_key: Hex32


class LinkageKeyMessage(WireModel):
    """The linkage key of a consortium, sealed to one member.

    Attributes:
        coordinator: fingerprint of the key that names the consortium.
        sealed: HPKE's encapsulated key and ciphertext, hex.
    """

    type: Literal["commingle/linkage-key"] = "commingle/linkage-key"
    version: Version = 1
    sender: Name
    recipient: Name
    coordinator: Digest
    created: AwareDatetime
    sealed: Annotated[str, StringConstraints(pattern=rf"^[0-9a-f]{{{_SEALED_DIGITS}}}$")]


def open_identity(envelope: Envelope, key: VerifyingKey, *, name: str) -> Verified[IdentityStatement]:
    """The verified identity of that member under that key. Raises SignatureError, DocumentError."""
    identity = open_envelope(envelope, IdentityStatement, keys=[key])
    if (identity.document.name, identity.document.signing_key) != (name, key.raw.hex()):
        raise DocumentError("the identity is another member's", remedy="Ask the member to enrol again.")
    return identity


def open_linkage_key(
    envelope: Envelope, key: VerifyingKey, *, sender: str, recipient: str, coordinator: str | None
) -> Verified[LinkageKeyMessage]:
    """The verified message from that sender to that recipient, its box still closed.

    Raises SignatureError: the sender did not sign it; DocumentError: it is for somebody else or another consortium.
    """
    message = open_envelope(envelope, LinkageKeyMessage, keys=[key])
    document = message.document
    if (document.sender, document.recipient) != (sender, recipient) or document.coordinator != coordinator:
        raise DocumentError(
            "the linkage key is sealed by or for somebody else, or for another consortium",
            remedy="Ask the sender to send it again: commingle party linkage send",
        )
    return message


def sealing_info(*, sender: VerifyingKey, recipient: VerifyingKey, sealing_key: str, coordinator: str) -> bytes:
    """HPKE binds the box to these: sender, recipient, the recipient's sealing key, and consortium."""
    parties = [sender.fingerprint, recipient.fingerprint, sealing_key, coordinator]
    return _CONTEXT + json.dumps(parties, separators=(",", ":")).encode()


def check_value(linkage_key: bytes) -> str:
    """A few digits by which members can hear that they have the same key; they tell nothing about 32 random bytes."""
    return sha256(_CONTEXT + b"/check" + linkage_key).hexdigest()[:_CHECK_DIGITS]


_ALIGNMENT_CONTEXT = b"commingle/v1/alignment"
_PSEUDONYM_CONTEXT = b"commingle/v1/pseudonym"
PSEUDONYM_BYTES = 32


def pseudonyms(linkage_key: bytes, ids: Sequence[bytes], *, spec_digest: str) -> NDArray[np.uint8]:
    """HMAC-SHA256(linkage key, context || spec digest || canonical id) of each subject, (n, 32) bytes.

    Without the key, which only members have, nobody can join pseudonyms of two releases.
    """
    keyed = hmac.new(linkage_key, _PSEUDONYM_CONTEXT + bytes.fromhex(spec_digest), sha256)

    def pseudonym(identifier: bytes) -> bytes:
        mac = keyed.copy()
        mac.update(identifier)
        return mac.digest()

    return np.frombuffer(b"".join(map(pseudonym, ids)), np.uint8).reshape(-1, PSEUDONYM_BYTES)


def alignment_digest(linkage_key: bytes, *, spec_digest: str, subjects: int, listed: Iterable[bytes]) -> str:
    """HMAC-SHA256(linkage key, context || spec digest || n || length-prefixed sorted ids), hex.

    `listed` are the prefixed ids, in pieces of any length; n has 8 bytes, each length 4 bytes, big-endian. The
    coordinator has no linkage key: it can compare digests, but cannot test a guess about who is in the list.
    """
    mac = hmac.new(linkage_key, _ALIGNMENT_CONTEXT + bytes.fromhex(spec_digest) + subjects.to_bytes(8, "big"), sha256)
    for piece in listed:
        mac.update(piece)
    return mac.hexdigest()
