"""Private keys on disk: 64 hex digits in a file only its owner can read."""

import secrets
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from commingle.shared.documents.keys import SigningKey
from commingle.shared.runtime.errors import KeyFileError
from commingle.shared.runtime.files import write_durably

_SECRET_BYTES = 32
_OTHERS = 0o077


def create_secret(path: Path) -> bytes:
    """32 fresh bytes from the operating system, stored at `path`.

    Raises:
        KeyFileError: a file is there already; keys are never overwritten.
    """
    if path.exists():
        raise KeyFileError(f"{path} exists already", remedy="Use it, or move it away to start with new keys.")
    secret = secrets.token_bytes(_SECRET_BYTES)
    write_durably(path, secret.hex().encode() + b"\n")
    return secret


def load_secret(path: Path) -> bytes:
    """The 32 bytes stored at `path`.

    Raises:
        KeyFileError: missing, malformed or readable by others.
    """
    try:
        text = path.read_bytes().strip()
        mode = path.stat().st_mode
    except OSError as error:
        raise KeyFileError(
            f"cannot read the key file {path} ({error.strerror})", remedy="Run the init command first."
        ) from None
    if mode & _OTHERS:
        raise KeyFileError(f"{path} can be read by others", remedy=f"Run: chmod 600 {path}")
    try:
        secret = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        secret = b""
    if len(secret) != _SECRET_BYTES:
        raise KeyFileError(f"{path} does not hold 64 hex digits", remedy="Restore the file from its backup.")
    return secret


def load_signing_key(path: Path) -> SigningKey:
    """The Ed25519 key stored at `path`. Raises KeyFileError."""
    return SigningKey(load_secret(path))


def sealing_public_key(secret: bytes) -> bytes:
    """The X25519 public key (32 bytes) of a sealing secret."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
