"""The matrices S that rows can be mixed with, Y = S Q: dense signs, or one signed entry a column.

Entries come from a public seeded stream of bits (docs/design/encoding.md#sign-stream). Column i of S, one for each
subject, depends on the release seed and the subject's name only, so that every party on every machine uses the same
matrix and nobody stores it:

    K       = SHA-256("commingle/v1/mixing" || seed)
    block j = AES-256_K( name, 12 bytes || j as 4 bytes big-endian ),  j = 0, 1, ...
    bits    = the blocks' bytes, most significant bit first;  bit 0 means +1, bit 1 means -1

The name is the subject's rank, big-endian, or the first bytes of a keyed subject's pseudonym. A spec names a matrix by
its `projection` (docs/design/encoding.md#projection, #sparse-mixing). Privacy needs nothing of S but the norm of its
columns (docs/proofs/projection.md, 1): a change of one subject's row from q to q' changes Y of dense signs by exactly
sqrt(k) * ||q - q'||, provided that each subject has one row. The caller vouches for that.

Exactness of `Projection`. Row blocks hold at most 512 subjects and |q| <= 2^15, so every partial sum of a block, in
whatever order and with or without fused multiply-add, is an integer of magnitude <= 512 * 2^15 = 2^24, which float32
represents exactly. Block products are added up in float64, exact while n * 2^15 <= 2^53; more rows are refused. Hence
the result is a function of the (name, row) pairs alone: neither their order, nor the batches they came in, nor the BLAS
in use, nor the number of threads can change a bit of it.
"""

import hashlib
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from commingle.shared.documents.terms import Projection as ProjectionName
from commingle.shared.errors import MixingError
from commingle.shared.loops import available, loops

SEED_BYTES = 32
BLOCK_BITS = 128
BLOCK_BYTES = BLOCK_BITS // 8
NAME_BYTES = 12
_LABEL = b"commingle/v1/mixing"
MAX_ABS_ENTRY = 2**15
MAX_SUBJECTS = 2**53 // MAX_ABS_ENTRY
_BATCH = 2**16  # subjects per call in ones_projection
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


