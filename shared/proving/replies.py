"""An evaluator's replies, as equations about its rows and about what was drawn for them.

Of all replies of one party in a release (docs/proofs/proved-bounds.md, 1): each is made of the same columns y, with
whatever small secrets, with floods of at most 2^88, and with noise of at most 2^62. One part of the proof is about what
was drawn for the replies (`Drawn`), and one about each segment of its rows (`evaluator`); the first of them shares a
matrix with what was drawn. The equations of a reply are sums over all of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving import code
from commingle.shared.proving.ciphertexts import plane
from commingle.shared.proving.lengths import drawn_shape, number_rows
from commingle.shared.proving.parameters import NOISE_BITS, REPEATS, Sizes
from commingle.shared.proving.relation import Shape, Term, multipliers
from commingle.shared.proving.transcript import Challenge
from commingle.shared.ring.encryption import key_half, public_slots
from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.parameters import Layout, parse_residues
from commingle.shared.ring.residues import Residues


@dataclass(frozen=True, slots=True)
class ReplyWeights:
    """What the equations of one reply modulo one prime count, repeats first.

    Attributes:
        across: nu, of the evaluator's columns, the same for all replies, (repeats, d').
        groups: of the owner's groups, (repeats, groups).
        coefficients: of second halves, the same for all replies, (repeats, N).
        along: mu, the product of both, (repeats, groups, N).
        numbers: kappa, of the owner's columns, (repeats, d).
    """

    prime: int
    across: Residues
    groups: Residues
    coefficients: Residues
    along: Residues
    numbers: Residues


@dataclass(frozen=True)
class Reply:
    """One reply, before primes are dropped, and what it is an evaluation of. All of it is public.

    Attributes:
        layout, public_key, blocks: the owner's; all of its ciphertexts, in order.
        columns: `ring.replies.whole_reply` of each of the evaluator's columns.

    Raises:
        CiphertextError: a key, ciphertexts or a reply that are not residues of their size.
        DomainError: blocks are missing.
    """

    layout: Layout
    public_key: bytes
    blocks: Sequence[bytes]
    columns: Sequence[bytes]

    def __post_init__(self) -> None:
        """All bytes are read once, so that what is malformed is refused before anything is computed."""
        layout, primes = self.layout, self.layout.parameters.primes
        if len(self._shapes) != len(self.blocks):
            raise DomainError("a reply is to all blocks")
        parse_residues(self.public_key, layout.key_shape, primes)
        for received, shape in zip(self.blocks, self._shapes, strict=True):
            parse_residues(received, shape, primes)
        for received in self.columns:
            parse_residues(received, layout.whole_reply_shape, primes)

    @cached_property
    def _shapes(self) -> list[tuple[int, int, int, int]]:
        return [self.layout.block_shape(*block) for block in self.layout.blocks()]

    @cached_property
    def digest(self) -> bytes:
        parts = b"".join(sha256(part).digest() for part in (self.public_key, *self.blocks, *self.columns))
        return sha256(self.layout.label + len(self.columns).to_bytes(8, "little") + parts).digest()

    def weights(self, challenge: Challenge, number: int, k: int) -> ReplyWeights:
        """What the challenge that all parts share asks of the reply of this number."""
        layout, prime, named = self.layout, self.layout.parameters.primes[k], number.to_bytes(8, "little")
        shared = challenge.shared()
        groups = shared.numbers(b"halves" + named, layout.groups, prime)
        coefficients = shared.numbers(b"coefficients", layout.parameters.degree, prime)
        return ReplyWeights(
            prime,
            shared.numbers(b"replies", len(self.columns), prime),
            groups,
            coefficients,
            code.product(groups[:, :, None], coefficients[:, None], prime),
            shared.numbers(b"sums" + named, layout.columns, prime),
        )

    def constants(self, weights: ReplyWeights, k: int) -> list[int]:
        """The combination of what the reply says."""
        said = np.stack([plane(column, self.layout.whole_reply_shape, k) for column in self.columns])
        along = np.hstack([weights.along.reshape(REPEATS, -1), weights.numbers])
        both = code.product(code.combinations(weights.across, said, weights.prime), along, weights.prime)
        return [int(number) for number in both.sum(axis=1, dtype=np.uint64)]

    def blind_weights(self, weights: ReplyWeights, k: int) -> Residues:
        """What the coefficients of u count, in the encryption of zero, (repeats, groups, N)."""
        layout, degree = self.layout, self.layout.parameters.degree
        halves = key_half(layout)[k], plane(self.public_key, layout.key_shape, k)
        chosen = np.zeros((REPEATS, layout.groups * layout.width, degree), np.uint32)
        column = np.arange(layout.columns)
        chosen[:, column, np.array(layout.places)[column % layout.width]] = weights.numbers
        chosen = chosen.reshape(REPEATS * layout.groups, layout.width, degree).sum(axis=1, dtype=np.uint32)
        parts = (weights.along.reshape(-1, degree), chosen)
        held = np.stack([code.values(part, degree, weights.prime) for part in parts])
        mirrored = np.stack(halves)[:, None, ::-1]
        found = code.products(held, mirrored, weights.prime)
        return code.interpolated(found, weights.prime).reshape(REPEATS, layout.groups, degree)

    def row_weights(self, weights: ReplyWeights, k: int, start: int, stop: int) -> Residues:
        """What the evaluator's entries of these rows count, the same in each of its columns: (repeats, stop - start).

        Row t of a stripe is the coefficient L - 1 - t of what second halves are multiplied by, and meets coefficient
        a L + t of the first half for column a.
        """
        length = self.layout.stripe_rows
        first, last = start // length, -(-stop // length)
        found = [self._stripe_weights(weights, at, held) for at, held in self.first_stripes(k, first, last)]
        return np.hstack(found)[:, start - first * length : stop - first * length]

    def _stripe_weights(self, weights: ReplyWeights, first: int, held: Residues) -> Residues:
        """Row weights of some stripes, counted from this one on: (repeats, stripes L)."""
        layout, prime, length = self.layout, weights.prime, self.layout.stripe_rows
        rows = first * length, min((first + len(held)) * length, layout.rows)
        slots = public_slots(layout.label, layout.indices(*rows), layout.parameters.degree, prime)
        slots = slots.reshape(len(held), layout.groups, 1, -1)[..., ::-1]
        along = weights.along.transpose(1, 0, 2)
        asked = code.values(along.reshape(-1, along.shape[2]), along.shape[2], prime).reshape(along.shape)
        second = np.stack([code.products(asked, stripe, prime) for stripe in slots])
        second = code.interpolated(second.reshape(-1, second.shape[2]), prime).reshape(second.shape)
        windows = held[..., : layout.width * length].reshape(len(held), -1, length)[:, : layout.columns]
        sums = np.stack([code.combinations(weights.numbers, window, prime) for window in windows])
        found = code.total(second[..., length - 1 :: -1], sums, prime)
        return found.transpose(1, 0, 2).reshape(REPEATS, -1)

    def first_stripes(self, k: int, first: int, last: int) -> Iterator[tuple[int, Residues]]:
        """First halves of these stripes modulo prime k, some at a time: the number of the first, (stripes, groups, N).

        A segment of an evaluator with few columns may have thousands of stripes of a wide owner.
        """
        before = 0
        for received, shape in zip(self.blocks, self._shapes, strict=True):
            if before < last and first < before + shape[1]:
                skipped = max(first - before, 0)
                yield before + skipped, plane(received, shape, k)[skipped : last - before]
            before += shape[1]


@dataclass(frozen=True)
class Drawn:
    """What was drawn for all replies: bits of floods and noise, then secrets and errors of encryptions of zero."""

    replies: tuple[Reply, ...]
    sizes: Sizes

    @cached_property
    def digest(self) -> bytes:
        return sha256(b"replies" + b"".join(reply.digest for reply in self.replies)).digest()

    def number_rows(self, number: int) -> NDArray[np.intp]:
        """Rows of bits of a reply: bit after bit of all its numbers, l to a row, (rows,)."""
        counts = [number_rows(reply.layout, len(reply.columns), self.sizes) for reply in self.replies[: number + 1]]
        return sum(counts[:-1]) + np.arange(counts[-1])

    def zero_rows(self, number: int) -> NDArray[np.intp]:
        """Rows of encryptions of zero: (the evaluator's columns, groups, pieces, 2), secrets before errors."""
        shapes = [self._zero_shape(reply) for reply in self.replies]
        before = self.shape.bits + sum(int(np.prod(shape)) for shape in shapes[:number])
        return before + np.arange(np.prod(shapes[number])).reshape(shapes[number])

    @property
    def shape(self) -> Shape:
        owners, columns = [reply.layout for reply in self.replies], len(self.replies[0].columns)
        return drawn_shape(owners, columns, self.sizes)

    def linear(self, challenge: Challenge, k: int) -> tuple[Iterable[Term], Sequence[int]]:
        """The part of what was drawn in all equations of all replies, and all that the replies say."""
        weights = [reply.weights(challenge, number, k) for number, reply in enumerate(self.replies)]
        constants = [0] * REPEATS
        for reply, own in zip(self.replies, weights, strict=True):
            least = (1 << self.sizes.ring.flood_bits) + (self.sizes.ring.delta << NOISE_BITS)
            sums = (own.across.sum(axis=1, dtype=np.uint64).tolist(), own.numbers.sum(axis=1, dtype=np.uint64).tolist())
            both = zip(constants, reply.constants(own, k), *sums, strict=True)
            constants = [before + said + least * a * b for before, said, a, b in both]
        return self._terms(weights, k), constants

    def _terms(self, weights: Sequence[ReplyWeights], k: int) -> Iterator[Term]:
        for number, (reply, own) in enumerate(zip(self.replies, weights, strict=True)):
            rows = self.number_rows(number)
            padded = np.zeros((REPEATS, len(rows) * self.sizes.message), np.uint32)
            found = self._number_weights(own)
            padded[:, : found.shape[1]] = found
            yield Term(rows[:, None], np.ones((1, 1), np.uint32), multipliers(padded, self.sizes, own.prime))
            zeros, blinds = self.zero_rows(number), reply.blind_weights(own, k)
            for group in range(reply.layout.groups):
                lines = zeros[:, group, :, 0].T
                yield Term(lines, own.across, multipliers(blinds[:, group], self.sizes, own.prime))
        yield self._error_term(weights)

    def _error_term(self, weights: Sequence[ReplyWeights]) -> Term:
        """Errors of all encryptions of zero, which count nu mu: a line for each piece."""
        lines = [self.zero_rows(number)[..., 1].reshape(-1, self.sizes.pieces).T for number, _ in enumerate(weights)]
        worth = [
            code.product(own.across[:, :, None], own.groups[:, None], own.prime).reshape(REPEATS, -1) for own in weights
        ]
        along = multipliers(weights[0].coefficients, self.sizes, weights[0].prime)
        return Term(np.hstack(lines), np.hstack(worth), along)

    def _number_weights(self, weights: ReplyWeights) -> Residues:
        """The nu kappa 2^j for bit j of a flood, Delta times as much for bit j of noise: (repeats, bits numbers)."""
        ring, prime = self.sizes.ring, weights.prime
        worth = [1 << j for j in range(ring.flood_bits + 1)] + [ring.delta << j for j in range(NOISE_BITS + 1)]
        both = code.product(weights.across[:, :, None], weights.numbers[:, None], prime).reshape(REPEATS, 1, -1)
        values = np.array([value % prime for value in worth], np.uint32)[None, :, None]
        return code.product(values, both, prime).reshape(REPEATS, -1)

    def _zero_shape(self, reply: Reply) -> tuple[int, int, int, int]:
        return len(reply.columns), reply.layout.groups, self.sizes.pieces, 2
