"""Matrices of 64-bit words, row block by row block, and pads of them: secure inner products are taken mod 2^64.

NumPy's unsigned integers wrap around without a word, which is the arithmetic wanted; signed integers become words by
two's complement, so sums and products of both agree mod 2^64.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from commingle.shared.errors import MixingError

Words: TypeAlias = NDArray[np.uint64]
Rows: TypeAlias = Callable[[int, int], Words]
"""Rows start..stop of an n x d matrix. Asked for `row_blocks` only, so a reader may count on their boundaries."""

BLOCK_ROWS = 4096


def row_blocks(n: int) -> Iterator[tuple[int, int]]:
    """The (start, stop) of all row blocks of n rows, each of BLOCK_ROWS but the last."""
    return ((start, min(start + BLOCK_ROWS, n)) for start in range(0, n, BLOCK_ROWS))


def rows_of(matrix: NDArray[np.integer]) -> Rows:
    """The rows of a matrix in memory, as words."""
    return lambda start, stop: matrix[start:stop].astype(np.uint64)


def added(left: Rows, right: Rows) -> Rows:
    """L + R, both n x d."""
    return lambda start, stop: left(start, stop) + right(start, stop)


def subtracted(left: Rows, right: Rows) -> Rows:
    """L - R, both n x d."""
    return lambda start, stop: left(start, stop) - right(start, stop)


def side_by_side(parts: Sequence[Rows]) -> Rows:
    """(P_1 | P_2 | ...), all with n rows."""
    return lambda start, stop: np.hstack([part(start, stop) for part in parts])


def inner(left: Rows, right: Rows, n: int) -> Words:
    """L^T R mod 2^64 (a x b) of n x a and n x b, n >= 1, one row block in memory at a time."""
    total: Words = np.zeros((), np.uint64)
    for start, stop in row_blocks(n):
        total = total + left(start, stop).T @ right(start, stop)
    return total


SECRET_BYTES = 32
_WORD = 8
_BLOCK = 16


class Pad:
    """An unbounded matrix of `columns` pseudo-random words a row, which every holder of the key can make again.

    key = HKDF-SHA256(secret, salt, info); words = AES-256-CTR(key) from counter 0, little-endian, row after row.
    A pad is used once: `info` names the release, the party and the purpose. Its repr says nothing.

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
