"""Ed25519 signing keys and the fingerprints that name them (docs/design/documents.md#keys)."""

import hashlib
import re
from dataclasses import dataclass
from typing import NewType

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from commingle.shared.documents.errors import SignatureError

Fingerprint = NewType("Fingerprint", str)
"""SHA-256 of the 32 raw public key bytes, in lower-case hex."""
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


def parse_fingerprint(text: str) -> Fingerprint | None:
    """A fingerprint as typed or pasted, in capitals or between blanks; None where it is not 64 hex digits."""
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
        """What people compare and documents name."""
        return Fingerprint(hashlib.sha256(self.raw).hexdigest())

    def verify(self, signature: bytes, message: bytes) -> None:
        """Raise SignatureError unless `signature` is this key's over `message`."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            raise SignatureError(
                f"the signature of key {self.fingerprint[:16]} does not verify",
                remedy="The document was altered or signed by another key; fetch it again from its author.",
            ) from None


class SigningKey:
    """A private key. Its repr shows the fingerprint only."""

    __slots__ = ("_key", "verifying_key")

    def __init__(self, seed: bytes) -> None:
        """Take the 32 bytes that are the private key."""
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.verifying_key = VerifyingKey(self._key.public_key().public_bytes_raw())

    @property
    def fingerprint(self) -> Fingerprint:
        """The public key's fingerprint."""
        return self.verifying_key.fingerprint

    def sign(self, message: bytes) -> bytes:
        """64 bytes of signature."""
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"SigningKey({self.fingerprint[:16]}…)"
