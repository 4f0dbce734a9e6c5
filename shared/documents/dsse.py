"""DSSE envelopes (Dead Simple Signing Envelope 1.0.2) with one Ed25519 signature.

Ordering rule: verify first, over the received bytes; parse the payload only after that. `open_envelope` is the only
way from an envelope to a document.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Generic

from pydantic import Field

from commingle.shared.documents.errors import DocumentError, SignatureError
from commingle.shared.documents.keys import Fingerprint, SigningKey, VerifyingKey
from commingle.shared.documents.model import Digest, Model, WireModel, decode, encode

_PAYLOAD_TYPE = "application/vnd.commingle.{}+json"


class Signature(WireModel):
    """One signature and the fingerprint of the key that made it."""

    keyid: Digest
    sig: Annotated[str, Field(max_length=128)]


class Envelope(WireModel):
    """The JSON form of a DSSE envelope. `payload` is base64; its bytes are what was signed."""

    payload: str
    payloadType: str  # noqa: N815 - the field's name in the DSSE standard
    signatures: Annotated[tuple[Signature, ...], Field(min_length=1, max_length=1)]

    @property
    def payload_bytes(self) -> bytes:
        """The signed bytes."""
        return _unbase64(self.payload)

    @property
    def digest(self) -> str:
        """SHA-256 of the signed bytes, hex."""
        return sha256(self.payload_bytes).hexdigest()

    def to_json(self) -> bytes:
        """The envelope as one line of ASCII."""
        return encode(self)


@dataclass(frozen=True, slots=True)
class Verified(Generic[Model]):
    """A document whose signature has been checked.

    Attributes:
        document: the parsed payload.
        payload: the bytes that were signed.
        signer: fingerprint of the key that signed.
        envelope: as received.
    """

    document: Model
    payload: bytes
    signer: Fingerprint
    envelope: Envelope

    @property
    def digest(self) -> str:
        """SHA-256 of the signed bytes, hex."""
        return sha256(self.payload).hexdigest()


def payload_type(kind: str) -> str:
    """The media type of one kind of document."""
    return _PAYLOAD_TYPE.format(kind)


def seal(document: WireModel, *, kind: str, key: SigningKey) -> Envelope:
    """Sign a document: encode it once, sign exactly those bytes."""
    payload = encode(document)
    signature = key.sign(_pre_authentication_encoding(payload_type(kind), payload))
    return Envelope(
        payload=b64encode(payload).decode(),
        payloadType=payload_type(kind),
        signatures=(Signature(keyid=key.fingerprint, sig=b64encode(signature).decode()),),
    )


def parse_envelope(data: bytes) -> Envelope:
    """An envelope from its JSON bytes, nothing verified yet. Raises DocumentError."""
    return decode(Envelope, data)


def open_envelope(
    envelope: Envelope, model: type[Model], *, kind: str, keys: Iterable[VerifyingKey]
) -> Verified[Model]:
    """Verify an envelope under one of `keys`, then parse its payload.

    Raises:
        SignatureError: signed by none of the keys, or the signature does not verify.
        DocumentError: of another kind, or the payload is not a valid document.
    """
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
            remedy="Sign with the key this party enrolled with, or enrol the new key.",
        )
    payload = envelope.payload_bytes
    key.verify(_unbase64(signature.sig), _pre_authentication_encoding(envelope.payloadType, payload))
    return Verified(decode(model, payload), payload, key.fingerprint, envelope)


def _pre_authentication_encoding(kind: str, payload: bytes) -> bytes:
    return b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(payload), payload)


def _unbase64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise DocumentError("a field is not base64", remedy="Fetch the document again.") from None
