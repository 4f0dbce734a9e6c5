"""What is drawn: secrets, errors and floods from private entropy, the random half of ciphertexts from a public hash.

Private entropy is a function from a count to so many independent uniform bytes: `os.urandom`, or AES-256 in counter
mode under a key that came from it (`keystream`), which makes them ten times as fast.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import shake_128
from typing import TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.residues import Residues

Entropy: TypeAlias = Callable[[int], bytes]

SEED_BYTES = 32

_THREES = 255  # bytes below it are as many of each remainder


def keystream(key: bytes) -> Entropy:
    """Bytes of AES-256-CTR under a secret key of 32 bytes, from counter 0. A key makes one stream, ever."""
    if len(key) != SEED_BYTES:
        raise DomainError(f"a key has {SEED_BYTES} bytes")
    encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return lambda count: encryptor.update(bytes(count))


def ternary(count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Independent and uniform in {-1, 0, 1}: bytes below 255 modulo 3."""
    drawn = np.empty(0, np.uint8)
    while len(drawn) < count:
        more = np.frombuffer(entropy(count - len(drawn)), np.uint8)
        drawn = np.concatenate([drawn, more[more < _THREES]])
    return (drawn % 3).astype(np.int64) - 1


def errors(shape: tuple[int, ...], bound: int, entropy: Entropy) -> NDArray[np.int64]:
    """Independent and centred binomial: ones among `bound` fair bits less ones among as many others; bound <= 32."""
    words = np.frombuffer(entropy(8 * int(np.prod(shape))), "<u8").reshape(shape)
    half = np.uint64((1 << bound) - 1)
    ones, others = np.bitwise_count(words & half), np.bitwise_count((words >> np.uint64(32)) & half)
    drawn: NDArray[np.int64] = ones.astype(np.int64) - others
    return drawn


def floods(count: int, bits: int, entropy: Entropy) -> list[int]:
    """Independent and uniform in [-2^bits, 2^bits)."""
    size = (bits + 8) // 8
    drawn = entropy(count * size)
    words = (int.from_bytes(drawn[size * k : size * (k + 1)]) for k in range(count))
    return [word % (2 << bits) - (1 << bits) for word in words]


def public_slots(label: bytes, indices: Sequence[int], degree: int, prime: int) -> Residues:
    """Uniform polynomials modulo a prime, in slots, which everybody hashes alike: (indices, N).

    They are `public_numbers`. An exchange asks for each up to eight times: the last few are remembered.
    """
    made = np.empty((len(indices), degree), np.uint32)
    for row, index in zip(made, indices, strict=True):
        row[:] = _remembered(label, index, degree, prime)
    return made


def public_numbers(label: bytes, index: int, count: int, prime: int) -> Residues:
    """The first words below the prime of SHAKE-128(label, index, prime), 31 bits of each four bytes: (count,)."""
    source = shake_128(label + index.to_bytes(8, "little") + prime.to_bytes(4, "little"))
    words, asked = np.empty(0, np.uint32), 4 * count
    while len(words) < count:
        asked += 256  # so many are rarely left out: primes are close to 2^31
        words = np.frombuffer(source.digest(asked), "<u4") & np.uint32(0x7FFFFFFF)
        words = words[words < prime]
    return words[:count]


_remembered = lru_cache(maxsize=1024)(public_numbers)  # 32 MB where N is 8192, and enough for 10 000 people
