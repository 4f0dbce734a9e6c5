"""DSSE envelopes (Dead Simple Signing Envelope 1.0.2) with one Ed25519 signature, and the keys of signatures.

Ordering rule: look at the length, verify over the received bytes, parse the payload only after that. `open_envelope`
is the only way from an envelope to a document. A document has one encoding and an envelope too: there is nothing in
either that could be changed, or padded, without breaking the signature.

Keys are named by fingerprints (docs/design/documents.md#keys).
"""

import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Generic, NewType

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import Field

from commingle.shared.documents.model import Checks, Digest, Model, WireModel, decode, decode_canonical, encode
from commingle.shared.errors import DocumentError, SignatureError

Fingerprint = NewType("Fingerprint", str)  # SHA-256 of the 32 raw public key bytes, in lower-case hex
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


def parse_fingerprint(text: str) -> Fingerprint | None:
    """A fingerprint as typed or pasted, in capitals or between blanks; None if it is not 64 hex digits."""
    digits = text.strip().lower()
    return Fingerprint(digits) if _FINGERPRINT.fullmatch(digits) else None


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key, 32 bytes."""

    raw: bytes

    @classmethod
    def from_hex(cls, text: str) -> "VerifyingKey":
        return cls(bytes.fromhex(text))

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(hashlib.sha256(self.raw).hexdigest())

    def verify(self, signature: bytes, message: bytes) -> None:
        """Raises SignatureError unless `signature` is this key's over `message`."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            raise SignatureError(
                f"the signature of key {self.fingerprint[:16]} does not verify",
                remedy="The document was altered or signed by another key; fetch it again from its author.",
            ) from None


class SigningKey:
    """A private key, from its 32 bytes. Its repr shows the fingerprint only."""

    __slots__ = ("_key", "verifying_key")

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.verifying_key = VerifyingKey(self._key.public_key().public_bytes_raw())

    @property
    def fingerprint(self) -> Fingerprint:
        return self.verifying_key.fingerprint

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"SigningKey({self.fingerprint[:16]}…)"


_SMALL = 1 << 15  # so that at most 24 MB of text are remembered, whoever sends


class Signature(WireModel):
    """One signature and the fingerprint of the key that made it.

    Attributes:
        keyid: fingerprint of the key.
        sig: Ed25519 over the payload and its type, base64.
    """

    keyid: Digest
    sig: Annotated[str, Field(max_length=128)]


class Envelope(WireModel):
    """The JSON form of a DSSE envelope. `payload` is base64; its bytes are what was signed.

    Attributes:
        payload: base64; its bytes are what was signed.
        payloadType: what kind of document they are.
        signatures: one.
    """

    payload: str
    payloadType: str  # noqa: N815 - the field's name in the DSSE standard
    signatures: Annotated[tuple[Signature, ...], Field(min_length=1, max_length=1)]

    @property
    def payload_bytes(self) -> bytes:
        return _unbase64(self.payload)

    @property
    def digest(self) -> str:
        """SHA-256 of the signed bytes, hex."""
        return sha256(self.payload_bytes).hexdigest()

    def to_json(self) -> bytes:
        return encode(self)


@dataclass(frozen=True, slots=True)
class Verified(Generic[Model]):
    """A document whose signature has been checked: `payload` is what was signed, under the key that `signer` names."""

    document: Model
    payload: bytes
    signer: Fingerprint
    envelope: Envelope

    @property
    def digest(self) -> str:
        """SHA-256 of the signed bytes, hex."""
        return sha256(self.payload).hexdigest()


def payload_type(kind: str) -> str:
    return f"application/vnd.commingle.{kind}+json"


def seal(document: WireModel, *, key: SigningKey) -> Envelope:
    """Sign a document: encode it once, and sign exactly those bytes."""
    signature = key.sign(pre_authentication_encoding(payload_type(document.signed_as()), encode(document)))
    return sealed(document, Signature(keyid=key.fingerprint, sig=b64encode(signature).decode()))


def sealed(document: WireModel, signature: Signature) -> Envelope:
    """The envelope of a document, made again from the document and its signature. Nothing is verified."""
    kind = payload_type(document.signed_as())
    return Envelope(payload=b64encode(encode(document)).decode(), payloadType=kind, signatures=(signature,))


def parse_envelope(data: bytes) -> Envelope:
    """An envelope from its JSON bytes. Nothing is verified yet. Raises DocumentError."""
    return _parse_small(data) if len(data) <= _SMALL else decode(Envelope, data)


@lru_cache(maxsize=512)  # a coordinator reads all documents of a release from its database whenever one comes in
def _parse_small(data: bytes) -> Envelope:
    return decode(Envelope, data)


def open_envelope(
    envelope: Envelope, model: type[Model], *, keys: Iterable[VerifyingKey], checks: Checks | None = None
) -> Verified[Model]:
    """Verify an envelope under one of `keys`, then parse its payload, with `checks` as in `decode`.

    Raises SignatureError: signed by none of the keys, or the signature does not verify; DocumentError: of another kind,
    longer than that kind can be, or the payload is not a valid document in its canonical encoding.
    """
    kind = model.signed_as()
    if envelope.payloadType != payload_type(kind):
        raise DocumentError(
            f"expected a document of type {payload_type(kind)!r}",
            remedy="Send the document this place asks for.",
        )
    signature = envelope.signatures[0]
    key = next((k for k in keys if k.fingerprint == signature.keyid), None)
    if key is None:
        raise SignatureError(
            f"signed by key {signature.keyid[:16]}, which is not expected here",
            remedy="Sign with the key this member enrolled with, or enrol the new key.",
        )
    if len(envelope.payload) > 4 * -(-model.largest_bytes // 3):  # in base64
        raise DocumentError(
            f"longer than the {model.largest_bytes} bytes a {kind} can have",
            remedy="Send it without padding.",
        )
    return (_open_small if len(envelope.payload) <= _SMALL else _open)(envelope, model, key, checks)


def _open(envelope: Envelope, model: type[Model], key: VerifyingKey, checks: Checks | None) -> Verified[Model]:
    payload = envelope.payload_bytes
    signature = envelope.signatures[0]
    key.verify(_unbase64(signature.sig), pre_authentication_encoding(envelope.payloadType, payload))
    return Verified(decode_canonical(model, payload, checks), payload, key.fingerprint, envelope)


_open_small = lru_cache(maxsize=256)(_open)
"""Each step of a release opens its documents again: the same bytes under the same key give the same result."""


def pre_authentication_encoding(kind: str, payload: bytes) -> bytes:
    return b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(payload), payload)


def _unbase64(text: str) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        data = None
    if data is None or b64encode(data).decode() != text:  # the last letter can hold bits that say nothing
        raise DocumentError("a field is not base64 as RFC 4648 writes it", remedy="Fetch the document again.")
    return data
