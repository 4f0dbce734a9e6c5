"""The matrices S that rows can be mixed with, Y = S Q: dense signs, or one signed entry a column.

A spec names one by its `projection` (docs/design/encoding.md#projection, #sparse-mixing). Privacy needs nothing of S
but the norm of its columns (docs/proofs/projection.md, 1): a change of one subject's row from q to q' changes Y of
dense signs by exactly sqrt(k) * ||q - q'||, provided that each subject has one row. The caller vouches for that.

Exactness of `Projection`. Row blocks hold at most 512 subjects and |q| <= 2^15, so every partial sum of a block, in
whatever order and with or without fused multiply-add, is an integer of magnitude <= 512 * 2^15 = 2^24, which float32
represents exactly. Block products are added up in float64, exact while n * 2^15 <= 2^53; more rows are refused. Hence
the result is a function of the (name, row) pairs alone: neither their order, nor the batches they came in, nor the BLAS
in use, nor the number of threads can change a bit of it.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.terms import Projection as ProjectionName
from commingle.shared.loops import available, loops
from commingle.shared.mechanisms.rows.mixed_rows import BLOCK_BITS, BLOCK_BYTES, MixedRows, SignStream

_SUBJECTS = 512  # in one block: at most 2^24 / MAX_ABS_ENTRY
_ROWS = 8 * BLOCK_BITS  # of S at a time: a buffer of 512 x 1024 float32 is 2 MiB and stays in cache
_THREADS = 2
# byte -> its eight signs, most significant bit first
_SIGNS = 1 - 2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)

_SPARSE_LABEL = b"commingle/v1/sparse-mixing"
_AT_ONCE = 4096  # subjects: what is made of them stays in cache
LANES = 8  # columns that one instruction adds
TABLES = 4  # looked up together: 32 KB, which stay in a core's nearest cache
_BLOCKS = 64  # of them: 8192 rows, half a megabyte
_TOGETHER = 8 * TABLES  # subjects


class Projection(MixedRows):
    """Accumulates Y = S Q for the dense S of a public seed of 32 bytes, by NumPy.

    Raises:
        MixingError: an argument is out of range.
    """

    def __init__(self, seed: bytes, k: int, d: int) -> None:
        super().__init__(k, d)
        self._stream = SignStream(seed)
        self._sum = np.zeros((d, k))

    def total(self) -> NDArray[np.int64]:
        return np.ascontiguousarray(self._sum.T.astype(np.int64))

    def _add(self, names: NDArray[np.integer], q: NDArray[np.integer]) -> None:
        for start in range(0, len(names), _SUBJECTS):
            block = slice(start, start + _SUBJECTS)
            rows = q[block].T.astype(np.float32)
            for first in range(0, self._k, _ROWS):
                count = min(_ROWS, self._k - first)
                packed = self._stream.packed(names[block], count, first_block=first // BLOCK_BITS)
                signs = _SIGNS[packed].reshape(len(packed), -1)[:, :count]
                # Y^T += Q^T S^T over this block of subjects and rows
                self._sum[:, first : first + count] += rows @ signs


class SparseEntries:
    """The one entry of each column of S, by a public seed.

    Of the subject's first AES block, big-endian, U are the first 64 bits and s the next one: the entry stands in row
    floor(U k / 2^64) and is +1 where s is 0, -1 where it is 1. Not safe to share between threads.

    Raises:
        MixingError: the seed is not 32 bytes.
    """

    def __init__(self, seed: bytes, k: int) -> None:
        self._stream = SignStream(seed, label=_SPARSE_LABEL)
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
    """Accumulates Y = S Q for the sparse S of a public seed of 32 bytes, k at most 2^31.

    That is the count sketch of Charikar, Chen and Farach-Colton (2002). Its cost does not grow with k.

    Raises:
        MixingError: an argument is out of range.
    """

    def __init__(self, seed: bytes, k: int, d: int) -> None:
        super().__init__(k, d)
        self._entries = SparseEntries(seed, k)
        self._sum = np.zeros((d, k), np.int64)

    def total(self) -> NDArray[np.int64]:
        return np.ascontiguousarray(self._sum.T)

    def _add(self, names: NDArray[np.integer], q: NDArray[np.integer]) -> None:
        for start in range(0, len(names), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            rows, signs = self._entries.of(names[part])
            signed = signs[:, None] * q[part]
            for column, values in zip(self._sum, signed.T, strict=True):
                np.add.at(column, rows, values)


class CompiledProjection(MixedRows):
    """What `Projection` accumulates, by compiled loops. `add` uses two threads, each for its own rows."""

    def __init__(self, seed: bytes, k: int, d: int) -> None:
        super().__init__(k, d)
        blocks = -(-k // BLOCK_BITS)
        self._sums = np.zeros((-(-d // LANES), 8, blocks * BLOCK_BYTES * LANES), np.int64)
        ends = [blocks * i // _THREADS for i in range(_THREADS + 1)]
        self._lanes = [(SignStream(seed), first, last) for first, last in pairwise(ends)]

    def total(self) -> NDArray[np.int64]:
        panels = self._sums.reshape(len(self._sums), 8, -1, LANES)
        rows = panels[:, ::-1].transpose(2, 1, 0, 3)  # (k / 8, 8, panels, LANES)
        return np.ascontiguousarray(rows.reshape(8 * len(rows), LANES * len(self._sums))[: self._k, : self._d])

    def _add(self, names: NDArray[np.integer], q: NDArray[np.integer]) -> None:
        padded = np.zeros((-(-len(names) // _TOGETHER) * _TOGETHER, len(self._sums) * LANES), np.int32)
        padded[: len(names), : self._d] = q
        rows = np.ascontiguousarray(padded.reshape(len(padded), len(self._sums), LANES).transpose(1, 0, 2))
        with ThreadPoolExecutor(len(self._lanes)) as pool:
            list(pool.map(lambda lane: self._add_lane(lane, names, rows), self._lanes))

    def _add_lane(self, lane: tuple[SignStream, int, int], names: NDArray[np.integer], rows: NDArray[np.int32]) -> None:
        stream, first, last = lane
        table = np.empty(TABLES * 256 * LANES, np.int32)
        for start in range(0, len(names), _SUBJECTS):
            own = np.ascontiguousarray(rows[:, start : start + _SUBJECTS])
            for block in range(first, last, _BLOCKS):
                blocks = min(_BLOCKS, last - block)
                signs = np.zeros((own.shape[1], blocks * BLOCK_BYTES), np.uint8)
                packed = stream.packed(names[start : start + _SUBJECTS], blocks * BLOCK_BITS, first_block=block)
                signs[: len(packed)] = packed
                bits, words = np.empty((TABLES, 8, 2 * blocks), np.uint64), signs.view(np.uint64)
                place = block * BLOCK_BYTES
                loops("rows").add_block(words.reshape(-1, 8, 2 * blocks), own, self._sums, bits, table, place)


def squared_norm(projection: ProjectionName | None, k: int) -> int:
    """||S e_i||^2 of every column: what one row counts for in a block's squared sensitivity.

    k entries +-1, the paper's (Wu et al. 2022), or one where mixing is sparse.
    """
    return k if projection is None else 1


def mixed_rows(projection: ProjectionName | None, seed: bytes, *, k: int, d: int) -> MixedRows:
    """An empty sum of d columns; dense ones by loops where the package was built with them, to the same integers.

    Raises:
        MixingError: an argument is out of range.
    """
    if projection is not None:
        return SparseProjection(seed, k, d)
    return CompiledProjection(seed, k, d) if available() else Projection(seed, k, d)
