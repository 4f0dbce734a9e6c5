"""Sparse mixing: every subject's row goes, with a sign, to one row of Y (docs/design/encoding.md#sparse-mixing).

That is the count sketch of Charikar, Chen and Farach-Colton (2002). Its cost does not grow with k.
"""

import numpy as np
from numpy.typing import NDArray

from commingle.shared.mechanisms.rows.mixed_rows import MixedRows
from commingle.shared.mechanisms.rows.signs import BLOCK_BITS, SignStream

_LABEL = b"commingle/v1/sparse-mixing"
_AT_ONCE = 4096  # subjects: what is made of them stays in cache


class SparseEntries:
    """The one entry of each column of S, by a public seed.

    Of the subject's first AES block, big-endian, U are the first 64 bits and s the next one: the entry stands in row
    floor(U k / 2^64) and is +1 where s is 0, -1 where it is 1. Not safe to share between threads.

    Raises:
        MixingError: the seed is not 32 bytes.
    """

    def __init__(self, seed: bytes, k: int) -> None:
        self._stream = SignStream(seed, label=_LABEL)
        self._k = np.uint64(k)

    def of(self, names: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of S, 0 to k - 1, and signs of the entries of m subjects, (m,) each."""
        drawn = self._stream.packed(names, BLOCK_BITS).view(">u4").astype(np.uint64)
        high, low, half = drawn[:, 0], drawn[:, 1], np.uint64(32)
        # floor(U k / 2^64) with U = high 2^32 + low; every product is below 2^32 k
        rows = (high * self._k + (low * self._k >> half)) >> half
        signs = 1 - 2 * (drawn[:, 2] >> np.uint64(31)).astype(np.int64)
        return rows.astype(np.int64), signs


class SparseProjection(MixedRows):
    """Accumulates Y = S Q for the sparse S of a public seed.

    Args:
        seed: the release seed, 32 bytes, public.
        k: rows of S, 1 to 2^31.
        d: columns of Q, >= 1.

    Raises:
        MixingError: an argument is out of range.
    """

    def __init__(self, seed: bytes, k: int, d: int) -> None:
        super().__init__(k, d)
        self._entries = SparseEntries(seed, k)
        self._sum = np.zeros((d, k), np.int64)

    def total(self) -> NDArray[np.int64]:
        """Y of everything added so far, (k, d)."""
        return np.ascontiguousarray(self._sum.T)

    def _add(self, names: NDArray[np.integer], q: NDArray[np.integer]) -> None:
        for start in range(0, len(names), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            rows, signs = self._entries.of(names[part])
            signed = signs[:, None] * q[part]
            for column, values in zip(self._sum, signed.T, strict=True):
                np.add.at(column, rows, values)
