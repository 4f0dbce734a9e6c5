"""The linear equations of one party's ciphertexts, as both of its proofs have them (docs/proofs/proved-bounds.md, 2).

b = a s + e + Delta m modulo q for the public key (m = 0) and the ciphertexts of a segment of rows. The segments of a
party are tied together by its key, which has one ternary secret only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving import code
from commingle.shared.proving.parameters import REPEATS, Sizes
from commingle.shared.proving.relation import Term
from commingle.shared.proving.transcript import Challenge
from commingle.shared.ring.encryption import key_half
from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.layout import BLOCK_STRIPES, Layout, parse_residues
from commingle.shared.ring.randomness import public_slots
from commingle.shared.ring.residues import Residues, to_coefficients

SECRET_BITS = 2  # a ternary number is their sum less 1
_SEGMENT_POLYNOMIALS = 64


def segment_rows(layout: Layout) -> int:
    """How many rows are proved together, but for the last ones: some blocks, about 64 polynomials."""
    return max(1, _SEGMENT_POLYNOMIALS // (BLOCK_STRIPES * layout.groups)) * layout.block_rows


def segments(layout: Layout) -> Iterator[tuple[int, int]]:
    """The (start, stop) of the rows that are proved together."""
    size = segment_rows(layout)
    return ((start, min(start + size, layout.rows)) for start in range(0, layout.rows, size))


@dataclass(frozen=True, slots=True)
class Weights:
    """Of all equations modulo one prime, repeats first: lambda of polynomials, the key's first, mu of coefficients.

    Attributes:
        prime: the modulus.
        across: lambda, (repeats, 1 + polynomials).
        along: mu, (repeats, N).
        secret: g with <mu, sum lambda a s> = <g, s>, (repeats, N).
        known: <mu, sum lambda b>, of each repeat.
    """

    prime: int
    across: Residues
    along: Residues
    secret: Residues
    known: list[int]


@dataclass(frozen=True)
class Ciphertexts:
    """A public key and the first halves of a segment's ciphertexts, as received, and reduced.

    Attributes:
        layout: their owner's.
        segment: start and stop of the rows, one of `segments`.
        public_key: the owner's.
        blocks: ciphertexts of the segment's blocks, in order.

    Raises:
        CiphertextError: a key or ciphertexts that are not residues of their size.
        DomainError: the segment is none, or has other blocks.
    """

    layout: Layout
    segment: tuple[int, int]
    public_key: bytes
    blocks: Sequence[bytes]

    def __post_init__(self) -> None:
        """All bytes are read once, so that what is malformed is refused before anything is computed."""
        if self.segment not in segments(self.layout):
            raise DomainError("what is proved is proved of one segment of rows")
        ring, shapes = self.layout.parameters, self._shapes
        if len(shapes) != len(self.blocks):
            raise DomainError("a segment has other blocks")
        for received, shape in zip((self.public_key, *self.blocks), (self.layout.key_shape, *shapes), strict=True):
            parse_residues(received, shape, ring.primes)

    @cached_property
    def _shapes(self) -> list[tuple[int, int, int, int]]:
        start, stop = self.segment
        return [self.layout.block_shape(*block) for block in self.layout.blocks() if start <= block[0] < stop]

    @property
    def sizes(self) -> Sizes:
        """Of a proof in this ring."""
        return Sizes(self.layout.parameters)

    @property
    def count(self) -> int:
        """The rows of the segment."""
        return self.segment[1] - self.segment[0]

    @property
    def pieces(self) -> int:
        """How many rows of l the coefficients of a polynomial take."""
        return self.sizes.places // self.sizes.message

    @property
    def stripes(self) -> int:
        """Of the segment."""
        return self.layout.stripes(*self.segment)

    @property
    def groups(self) -> int:
        """How many rows of l a column of the segment takes: whole stripes, or whole parts of one."""
        packed, parts = self._packing
        return -(-self.stripes // packed) * parts

    @property
    def _packing(self) -> tuple[int, int]:
        """How many stripes share a row, and how many rows a stripe takes: one of both is 1."""
        length, message = self.layout.stripe_rows, self.sizes.message
        return max(1, message // length), -(-length // message)

    def in_groups(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Something of each row of the segment, (count, m), as the matrix has it, zeros between: (groups, m, l)."""
        (packed, parts), length = self._packing, self.layout.stripe_rows
        units, columns = self.groups // parts, rows.shape[1]
        padded = np.zeros((units * packed * length, columns), rows.dtype)
        padded[: self.count] = rows
        found = np.zeros((units, parts * self.sizes.message, columns), rows.dtype)
        found[:, : packed * length] = padded.reshape(units, packed * length, columns)
        return found.reshape(self.groups, self.sizes.message, columns).transpose(0, 2, 1)

    def first_halves(self, k: int) -> Residues:
        """Modulo prime k, by coefficients, the key's first: (polynomials, N)."""
        ring = self.layout.parameters
        key = plane(self.public_key, self.layout.key_shape, k)[None]
        parts = [plane(part, shape, k) for part, shape in zip(self.blocks, self._shapes, strict=True)]
        held = to_coefficients(key[None], ring.primes[k : k + 1 or None])[0]
        return np.concatenate([held, *(part.reshape(-1, ring.degree) for part in parts)])

    @cached_property
    def digest(self) -> bytes:
        """Names layout, segment, key and ciphertexts: 32 bytes."""
        facts = b"".join(fact.to_bytes(8, "little") for fact in self.segment)
        parts = b"".join(sha256(part).digest() for part in (self.public_key, *self.blocks))
        return sha256(self.layout.label + facts + parts).digest()

    @property
    def polynomials(self) -> int:
        """The key and the ciphertexts."""
        return 1 + sum(stripes * groups for _, stripes, groups, _ in self._shapes)

    def second_halves(self, k: int) -> Residues:
        """Modulo prime k, in slots, the key's first: hashed from the layout, (polynomials, N)."""
        layout, prime = self.layout, self.layout.parameters.primes[k]
        halves = public_slots(layout.label, layout.indices(*self.segment), layout.parameters.degree, prime)
        return np.concatenate([key_half(layout)[k][None], halves])

    def weights(self, challenge: Challenge, k: int) -> Weights:
        """The combination of all equations that a challenge asks for, modulo prime k."""
        prime = self.layout.parameters.primes[k]
        across = challenge.numbers(b"polynomials", self.polynomials, prime)
        along = challenge.numbers(b"coefficients", self.sizes.places, prime)
        secret = transposed_products(code.combinations(across, self.second_halves(k), prime), along, prime)
        known = code.product(code.combinations(across, self.first_halves(k), prime), along, prime)
        return Weights(prime, across, along, secret, [int(number) for number in known.sum(axis=1, dtype=np.uint64)])

    def secret_term(self, weights: Weights) -> tuple[Term, list[int]]:
        """<g, s>, and its constants: the secret's bits are the first rows, (pieces, 2)."""
        rows = np.arange(SECRET_BITS * self.pieces).reshape(self.pieces, SECRET_BITS)
        term = Term(rows, np.ones((1, SECRET_BITS), np.uint32), multipliers(weights.secret, self.sizes, weights.prime))
        return term, [int(number) for number in weights.secret.sum(axis=1, dtype=np.uint64)]

    def row_terms(self, weights: Weights, numbers: NDArray[np.intp]) -> Iterator[Term]:
        """<mu, sum lambda Delta m>: the rows of each column have these numbers, (groups, columns).

        Row t of a stripe counts its ciphertext's lambda times mu of its coefficient, so that what the rows of a column
        are multiplied by is the same for all stripes at one place of a row, or for one part of all stripes.
        """
        layout, (packed, parts) = self.layout, self._packing
        delta = layout.parameters.delta % weights.prime
        if not delta:
            return
        across = np.zeros((REPEATS, self.groups // parts * packed, layout.groups), np.uint64)
        across[:, : self.stripes] = weights.across[:, 1:].reshape(REPEATS, -1, layout.groups)
        scaled = code.reduced(across * np.uint64(delta), weights.prime)
        for group in range(layout.groups):
            columns = np.arange(group * layout.width, min((group + 1) * layout.width, layout.columns))
            for place in range(packed * parts):
                lines = numbers[place % parts :: parts, columns].T
                placed = self._placed(weights.along, len(columns), place)
                yield Term(
                    lines, scaled[:, place % packed :: packed, group], multipliers(placed, self.sizes, weights.prime)
                )

    def _placed(self, along: Residues, columns: int, place: int) -> Residues:
        """The mu of the coefficients that one place of a row, or one part of a stripe, meets: (repeats, columns l)."""
        length, message, (packed, parts) = self.layout.stripe_rows, self.sizes.message, self._packing
        held = np.zeros((REPEATS, columns, parts * message * packed), np.uint32)
        start = place * length if parts == 1 else 0
        held[..., start : start + length] = along[:, : columns * length].reshape(REPEATS, columns, length)
        part = slice(place * message, (place + 1) * message) if parts > 1 else slice(message)
        return held[..., part].reshape(REPEATS, -1)


def plane(received: bytes, shape: Sequence[int], k: int) -> Residues:
    """Residues modulo prime k of bytes that were parsed before, (...)."""
    return np.array(np.frombuffer(received, "<u4").reshape(shape)[k], np.uint32)


def transposed_products(slots: Residues, weights: Residues, prime: int) -> Residues:
    """The g with <weights, a s> = <g, s> for every s, (m, N): the coefficients of a(1/x) times the weights.

    In slots a(1/x) is a from its end: the slot behind k, whose bits are the other ones, has the inverse root.
    """
    held = code.values(weights, weights.shape[1], prime)
    return code.interpolated(code.product(slots[:, ::-1], held, prime), prime)


def multipliers(weights: Residues, sizes: Sizes, prime: int) -> Residues:
    """Weights of l entries a line as polynomials with these values: (repeats, s l) to all places, (s, repeats, N)."""
    lines = weights.reshape(REPEATS, -1, sizes.message).transpose(1, 0, 2)
    found = code.interpolated(lines.reshape(-1, sizes.message), prime)
    return code.values(found, sizes.places, prime).reshape(len(lines), REPEATS, sizes.places)
