"""Pads: matrices of pseudo-random words that every holder of a key can make again, any row block at a time.

    key   = HKDF-SHA256(secret, salt, info)
    words = AES-256-CTR(key) from counter 0, little-endian, row after row

A pad is used once: `info` names the release, the party and the purpose.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from commingle.shared.errors import MixingError
from commingle.shared.mechanisms.moments.exchange.ring import Words

SECRET_BYTES = 32
_WORD = 8
_BLOCK = 16


class Pad:
    """An unbounded matrix of `columns` pseudo-random words a row. Its repr says nothing.

    Args:
        secret: 32 bytes, uniform or a Diffie-Hellman result.
        info: what the pad is for; two pads of one secret differ in it.
        columns: d >= 1.
        salt: public, for secrets that are not uniform.

    Raises:
        MixingError: the secret has another length, or there are no columns.
    """

    __slots__ = ("_columns", "_key")

    def __init__(self, secret: bytes, *, info: bytes, columns: int, salt: bytes | None = None) -> None:
        if len(secret) != SECRET_BYTES or columns < 1:
            raise MixingError(f"a pad has a secret of {SECRET_BYTES} bytes and columns, got {len(secret)}, {columns}")
        self._columns = columns
        self._key = HKDF(SHA256(), SECRET_BYTES, salt=salt, info=info).derive(secret)

    def __call__(self, start: int, stop: int) -> Words:
        """Rows start..stop, (stop - start, d)."""
        first, size = start * self._columns * _WORD, (stop - start) * self._columns * _WORD
        counter = (first // _BLOCK).to_bytes(_BLOCK, "big")
        skipped = first % _BLOCK
        stream = Cipher(algorithms.AES(self._key), modes.CTR(counter)).encryptor().update(bytes(skipped + size))
        words = np.frombuffer(stream, "<u8", offset=skipped)
        return words.astype(np.uint64, copy=False).reshape(stop - start, self._columns)

    def __repr__(self) -> str:
        return "Pad(…)"
