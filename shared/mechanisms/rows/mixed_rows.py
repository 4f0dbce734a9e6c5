"""The public seeded sign stream: entries of S = sqrt(k) B (docs/design/encoding.md#sign-stream).

Column i of S (one column per subject) is a stream of bits that depends on the release seed and the subject's
name only, so that every party on every machine uses the same matrix and nobody stores it:

    K       = SHA-256("commingle/v1/mixing" || seed)
    block j = AES-256_K( name, 12 bytes || j as 4 bytes big-endian ),  j = 0, 1, ...
    bits    = the blocks' bytes, most significant bit first;  bit 0 means +1, bit 1 means -1

The name is the subject's rank, big-endian, or the first bytes of a keyed subject's pseudonym. Every sum of rows that
are mixed by such entries has its shapes in common, and the range in which it is exact (`MixedRows`).
"""

import hashlib
from abc import ABC, abstractmethod

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from commingle.shared.errors import MixingError

SEED_BYTES = 32
BLOCK_BITS = 128
BLOCK_BYTES = BLOCK_BITS // 8
NAME_BYTES = 12
_LABEL = b"commingle/v1/mixing"
MAX_ABS_ENTRY = 2**15
MAX_SUBJECTS = 2**53 // MAX_ABS_ENTRY
_BATCH = 2**16  # subjects per call in ones_projection


class SignStream:
    """The sign matrix of one release seed, with random access by name. Not safe to share between threads.

    The label is what the stream is for; another label is another stream.

    Raises:
        MixingError: the seed is not 32 bytes.
    """

    def __init__(self, seed: bytes, *, label: bytes = _LABEL) -> None:
        if len(seed) != SEED_BYTES:
            raise MixingError(f"a release seed has {SEED_BYTES} bytes, this one has {len(seed)}")
        key = hashlib.sha256(label + seed).digest()
        # ECB is right here: the input blocks are distinct public counters and the output is a public stream.
        cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305
        self._encrypt = cipher.encryptor().update

    def packed(self, names: NDArray[np.integer], rows: int, *, first_block: int = 0) -> NDArray[np.uint8]:
        """Bits 128*first_block .. 128*first_block + rows - 1 of the given columns, eight to a byte.

        Args:
            names: m ranks >= 0, or m pseudonyms (m, 12 or more) of bytes, in any order.
            rows: number of rows of S, >= 1.
            first_block: AES block to start from.

        Returns:
            (m, ceil(rows / 8)) bytes, most significant bit first. Where `rows` is no multiple of 8 the last
            byte goes on with the stream.

        Raises:
            MixingError: rows < 1, or names that are not such.
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
    """What the stream takes of m names, (m, 3) words. Raises MixingError: they are neither ranks nor pseudonyms."""
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

    Y is a function of the (name, row) pairs alone (docs/proofs/projection.md, 2). Each name must occur once, for which
    the caller vouches. One caller at a time.

    Raises:
        MixingError: k or d below 1.
    """

    def __init__(self, k: int, d: int) -> None:
        if k < 1 or d < 1:
            raise MixingError(f"a projection has k >= 1 rows and d >= 1 columns, got k={k} and d={d}")
        self._k = k
        self._d = d
        self._subjects = 0

    def add(self, names: NDArray[np.integer], q: NDArray[np.integer]) -> None:
        """Add m rows: `q` is (m, d) with |q| <= 2^15, row i belongs to the subject of that rank or pseudonym.

        Raises:
            MixingError: shapes, types or ranges are wrong; nothing was added.
        """
        name_words(names)  # what it refuses, before anything is added
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
    """S 1 over ranks 0..n-1, (k,): the public intercept column of docs/design/encoding.md#intercept, free of noise.

    The projection is an empty one, of one column.
    """
    if n < 0:
        raise MixingError(f"there cannot be {n} people")
    for start in range(0, n, _BATCH):
        ranks = np.arange(start, min(start + _BATCH, n), dtype=np.int64)
        projection.add(ranks, np.ones((len(ranks), 1), dtype=np.int64))
    return projection.total()[:, 0]
