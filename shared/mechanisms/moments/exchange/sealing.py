"""Round keys: X25519 keys of one release, for sealing (HPKE, RFC 9180, base mode) and for agreeing on pairwise masks.

A round key counts because it stands in an approval, under the party's signature. HPKE draws its ephemeral key from the
operating system, the one thing here that is not a function of its arguments.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from commingle.shared.documents.errors import ExchangeError

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
_REMEDY = "Propose a new release."


class RoundKey:
    """A party's private key of one release, 32 bytes from the operating system. Its repr shows the public key."""

    __slots__ = ("_key", "public")

    def __init__(self, secret: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw().hex()

    def open(self, box: bytes, info: bytes) -> bytes:
        """What was sealed to this key for that purpose. Raises ExchangeError where it was not."""
        try:
            return _SUITE.decrypt(box, self._key, info)
        except (InvalidTag, ValueError):
            raise ExchangeError("a box is not sealed to this round key for this use", remedy=_REMEDY) from None

    def agree(self, public: str) -> bytes:
        """32 bytes known to the holders of the two keys only. Raises ExchangeError for a degenerate key."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(public)))
        except ValueError:
            raise ExchangeError("a party's round key is degenerate", remedy=_REMEDY) from None

    def __repr__(self) -> str:
        return f"RoundKey({self.public[:16]}…)"


def seal_to(public: str, plaintext: bytes, info: bytes) -> bytes:
    """Encapsulated key and ciphertext. Raises ExchangeError for a degenerate key."""
    try:
        return _SUITE.encrypt(plaintext, X25519PublicKey.from_public_bytes(bytes.fromhex(public)), info)
    except ValueError:
        raise ExchangeError("a party's round key is degenerate", remedy=_REMEDY) from None
