"""Keys, and the columns of their owner encrypted block by block (docs/proofs/linear-encryption.md, 1).

A ciphertext of m is (b, a), b = a s + e + Delta m; a is hashed from the layout, so b alone travels. One key, one set of
ciphertexts and one public key for each layout, ever: they are stored before they are sent, and a retry sends what was
stored. Two under one context would open the difference of their messages.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.layout import Layout, format_residues
from commingle.shared.ring.parameters import ENTRY_LIMIT, Parameters
from commingle.shared.ring.randomness import Entropy, errors, keystream, public_slots, ternary
from commingle.shared.ring.residues import Residues, products, residues, sums, to_coefficients, to_slots


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
    """One block of the owner's columns (`Layout.blocks`), encrypted under its key. Made once, and stored.

    Args:
        key: of this layout alone.
        layout: of the owner.
        block: start and stop.
        rows: (stop - start, d), entries at most 2^14 in absolute value.
        entropy: private; only tests give others than the operating system's.

    Raises:
        DomainError: rows of another shape or beyond 2^14.
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
    """The rows, if they have this shape and no entry is too large: the bounds on noise rest on both."""
    if rows.shape != shape or max(int(rows.max()), -int(rows.min())) > ENTRY_LIMIT:
        raise DomainError(f"rows of shape {shape} with entries up to {ENTRY_LIMIT} are asked for")
    return rows
