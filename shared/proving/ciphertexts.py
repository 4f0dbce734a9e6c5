"""The linear equations of one party's ciphertexts, as both of its proofs have them (docs/proofs/proved-bounds.md, 2).

b = a s + e + Delta m modulo q for the public key (m = 0) and the ciphertexts of a segment of rows. The segments of a
party are tied together by its key, which has one ternary secret only.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.errors import DomainError
from commingle.shared.proving import code
from commingle.shared.proving.parameters import REPEATS, SECRET_BITS, SQUARES, Sizes
from commingle.shared.proving.relation import Term, multipliers
from commingle.shared.proving.transcript import Challenge
from commingle.shared.ring.encryption import key_half, public_slots
from commingle.shared.ring.parameters import BLOCK_STRIPES, Layout, parse_residues
from commingle.shared.ring.residues import Residues, to_coefficients

SEGMENT_WORDS = 18 << 20  # of a witness, about: 72 MiB


def segment_rows(layout: Layout) -> int:
    """How many rows are proved together, except the last ones: as many blocks as a matrix may hold."""
    words = BLOCK_STRIPES * (layout.parameters.degree * layout.groups + layout.stripe_rows * (layout.columns + SQUARES))
    return max(1, SEGMENT_WORDS // words) * layout.block_rows


def segments(layout: Layout) -> Iterator[tuple[int, int]]:
    """The (start, stop) of the rows that are proved together, in order."""
    size = segment_rows(layout)
    return ((start, min(start + size, layout.rows)) for start in range(0, layout.rows, size))


def polynomial_count(layout: Layout, rows: int) -> int:
    """Polynomials of a segment of so many rows, and one of the key."""
    return 1 + layout.stripes(0, rows) * layout.groups


def packing(layout: Layout, sizes: Sizes) -> tuple[int, int]:
    """How many stripes share a row of the matrix, and how many rows a stripe takes; one of both is 1."""
    return max(1, sizes.message // layout.stripe_rows), -(-layout.stripe_rows // sizes.message)


def group_count(layout: Layout, sizes: Sizes, rows: int) -> int:
    """Rows of l that a column of `rows` entries takes: whole stripes, or whole parts of one."""
    packed, parts = packing(layout, sizes)
    return -(-layout.stripes(0, rows) // packed) * parts


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights modulo one prime, repeats first: lambda of polynomials, the key's first, and mu of coefficients.

    The lambda of a stripe is the product of one of the row of the matrix that it is in and one of its place there, and
    mu of one of a column's window and one of the place in it, so that all columns are one combination of their rows.
    """

    prime: int
    across: Residues  # lambda, (repeats, 1 + polynomials)
    # of rows of the matrix that hold stripes whole, or of stripes that take several: (repeats, units, groups)
    units: Residues
    places: Residues  # of places in such a row, (repeats, packed)
    windows: Residues  # of windows of L coefficients, and what is left over, (repeats, windows)
    inside: Residues  # of places in a window, (repeats, L)
    along: Residues  # mu, (repeats, N)
    secret: Residues  # g with <mu, sum lambda a s> = <g, s>, (repeats, N)
    known: list[int]  # <mu, sum lambda b>, of each repeat


