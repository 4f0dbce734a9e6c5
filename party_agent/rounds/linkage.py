"""Sending the linkage key to fellow members and receiving it, sealed (docs/adr/0008)."""

from dataclasses import dataclass
from datetime import datetime

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.home import Home, Membership
from commingle.shared.documents.dsse import Envelope, SigningKey, VerifyingKey, seal
from commingle.shared.documents.linkage import (
    IdentityStatement,
    LinkageKeyMessage,
    check_value,
    open_identity,
    open_linkage_key,
    sealing_info,
)
from commingle.shared.errors import DocumentError, SignatureError
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.wire import PartyRecord

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


@dataclass(frozen=True, slots=True)
class Sent:
    """Who was sent the key, and who is not enrolled yet. Compare `check` with the recipients'."""

    check: str
    recipients: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Received:
    """Whose key was taken over. Compare `check` with the sender's."""

    check: str
    sender: str


def publish_identity(home: Home, client: CoordinatorClient) -> None:
    """Tell the members, through the coordinator, which sealing key is this party's. Raises RemoteError."""
    identity = home.identity()
    envelope = signed_identity(identity.name, identity.signing_key, home.sealing_key())
    client.publish_identity(identity.name, envelope)


def signed_identity(name: str, key: SigningKey, sealing_key: bytes) -> Envelope:
    """A member's statement of its own public sealing key (32 bytes), under its signing key."""
    statement = IdentityStatement(name=name, signing_key=key.verifying_key.raw.hex(), sealing_key=sealing_key.hex())
    return seal(statement, key=key)


def send_linkage_key(
    home: Home, membership: Membership, client: CoordinatorClient, *, coordinator: str, now: datetime
) -> Sent:
    """Seal this party's linkage key to every pinned member that is enrolled; made now if there is none yet."""
    identity, pins = home.identity(), membership.pins()
    members = {member.name: member for member in client.members()}
    sealing_keys = {
        name: _sealing_key(members[name], pin)
        for name, pin in pins.items()
        if name != identity.name and name in members and members[name].identity is not None
    }
    if not sealing_keys:
        raise ConflictError(
            "no pinned member is enrolled yet", remedy="Pin your fellow members; they enrol; then send again."
        )
    linkage_key = membership.make_linkage_key()
    for name, sealing_key in sealing_keys.items():
        recipient = VerifyingKey.from_hex(members[name].signing_key)
        sender = identity.signing_key.verifying_key
        info = sealing_info(sender=sender, recipient=recipient, sealing_key=sealing_key, coordinator=coordinator)
        box = _SUITE.encrypt(linkage_key, X25519PublicKey.from_public_bytes(bytes.fromhex(sealing_key)), info)
        message = LinkageKeyMessage(
            sender=identity.name, recipient=name, coordinator=coordinator, created=now, sealed=box.hex()
        )
        client.send_linkage_key(name, identity.name, seal(message, key=identity.signing_key))
    left_out = sorted(set(pins) - set(sealing_keys) - {identity.name})
    return Sent(check_value(linkage_key), tuple(sorted(sealing_keys)), tuple(left_out))


def receive_linkage_key(
    home: Home,
    membership: Membership,
    client: CoordinatorClient,
    *,
    coordinator: str,
    sender: str | None = None,
    replace: bool = False,
) -> Received | None:
    """Take over the linkage key a pinned member sent; None if nobody did.

    `coordinator` is a fingerprint. If `sender` is named, only that member's key counts; it can `replace` another key
    here.
    """
    identity, pins = home.identity(), membership.pins()
    keys: dict[str, VerifyingKey] = {key.fingerprint: key for key in client.member_keys()}
    opened: dict[str, bytes] = {}
    for name, envelope in client.linkage_keys(identity.name).items():
        key = keys.get(pins.get(name, ""))
        if key is None or sender not in {None, name}:
            continue
        message = open_linkage_key(envelope, key, sender=name, recipient=identity.name, coordinator=coordinator)
        opened[name] = _unseal(home, message.document, key)
    if not opened:
        return None
    if len(set(opened.values())) > 1:
        raise ConflictError(
            f"{', '.join(sorted(opened))} sent different linkage keys",
            remedy="Agree on one, then: commingle party linkage receive --from MEMBER",
        )
    name, linkage_key = next(iter(sorted(opened.items())))
    membership.adopt_linkage_key(linkage_key, replace=replace)
    return Received(check_value(linkage_key), name)


def _sealing_key(member: PartyRecord, pin: str) -> str:
    key = VerifyingKey.from_hex(member.signing_key)
    if key.fingerprint != pin or member.identity is None:
        raise SignatureError(
            f"the coordinator shows another key for {member.name} than the pinned one",
            remedy=f"Compare fingerprints with {member.name} over another channel; pin again only what it tells you.",
        )
    return open_identity(member.identity, key, name=member.name).document.sealing_key


def _unseal(home: Home, message: LinkageKeyMessage, sender: VerifyingKey) -> bytes:
    recipient = home.identity().signing_key.verifying_key
    info = sealing_info(
        sender=sender, recipient=recipient, sealing_key=home.sealing_key().hex(), coordinator=message.coordinator
    )
    try:
        private = X25519PrivateKey.from_private_bytes(home.sealing_secret())
        return _SUITE.decrypt(bytes.fromhex(message.sealed), private, info)
    except (InvalidTag, ValueError):
        raise DocumentError(
            f"the linkage key from {message.sender} is not sealed to this member's keys",
            remedy="If a key was replaced since, ask for it again: commingle party linkage send",
        ) from None
