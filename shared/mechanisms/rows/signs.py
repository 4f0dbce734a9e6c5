"""The public seeded sign stream: entries of S = sqrt(k) B (docs/design/mixing.md#sign-stream).

Column i of S (one column per subject) is a stream of bits that depends on the release seed and the subject's
rank only, so that every party on every machine uses the same matrix and nobody stores it:

    K       = SHA-256("commingle/v1/mixing" || seed)
    block j = AES-256_K( rank as 12 bytes big-endian || j as 4 bytes big-endian ),  j = 0, 1, ...
    bits    = the blocks' bytes, most significant bit first;  bit 0 means +1, bit 1 means -1
"""

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from commingle.shared.errors import MixingError

SEED_BYTES = 32
BLOCK_BITS = 128
BLOCK_BYTES = BLOCK_BITS // 8
_LABEL = b"commingle/v1/mixing"


class SignStream:
    """The sign matrix of one release seed, with random access by rank. Not safe to share between threads.

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

    def packed(self, ranks: NDArray[np.integer], rows: int, *, first_block: int = 0) -> NDArray[np.uint8]:
        """Bits 128*first_block .. 128*first_block + rows - 1 of the given columns, eight to a byte.

        Args:
            ranks: m ranks >= 0 in any order.
            rows: number of rows of S, >= 1.
            first_block: AES block to start from.

        Returns:
            (m, ceil(rows / 8)) bytes, most significant bit first. Where `rows` is no multiple of 8 the last
            byte goes on with the stream.

        Raises:
            MixingError: rows < 1, or ranks that are not a vector of integers >= 0.
        """
        ranks = checked_ranks(ranks)
        if rows < 1:
            raise MixingError(f"the projection needs at least one row, got {rows}")
        blocks = -(-rows // BLOCK_BITS)
        counters = np.zeros((len(ranks), blocks, 4), dtype=">u4")
        counters[:, :, 1] = (ranks >> 32)[:, None]
        counters[:, :, 2] = (ranks & 0xFFFFFFFF)[:, None]
        counters[:, :, 3] = np.arange(first_block, first_block + blocks)
        stream = np.frombuffer(self._encrypt(counters.tobytes()), dtype=np.uint8)
        return stream.reshape(len(ranks), blocks * BLOCK_BYTES)[:, : -(-rows // 8)]


def checked_ranks(ranks: NDArray[np.integer]) -> NDArray[np.uint64]:
    """The ranks as uint64, or a MixingError where they are not a vector of integers >= 0."""
    if ranks.ndim != 1 or not np.issubdtype(ranks.dtype, np.integer):
        raise MixingError(f"ranks are a vector of integers, got {ranks.dtype} of shape {ranks.shape}")
    if ranks.size and int(ranks.min()) < 0:
        raise MixingError("ranks start at 0, got a negative one")
    return ranks.astype(np.uint64, copy=False)