@dataclass(frozen=True)
class Ciphertexts:
    """A public key and the first halves of a segment's ciphertexts, as received, and reduced.

    Raises CiphertextError: a key or ciphertexts that are not residues of their size; DomainError: the segment is none,
    or has other blocks.
    """

    layout: Layout
    segment: tuple[int, int]  # start and stop of the rows, one of `segments`
    public_key: bytes
    blocks: Sequence[bytes]  # ciphertexts of the segment's blocks, in order
    sizes: Sizes

    def __post_init__(self) -> None:
        """Reads all bytes once, to refuse what is malformed before anything is computed."""
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
    def count(self) -> int:
        return self.segment[1] - self.segment[0]

    @property
    def groups(self) -> int:
        return group_count(self.layout, self.sizes, self.count)

    def in_groups(self, rows: NDArray[Any]) -> NDArray[Any]:
        """From a value for each row of the segment, (count, m), to the matrix, zeros between: (groups, m, l)."""
        (packed, parts), length = packing(self.layout, self.sizes), self.layout.stripe_rows
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
        facts = b"".join(fact.to_bytes(8, "little") for fact in self.segment)
        parts = b"".join(sha256(part).digest() for part in (self.public_key, *self.blocks))
        return sha256(self.layout.label + facts + parts).digest()

    def second_halves(self, k: int) -> Residues:
        """Modulo prime k, in slots, the key's first: hashed from the layout, (polynomials, N)."""
        layout, prime = self.layout, self.layout.parameters.primes[k]
        halves = public_slots(layout.label, layout.indices(*self.segment), layout.parameters.degree, prime)
        return np.concatenate([key_half(layout)[k][None], halves])

    def weights(self, challenge: Challenge, k: int) -> Weights:
        """The combination of all equations that a challenge asks for, modulo prime k."""
        prime = self.layout.parameters.primes[k]
        (packed, parts), groups = packing(self.layout, self.sizes), self.layout.groups
        units = challenge.numbers(b"units", self.groups // parts * groups, prime).reshape(REPEATS, -1, groups)
        places = challenge.numbers(b"places", packed, prime)
        stripes = code.product(units[:, :, None], places[:, None, :, None], prime).reshape(REPEATS, -1, groups)
        held = stripes[:, : self.layout.stripes(*self.segment)].reshape(REPEATS, -1)
        across = np.hstack([challenge.numbers(b"key", 1, prime), held])
        degree, length = self.layout.parameters.degree, self.layout.stripe_rows
        windows = challenge.numbers(b"windows", -(-degree // length), prime)
        inside = challenge.numbers(b"inside", length, prime)
        along = code.product(windows[:, :, None], inside[:, None], prime).reshape(REPEATS, -1)[:, :degree]
        secret = transposed_products(code.combinations(across, self.second_halves(k), prime), along, prime)
        known = code.product(code.combinations(across, self.first_halves(k), prime), along, prime)
        total = [int(number) for number in known.sum(axis=1, dtype=np.uint64)]
        return Weights(prime, across, units, places, windows, inside, along, secret, total)

    @property
    def secret_rows(self) -> int:
        return SECRET_BITS * self.sizes.pieces

    @property
    def error_rows(self) -> NDArray[np.intp]:
        """Numbers of the rows of errors, right behind the secret's: (polynomials, the key's first; pieces)."""
        shape = polynomial_count(self.layout, self.count), self.sizes.pieces
        return self.secret_rows + np.arange(np.prod(shape)).reshape(shape)

    def linear(
        self, challenge: Challenge, k: int, column_rows: NDArray[np.intp]
    ) -> tuple[Iterable[Term], Sequence[int]]:
        """The equations of the key and all ciphertexts modulo prime k; rows of columns are (groups, columns)."""
        weights = self.weights(challenge, k)
        constants = weights.secret.sum(axis=1, dtype=np.uint64).tolist()  # a secret's bits are its numbers and 1
        terms = self._terms(weights, column_rows)
        return terms, [known + shift for known, shift in zip(weights.known, constants, strict=True)]

    def _terms(self, weights: Weights, column_rows: NDArray[np.intp]) -> Iterator[Term]:
        """<g, s>, the secret's bits being the first rows, (pieces, 2); <mu, sum lambda e>; <mu, sum lambda Delta m>."""
        rows, ones = np.arange(self.secret_rows).reshape(-1, SECRET_BITS), np.ones((1, SECRET_BITS), np.uint32)
        yield Term(rows, ones, multipliers(weights.secret, self.sizes, weights.prime))
        yield Term(self.error_rows.T, weights.across, multipliers(weights.along, self.sizes, weights.prime))
        if self.layout.parameters.delta % weights.prime:
            yield self._row_term(weights, column_rows)

    def _row_term(self, weights: Weights, numbers: NDArray[np.intp]) -> Term:
        """The last of these: a line for each row that a stripe takes, of all columns and units.

        In a place behind the last stripe, or in a stripe behind its rows, an honest owner has zeros: an equation, too.
        """
        layout, (_, parts), prime = self.layout, packing(self.layout, self.sizes), weights.prime
        group, window = np.divmod(np.arange(layout.columns), layout.width)
        worth = code.product(weights.units[..., group], weights.windows[:, None, window], prime)
        scaled = code.reduced(worth * np.uint64(layout.parameters.delta % prime), prime)
        lines = numbers[:, : layout.columns].reshape(-1, parts, layout.columns).transpose(1, 0, 2).reshape(parts, -1)
        placed = np.zeros((REPEATS, parts * self.sizes.message), np.uint32)
        met = code.product(weights.places[:, :, None], weights.inside[:, None], prime).reshape(REPEATS, -1)
        placed[:, : met.shape[1]] = met
        return Term(lines, scaled.reshape(REPEATS, -1), multipliers(placed, self.sizes, prime))


def plane(received: bytes, shape: Sequence[int], k: int) -> Residues:
    """Residues modulo prime k of bytes that were parsed before, (...)."""
    return np.array(np.frombuffer(received, "<u4").reshape(shape)[k], np.uint32)


def transposed_products(slots: Residues, weights: Residues, prime: int) -> Residues:
    """The g with <weights, a s> = <g, s> for every s, (m, N): the coefficients of a(1/x) times the weights.

    In slots a(1/x) is a from its end: the slot of k with all bits turned has the inverse root.
    """
    held = code.values(weights, weights.shape[1], prime)
    return code.interpolated(code.product(slots[:, ::-1], held, prime), prime)
