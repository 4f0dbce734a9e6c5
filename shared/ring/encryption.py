"""Random draws, keys, and the encryption of an owner's columns block by block (docs/proofs/linear-encryption.md, 1).

A ciphertext of m is (b, a), b = a s + e + Delta m; a is hashed from the layout, so b alone travels. One key, one set of
ciphertexts and one public key for each layout, ever: they are stored before they are sent, and a retry sends the stored
ones. Two under one context would open the difference of their messages.

Private entropy is a function from a count to so many independent uniform bytes: `os.urandom`, or AES-256 in counter
mode under a key that came from it (`keystream`), which makes them ten times as fast.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import shake_128
from typing import TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from commingle.shared.errors import DomainError
from commingle.shared.ring.parameters import ENTRY_LIMIT, Layout, Parameters, format_residues
from commingle.shared.ring.residues import Residues, products, residues, sums, to_coefficients, to_slots

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


@dataclass(frozen=True, slots=True, repr=False)
class SecretKey:
    """A ternary polynomial in slots, (primes, N). Its repr says nothing."""

    slots: Residues = field(repr=False)

    def __repr__(self) -> str:
        return "SecretKey(…)"


def secret_key(seed: bytes, parameters: Parameters) -> SecretKey:
    """The key of 32 bytes from the operating system, which the owner stores, and deletes when the release is over."""
    secret = ternary(parameters.degree, keystream(seed))
    return SecretKey(to_slots(residues(secret, parameters.primes), parameters.primes))


def public_key(key: SecretKey, layout: Layout, entropy: Entropy) -> bytes:
    """An encryption of zero, in slots (`Layout.key_shape`), with which evaluators make fresh ones. Made once."""
    ring = layout.parameters
    noise = to_slots(residues(errors((ring.degree,), ring.error_bound, entropy), ring.primes), ring.primes)
    return format_residues(sums(products(key_half(layout), key.slots, ring.primes), noise, ring.primes))


def key_half(layout: Layout) -> Residues:
    """The random half of the public key, in slots: hashed, so that its owner cannot choose it."""
    ring = layout.parameters
    return np.stack([public_slots(layout.label, [0], ring.degree, prime)[0] for prime in ring.primes])


def encrypt(
    key: SecretKey, layout: Layout, block: tuple[int, int], rows: NDArray[np.integer], entropy: Entropy
) -> bytes:
    """One block of the owner's columns (`Layout.blocks`), under its key of this layout. Made once, and stored.

    Rows are (stop - start, d), entries at most 2^14 in absolute value. `entropy` is private; only tests give others
    than the operating system's. Raises DomainError: rows of another shape or beyond 2^14.
    """
    ring, shape = layout.parameters, layout.block_shape(*block)
    messages = columns_in_stripes(layout, block, rows)
    noise = errors(shape[1:], ring.error_bound, entropy)
    made = np.empty(shape, np.uint32)
    for k, prime in enumerate(ring.primes):
        half = public_slots(layout.label, layout.indices(*block), ring.degree, prime).reshape(1, *shape[1:])
        masks = to_coefficients(products(half, key.slots[k : k + 1], [prime]), [prime])[0]
        scaled = messages * (ring.delta % prime) % prime  # zero for primes that a reply drops
        made[k] = (masks + (scaled + noise)) % prime
    return format_residues(made)


def columns_in_stripes(layout: Layout, block: tuple[int, int], rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """Rows of the owner as polynomials: (stripes, groups, N), zero where there is no row or column."""
    _, stripes, groups, degree = layout.block_shape(*block)
    length, width = layout.stripe_rows, layout.width
    padded = np.zeros((stripes * length, groups * width), np.int64)
    padded[: block[1] - block[0], : layout.columns] = within_limits(rows, (block[1] - block[0], layout.columns))
    polynomials = np.zeros((stripes, groups, degree), np.int64)
    ordered = padded.reshape(stripes, length, groups, width).transpose(0, 2, 3, 1)
    polynomials[..., : width * length] = ordered.reshape(stripes, groups, width * length)
    return polynomials


def within_limits(rows: NDArray[np.integer], shape: tuple[int, int]) -> NDArray[np.integer]:
    """The rows, if they have this shape and no entry is too large: the bounds on noise need both."""
    if rows.shape != shape or max(int(rows.max()), -int(rows.min())) > ENTRY_LIMIT:
        raise DomainError(f"rows of shape {shape} with entries up to {ENTRY_LIMIT} are asked for")
    return rows
