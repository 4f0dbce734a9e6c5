"""An evaluator's computation and reply, and what the owner reads in it (docs/proofs/linear-encryption.md, 2 to 4).

Of a product of ciphertext and own column, the second half is needed whole. Of the first half only the coefficients that
hold inner products are needed, which are sums of its own coefficients times rows: no transform, and no other
coefficient is ever computed or sent. Memory is for sums and one block, whatever the number of rows.

A reply is made in this order, and no step may be left out: a fresh encryption of zero hides the second half, the
evaluator's Gaussian noise makes what is opened private, a flood hides the errors, and then the primes that are not
needed any more are dropped.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commingle.shared.errors import CiphertextError, DomainError
from commingle.shared.ring.encryption import (
    Entropy,
    SecretKey,
    errors,
    floods,
    key_half,
    public_slots,
    ternary,
    within_limits,
)
from commingle.shared.ring.parameters import MESSAGE_LIMIT, Layout, format_residues, parse_residues
from commingle.shared.ring.residues import (
    Residues,
    divide,
    integers,
    kernels,
    products,
    residues,
    sums,
    to_coefficients,
    to_slots,
)


class InnerProducts:
    """Sums over the blocks so far: of one owner's ciphertexts with the evaluator's d columns.

    Never send them: the second halves are a linear function of the evaluator's rows. `replies.make_reply` hides them.
    """

    __slots__ = ("_blocks", "_first", "_second", "_taken", "columns", "layout")

    def __init__(self, layout: Layout, columns: int) -> None:
        ring = layout.parameters
        self.layout, self.columns = layout, columns
        self._blocks, self._taken = deque(layout.blocks()), False
        self._first = np.zeros((len(ring.primes), layout.columns, columns), np.int64)
        self._second = np.zeros((len(ring.primes), layout.groups, columns, ring.degree), np.uint64)

    def __repr__(self) -> str:
        return "InnerProducts(…)"

    def add(self, received: bytes, rows: NDArray[np.integer]) -> None:
        """Add the next block of ciphertexts, as `encrypt` made it, with the evaluator's rows of the same subjects.

        Rows are (stop - start, d), entries at most 2^14 in absolute value. Raises CiphertextError: not residues of this
        block's size, and nothing is added; DomainError: rows of another shape or beyond 2^14, or no block is left.
        """
        layout, ring = self.layout, self.layout.parameters
        if not self._blocks:
            raise DomainError("all blocks were added")
        block = self._blocks[0]
        ciphertexts = parse_residues(received, layout.block_shape(*block), ring.primes)
        stripes = self._stripes(block, rows)
        self._blocks.popleft()
        for k, prime in enumerate(ring.primes):
            half = public_slots(layout.label, layout.indices(*block), ring.degree, prime)
            half = half.reshape(ciphertexts.shape[1:])
            kernels().add_products(self._second[k], half, self._reversed_slots(stripes, prime), prime)
            words = ciphertexts[k].view(np.int32)
            kernels().add_windows(self._first[k], words, stripes, layout.width, prime)

    def take(self) -> tuple[Residues, NDArray[np.uint64]]:
        """The sums, once: first halves of the coefficients that hold inner products, and second halves in slots.

        They are (primes, owner's columns, d), and (primes, groups, d, N), not reduced. Two replies to one set of
        ciphertexts would carry two noises, and show more than one. Raises DomainError: blocks are missing, or the sums
        were taken before.
        """
        if self._taken or self._blocks:
            raise DomainError("one reply is made, when all blocks were added")
        self._taken = True
        return self._first.astype(np.uint32), self._second

    def _stripes(self, block: tuple[int, int], rows: NDArray[np.integer]) -> NDArray[np.int32]:
        """The evaluator's rows of a block by stripe and column: (stripes, d, L), zero behind the last row."""
        count, length = self.layout.stripes(*block), self.layout.stripe_rows
        padded = np.zeros((count * length, self.columns), np.int32)
        padded[: len(rows)] = within_limits(rows, (block[1] - block[0], self.columns))
        return np.ascontiguousarray(padded.reshape(count, length, self.columns).transpose(0, 2, 1))

    def _reversed_slots(self, stripes: NDArray[np.int32], prime: int) -> Residues:
        """The polynomials sum over t of y_t x^(L - 1 - t) in slots: (stripes, d, N)."""
        polynomials = np.zeros((1, *stripes.shape[:2], self.layout.parameters.degree), np.uint32)
        polynomials[..., : stripes.shape[2]] = residues(stripes[..., ::-1], [prime])
        return np.asarray(to_slots(polynomials, [prime])[0])


@dataclass(frozen=True, slots=True, repr=False)
class Hiding:
    """The random numbers that hide one column of the evaluator's sums; its proof is about them.

    Its repr says nothing.
    """

    # blind, error: the secret of the fresh encryption of zero, and its errors, (groups, N) each
    blind: NDArray[np.int8] = field(repr=False)
    error: NDArray[np.int8] = field(repr=False)
    # floods, noise: one for each number; the latter are the evaluator's
    floods: list[int] = field(repr=False)
    noise: list[int] = field(repr=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


@dataclass(frozen=True, slots=True, repr=False)
class HiddenSums(Hiding):
    """One column of the evaluator's sums, hidden and not yet rounded, and what was drawn for it."""

    second: Residues = field(repr=False)  # second halves, (primes, groups, N)
    first: list[int] = field(repr=False)  # numbers modulo q, one for each of the owner's columns

    @property
    def hiding(self) -> Hiding:
        return Hiding(self.blind, self.error, self.floods, self.noise)


def make_reply(found: InnerProducts, public_key: bytes, noise: NDArray[np.int64], entropy: Entropy) -> Iterator[bytes]:
    """The reply, column by column of the evaluator, each of `Layout.reply_shape`. Made once, and stored."""
    hidden = hide_sums(found, public_key, noise, entropy)
    return (_rounded(found.layout, column.second, column.first) for column in hidden)


def hide_sums(
    found: InnerProducts, public_key: bytes, noise: NDArray[np.int64], entropy: Entropy
) -> Iterator[HiddenSums]:
    """The contents of a reply, column by column of the evaluator: `make_reply` rounds them, a proved reply is whole.

    `found` has all blocks added, `public_key` is the owner's as received, `noise` is the evaluator's discrete Gaussian
    noise, (owner's columns, evaluator's columns), drawn after its debit, and `entropy` is private: only tests give
    others than the operating system's. Raises CiphertextError: the public key is not residues of its size; DomainError:
    blocks are missing, a reply was made before, or the noise has another shape.
    """
    layout, ring = found.layout, found.layout.parameters
    if noise.shape != (layout.columns, found.columns):
        raise DomainError(f"noise of shape {(layout.columns, found.columns)} is asked for")
    received = parse_residues(public_key, layout.key_shape, ring.primes)
    key = np.stack([key_half(layout), received], axis=1)
    first, second = found.take()
    primes = np.array(ring.primes, np.uint64)[:, None, None]
    return (
        _hidden(
            layout,
            key,
            first=first[:, :, b],
            second=(second[:, :, b] % primes).astype(np.uint32),
            noise=noise[:, b].tolist(),
            entropy=entropy,
        )
        for b in range(found.columns)
    )


def _hidden(
    layout: Layout, key: Residues, *, first: Residues, second: Residues, noise: list[int], entropy: Entropy
) -> HiddenSums:
    """One column: first halves at its places, second halves in slots; key is the hashed and the owner's half."""
    ring, primes = layout.parameters, layout.parameters.primes
    blind = ternary(layout.groups * ring.degree, entropy).reshape(layout.groups, ring.degree)
    blind_slots = to_slots(residues(blind, primes), primes)
    error = errors(blind.shape, ring.error_bound, entropy)
    fresh = sums(second, products(key[:, :1], blind_slots, primes), primes)
    second = sums(to_coefficients(fresh, primes), residues(error, primes), primes)
    zero = _at_places(layout, to_coefficients(products(key[:, 1:], blind_slots, primes), primes))
    hidden = integers(sums(first, zero, primes), primes)
    drawn = floods(len(hidden), ring.flood_bits, entropy)
    numbers = [
        (word + flood + ring.delta * number) % ring.modulus
        for word, flood, number in zip(hidden, drawn, noise, strict=True)
    ]
    return HiddenSums(blind.astype(np.int8), error.astype(np.int8), drawn, noise, second, numbers)


def whole_reply(layout: Layout, hidden: HiddenSums) -> bytes:
    """One column before primes are dropped, of `Layout.whole_reply_shape`, as proofs need it."""
    primes = layout.parameters.primes
    numbers = np.array([[number % prime for number in hidden.first] for prime in primes], np.uint32)
    return format_residues(np.hstack([_flat(hidden.second), numbers]))


def round_reply(layout: Layout, whole: bytes) -> bytes:
    """The reply of a whole one after rounding: anybody can drop the primes. Raises CiphertextError: another size."""
    primes = layout.parameters.primes
    words = parse_residues(whole, layout.whole_reply_shape, primes)
    second = words[:, : -layout.columns].reshape(len(primes), layout.groups, -1)
    return _rounded(layout, second, integers(words[:, -layout.columns :], primes))


def _rounded(layout: Layout, second: Residues, first: list[int]) -> bytes:
    ring = layout.parameters
    return format_residues(np.hstack([_flat(divide(second, ring.primes, ring.kept)), _switched(layout, first)]))


def open_reply(key: SecretKey, layout: Layout, received: bytes, *, largest: int) -> NDArray[np.int64]:
    """The reply for one of the evaluator's columns, opened: (owner's columns,), inner products plus noise.

    `key` and `layout` are the owner's, `received` is one result of the evaluator's `make_reply`. No inner product
    within bounds exceeds `largest`, below 2^63, with its noise. A crafted reply opens parts of the key, and this limits
    how much of it (the proof's 5.2): it is refused before anything is published. Raises CiphertextError: not residues
    of this size, or a number beyond the largest. The release ends.
    """
    ring, primes = layout.parameters, layout.parameters.primes[: layout.parameters.kept]
    words = parse_residues(received, layout.reply_shape, primes)
    second = words[:, : -layout.columns].reshape(ring.kept, layout.groups, ring.degree)
    masks = to_coefficients(products(to_slots(second, primes), key.slots[: ring.kept, None], primes), primes)
    pairs = zip(integers(words[:, -layout.columns :], primes), integers(_at_places(layout, masks), primes), strict=True)
    half, modulus = 1 << (ring.scale_bits - 1), ring.kept_modulus
    opened = [((word - mask + modulus // 2) % modulus - modulus // 2 + half) >> ring.scale_bits for word, mask in pairs]
    if any(abs(number) > min(largest, MESSAGE_LIMIT - 1) for number in opened):
        raise CiphertextError(
            "a reply opens beyond its bound",
            remedy="The evaluator made it wrongly, or for another key. End the release.",
        )
    return np.array(opened, np.int64)


def _at_places(layout: Layout, coefficients: Residues) -> Residues:
    """What belongs to the owner's columns, (primes, columns), of numbers (primes, groups, N)."""
    return _flat(coefficients[..., list(layout.places)])[:, : layout.columns]


def _flat(polynomials: Residues) -> Residues:
    return polynomials.reshape(len(polynomials), -1)


def _switched(layout: Layout, words: list[int]) -> Residues:
    """Integers modulo q over the dropped primes, rounded, modulo those that are kept: (kept, count)."""
    ring = layout.parameters
    divided = [(word + ring.dropped // 2) // ring.dropped for word in words]
    return np.array([[word % prime for word in divided] for prime in ring.primes[: ring.kept]], np.uint32)
