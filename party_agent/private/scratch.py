"""Files for what is too large to hold while it is sorted. They have no name and end with the process.

Adversary: who reads the party's disk. From the moment it is made only this process can open such a file; small tables
never reach the disk. Freed blocks of a disk that is not encrypted may keep what they held, as with all that a database
sorts, so cells, ids too, are put there under a key that is held in memory only.
"""

from os import SEEK_END
from tempfile import SpooledTemporaryFile
from weakref import finalize

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_IN_MEMORY_BYTES = 1 << 22
_NONCE_BYTES = 12


class Scratch:
    """Bytes at places, in memory while they are few; gone when nobody refers to them any more."""

    def __init__(self) -> None:
        self._held = SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - closed by what follows
        finalize(self, self._held.close)

    def read(self, place: int, size: int) -> bytes:
        """So many bytes from there."""
        self._held.seek(place)
        return self._held.read(size)

    def write(self, written: bytes | memoryview, place: int | None = None) -> int:
        """At that place, or behind all others; where that is."""
        start = self._held.seek(0, SEEK_END) if place is None else self._held.seek(place)
        self._held.write(written)
        return start


class SealedScratch:
    """Pieces in a file, each encrypted under a key that ends with this object."""

    def __init__(self) -> None:
        self._cipher, self._file = AESGCM(AESGCM.generate_key(256)), Scratch()
        self._places: list[tuple[int, int]] = []

    def append(self, plain: bytes) -> int:
        """Its number."""
        number = len(self._places)
        sealed = self._cipher.encrypt(number.to_bytes(_NONCE_BYTES, "big"), plain, None)
        self._places.append((self._file.write(sealed), len(sealed)))
        return number

    def read(self, number: int) -> bytes:
        """That piece."""
        return self._cipher.decrypt(number.to_bytes(_NONCE_BYTES, "big"), self._file.read(*self._places[number]), None)
