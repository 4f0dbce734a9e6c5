"""The public seeded sign stream: entries of S = sqrt(k) B (docs/design/encoding.md#sign-stream).

Column i of S (one column per subject) is a stream of bits that depends on the release seed and the subject's
name only, so that every party on every machine uses the same matrix and nobody stores it:

    K       = SHA-256("commingle/v1/mixing" || seed)
    block j = AES-256_K( name, 12 bytes || j as 4 bytes big-endian ),  j = 0, 1, ...
    bits    = the blocks' bytes, most significant bit first;  bit 0 means +1, bit 1 means -1

The name is the subject's rank, big-endian, or the first bytes of a keyed subject's pseudonym.
"""

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from commingle.shared.errors import MixingError

SEED_BYTES = 32
BLOCK_BITS = 128
BLOCK_BYTES = BLOCK_BITS // 8
NAME_BYTES = 12
_LABEL = b"commingle/v1/mixing"


class SignStream:
    """The sign matrix of one release seed, with random access by name. Not safe to share between threads.

    Args:
        seed: of the release, 32 bytes.
        label: what the stream is for; another label is another stream.

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
    """What the stream takes of m names, (m, 3) words.

    Raises:
        MixingError: they are neither ranks nor pseudonyms.
    """
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