class SignStream:
    """The sign matrix of one release seed, with random access by name. Not safe to share between threads.

    The label is the purpose of the stream; another label is another stream. Raises MixingError: the seed is not 32
    bytes.
    """

    def __init__(self, seed: bytes, *, label: bytes = _LABEL) -> None:
        if len(seed) != SEED_BYTES:
            raise MixingError(f"a release seed has {SEED_BYTES} bytes, this one has {len(seed)}")
        key = hashlib.sha256(label + seed).digest()
        # ECB is right here: the input blocks are distinct public counters and the output is a public stream.
        cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305
        self._encrypt = cipher.encryptor().update

    def packed(self, names: NDArray[np.integer], rows: int, *, first_block: int = 0) -> NDArray[np.uint8]:
        """Bits from 128 first_block on, `rows` of them, of the given columns, eight to a byte: (m, ceil(rows / 8)).

        The first bit is the highest, and where `rows` is no multiple of 8 the last byte goes on with the stream. Names
        are m ranks >= 0, or m pseudonyms (m, 12 or more) of bytes, in any order. Raises MixingError: rows < 1, or other
        names.
        """
        words = name_words(names)
        if rows < 1:
            raise MixingError(f"the projection needs at least one row, got {rows}")
        blocks = -(-rows // BLOCK_BITS)
        counters = np.empty((len(words), blocks, 4), dtype=">u4")
        counters[:, :, :3] = words[:, None]
        counters[:, :, 3] = np.arange(first_block, first_block + blocks)
        stream = np.frombuffer(self._encrypt(counters.tobytes()), dtype=np.uint8)
        return stream.reshape(len(words), blocks * BLOCK_BYTES)[:, : -(-rows // 8)]


def name_words(names: NDArray[np.integer]) -> NDArray[np.uint32]:
    """The input of the stream for m names, (m, 3) words. Raises MixingError: they are neither ranks nor pseudonyms."""
    if names.ndim == 2 and names.dtype == np.uint8 and names.shape[1] >= NAME_BYTES:  # noqa: PLR2004 - a matrix
        first = np.ascontiguousarray(names[:, :NAME_BYTES])
        return first.view(">u4").astype(np.uint32)
    if names.ndim != 1 or not np.issubdtype(names.dtype, np.integer):
        raise MixingError(f"ranks are a vector of integers, got {names.dtype} of shape {names.shape}")
    if names.size and int(names.min()) < 0:
        raise MixingError("ranks start at 0, got a negative one")
    ranks = names.astype(np.uint64, copy=False)
    words = np.zeros((len(ranks), 3), np.uint32)
    words[:, 1], words[:, 2] = ranks >> np.uint64(32), ranks & np.uint64(0xFFFFFFFF)
    return words


class MixedRows(ABC):
    """Accumulates Y = S Q, (k, d), over batches of rows of Q; memory does not grow with the number of rows.

    Y is a function of the (name, row) pairs alone (docs/proofs/projection.md, 2). The caller vouches that each name
    occurs once. One caller at a time. Raises MixingError: k or d below 1.
    """

    def __init__(self, k: int, d: int) -> None:
        if k < 1 or d < 1:
            raise MixingError(f"a projection has k >= 1 rows and d >= 1 columns, got k={k} and d={d}")
        self._k = k
        self._d = d
        self._subjects = 0

    def add(self, names: NDArray[np.integer], q: NDArray[np.integer]) -> None:
        """Add m rows: `q` is (m, d) with |q| <= 2^15, row i belongs to the subject of that rank or pseudonym.

        Raises MixingError: shapes, types or ranges are wrong; nothing was added.
        """
        name_words(names)  # it refuses bad names before anything is added
        self._check(q, len(names))
        self._subjects += len(names)
        self._add(names, q)

    @abstractmethod
    def total(self) -> NDArray[np.int64]:
        """Y of everything added so far, (k, d)."""

    @abstractmethod
    def _add(self, names: NDArray[np.integer], q: NDArray[np.integer]) -> None: ...

    def _check(self, q: NDArray[np.integer], subjects: int) -> None:
        expected = (subjects, self._d)
        if q.shape != expected or not np.issubdtype(q.dtype, np.integer):
            raise MixingError(f"expected integers of shape {expected}, got {q.dtype} of shape {q.shape}")
        if q.size and (int(q.min()) < -MAX_ABS_ENTRY or int(q.max()) > MAX_ABS_ENTRY):
            raise MixingError(f"an entry exceeds {MAX_ABS_ENTRY} in magnitude; the projection would not be exact")
        if self._subjects + subjects > MAX_SUBJECTS:
            raise MixingError(f"more than {MAX_SUBJECTS} rows; the projection would not be exact")


def ones_projection(projection: MixedRows, n: int) -> NDArray[np.int64]:
    """S 1 over ranks 0..n-1, (k,), by an empty projection of one column.

    That is the public intercept column of docs/design/encoding.md#intercept, free of noise.
    """
    if n < 0:
        raise MixingError(f"there cannot be {n} people")
    for start in range(0, n, _BATCH):
        ranks = np.arange(start, min(start + _BATCH, n), dtype=np.int64)
        projection.add(ranks, np.ones((len(ranks), 1), dtype=np.int64))
    return projection.total()[:, 0]


class Projection(MixedRows):
    """Accumulates Y = S Q for the dense S of a public seed of 32 bytes, by NumPy."""

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
    """The one entry of each column of S, by a public seed. Not safe to share between threads.

    Of the subject's first AES block, big-endian, U are the first 64 bits and s the next one: the entry stands in row
    floor(U k / 2^64) and is +1 where s is 0, -1 where it is 1.
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
    """The same as `Projection`, by compiled loops. `add` uses two threads, each for its own rows."""

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
    """||S e_i||^2 of every column: the weight of one row in a block's squared sensitivity.

    k entries +-1, the paper's (Wu et al. 2022), or one if mixing is sparse.
    """
    return k if projection is None else 1


def mixed_rows(projection: ProjectionName | None, seed: bytes, *, k: int, d: int) -> MixedRows:
    """An empty sum of d columns; dense ones by loops if the package was built with them, to the same integers."""
    if projection is not None:
        return SparseProjection(seed, k, d)
    return CompiledProjection(seed, k, d) if available() else Projection(seed, k, d)
