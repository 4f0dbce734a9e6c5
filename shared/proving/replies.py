"""An evaluator's replies, as equations about its rows and about what was drawn for them.

All replies of one party in a release (docs/proofs/proved-bounds.md, 1) are made of the same columns y, with any small
secrets, with floods of at most 2^88, and with noise of at most 2^62. One part of the proof is about what was drawn for
the replies (`Drawn`), and one about each segment of its rows (`evaluator`); the first of these shares a matrix with
what was drawn. The equations of a reply are sums over all parts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from math import prod

import numpy as np
from numpy.typing import NDArray

from commingle.shared.errors import DomainError
from commingle.shared.proving import code
from commingle.shared.proving.ciphertexts import plane
from commingle.shared.proving.lengths import drawn_shape, number_rows
from commingle.shared.proving.parameters import NOISE_BITS, REPEATS, Sizes
from commingle.shared.proving.relation import Shape, Term, multipliers
from commingle.shared.proving.transcript import Challenge
from commingle.shared.ring.encryption import public_slots
from commingle.shared.ring.parameters import Layout, parse_residues
from commingle.shared.ring.residues import Residues

_LINES = 64  # about so many lines of the matrix have their multipliers in memory


@dataclass(frozen=True, slots=True)
class ReplyWeights:
    """The weights in the equations of all replies modulo one prime, repeats first."""

    prime: int
    across: Residues  # nu, of the evaluator's columns, the same for all replies, (repeats, d')
    coefficients: Residues  # eta, of second halves, the same for all replies and groups, (repeats, N)
    slots: Residues  # the same polynomials in slots
    groups: list[Residues]  # rho, of each owner's groups, (repeats, groups)
    numbers: list[Residues]  # kappa, of each owner's columns, (repeats, d)


@dataclass(frozen=True)
class Reply:
    """One reply, before primes are dropped, and what it is an evaluation of. All of it is public.

    Raises CiphertextError: a key, ciphertexts or a reply that are not residues of their size; DomainError: blocks are
    missing.
    """

    # layout, public_key, blocks: the owner's; all of its ciphertexts, in order
    layout: Layout
    public_key: bytes
    blocks: Sequence[bytes]
    columns: Sequence[bytes]  # `ring.replies.whole_reply` of each of the evaluator's columns

    def __post_init__(self) -> None:
        """Reads all bytes once, to refuse what is malformed before anything is computed."""
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

    def said(self, k: int) -> Residues:
        """All of it modulo prime k, (d', words)."""
        return np.stack([plane(column, self.layout.whole_reply_shape, k) for column in self.columns])

    def key(self, k: int) -> tuple[Residues, Residues]:
        """Both halves of the owner's public key modulo prime k, in slots."""
        layout, ring = self.layout, self.layout.parameters
        return public_slots(layout.label, [0], ring.degree, ring.primes[k])[0], plane(
            self.public_key, layout.key_shape, k
        )

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


@dataclass(frozen=True, eq=False)
class Evaluations:
    """All replies of one evaluator, in order. What is the same in all of them is computed once."""

    replies: tuple[Reply, ...]
    _asked: dict[tuple[bytes, int], ReplyWeights] = field(default_factory=dict)

    @cached_property
    def digest(self) -> bytes:
        return sha256(b"replies" + b"".join(reply.digest for reply in self.replies)).digest()

    def weights(self, challenge: Challenge, k: int) -> ReplyWeights:
        """The weights that the common challenge of all parts asks of all replies; the last ones are remembered."""
        shared, asked = challenge.shared(), (challenge.common, k)
        if asked not in self._asked:
            self._asked.clear()
            ring = self.replies[0].layout.parameters
            prime, names = ring.primes[k], [number.to_bytes(8, "little") for number in range(len(self.replies))]
            coefficients, layouts = shared.numbers(b"coefficients", ring.degree, prime), self._layouts
            self._asked[asked] = ReplyWeights(
                prime,
                shared.numbers(b"replies", len(self.replies[0].columns), prime),
                coefficients,
                code.values(coefficients, ring.degree, prime),
                [shared.numbers(b"halves" + n, each.groups, prime) for n, each in zip(names, layouts, strict=True)],
                [shared.numbers(b"sums" + n, each.columns, prime) for n, each in zip(names, layouts, strict=True)],
            )
        return self._asked[asked]

    @property
    def _layouts(self) -> list[Layout]:
        return [reply.layout for reply in self.replies]

    def constants(self, weights: ReplyWeights, k: int) -> list[int]:
        """The combination of all replies' contents, and of what raises floods and noise so that none is below zero."""
        prime, ring = weights.prime, self._layouts[0].parameters
        said = [code.combinations(weights.across, reply.said(k), prime) for reply in self.replies]
        numbers = [each[:, -layout.columns :] for each, layout in zip(said, self._layouts, strict=True)]
        halves = np.hstack([each[:, : -own.shape[1]] for each, own in zip(said, numbers, strict=True)])
        halves, groups = halves.reshape(REPEATS, -1, ring.degree), np.hstack(weights.groups)
        pairs = zip(groups[:, None], halves, strict=True)
        half, kappa = np.vstack([code.combinations(*pair, prime) for pair in pairs]), np.hstack(weights.numbers)
        least = (1 << ring.flood_bits) + (ring.delta << NOISE_BITS)
        parts = code.product(half, weights.coefficients, prime), code.product(kappa, np.hstack(numbers), prime)
        sums = [part.sum(axis=1, dtype=np.uint64).tolist() for part in (*parts, weights.across, kappa)]
        return [first + second + least * a * b for first, second, a, b in zip(*sums, strict=True)]

    def blind_weights(self, weights: ReplyWeights, k: int, numbers: Sequence[int]) -> Residues:
        """The weights of coefficients of each u in encryptions of zero of some replies: (repeats, all groups, N)."""
        found, prime = [], weights.prime
        for number in numbers:
            layout, own, kappa = self._layouts[number], weights.groups[number], weights.numbers[number]
            chosen = np.zeros((REPEATS, layout.groups, layout.parameters.degree), np.uint32)
            group, window = np.divmod(np.arange(layout.columns), layout.width)
            chosen[:, group, np.array(layout.places)[window]] = kappa
            along = code.product(own[:, :, None], weights.slots[:, None], prime)
            held = np.stack(
                [along, code.values(chosen.reshape(-1, chosen.shape[2]), chosen.shape[2], prime).reshape(along.shape)]
            )
            mirrored = np.stack(self.replies[number].key(k))[:, None, ::-1]
            found.append(code.products(held.reshape(2, -1, held.shape[3]), mirrored, prime).reshape(along.shape))
        together = np.hstack(found)
        return code.interpolated(together.reshape(-1, together.shape[2]), prime).reshape(together.shape)

    def row_weights(self, weights: ReplyWeights, k: int, start: int, stop: int) -> Residues:
        """The weights of the evaluator's entries of these rows, alike in each of its columns: (repeats, stop - start).

        Row t of a stripe is the coefficient L - 1 - t of the multiplier of second halves, and meets coefficient a L + t
        of the first half for column a. Stripes of owners of as many columns are added up before.
        """
        counts = np.zeros((REPEATS, stop - start), np.uint32)
        for columns in sorted({layout.columns for layout in self._layouts}):
            alike = [number for number, layout in enumerate(self._layouts) if layout.columns == columns]
            length = self._layouts[alike[0]].stripe_rows
            first, last = start // length, -(-stop // length)
            stripes = zip(*(self.replies[number].first_stripes(k, first, last) for number in alike), strict=True)
            found = np.hstack([self._stripe_weights(weights, alike, held) for held in stripes])
            counts = code.total(counts, found[:, start - first * length : stop - first * length], weights.prime)
        return counts

    def _stripe_weights(
        self, weights: ReplyWeights, alike: Sequence[int], held: Sequence[tuple[int, Residues]]
    ) -> Residues:
        """Row weights of some stripes, of these replies and their first halves: (repeats, stripes L)."""
        (first, halves), layout, prime = held[0], self._layouts[alike[0]], weights.prime
        count, length, degree = len(halves), layout.stripe_rows, layout.parameters.degree
        rows = first * length, min((first + count) * length, layout.rows)
        seconds, firsts = (np.zeros((REPEATS, count * each), np.uint64) for each in (degree, length))
        for number, (_, own) in zip(alike, held, strict=True):
            slots = public_slots(self._layouts[number].label, layout.indices(*rows), degree, prime)
            windows = own[..., : layout.width * length].reshape(count, -1, length)[:, : layout.columns]
            code.add(seconds, weights.groups[number], _across(slots.reshape(count, -1, degree)), prime)
            code.add(firsts, weights.numbers[number], _across(windows), prime)
        mirrored = code.reduced(seconds, prime).reshape(REPEATS, count, degree)[..., ::-1]
        met = code.interpolated(code.product(mirrored, weights.slots[:, None], prime).reshape(-1, degree), prime)
        met = met.reshape(REPEATS, count, degree)[..., length - 1 :: -1].reshape(REPEATS, -1)
        return code.total(met, code.reduced(firsts, prime), prime)


def _across(stripes: Residues) -> Residues:
    """Stripe after stripe of each group or column: (stripes, m, n) to (m, stripes n)."""
    return np.ascontiguousarray(stripes.transpose(1, 0, 2)).reshape(stripes.shape[1], -1)


@dataclass(frozen=True)
class Drawn:
    """What was drawn for all replies: bits of floods and noise, then secrets and errors of encryptions of zero."""

    evaluations: Evaluations
    sizes: Sizes

    @property
    def digest(self) -> bytes:
        return self.evaluations.digest

    @property
    def replies(self) -> tuple[Reply, ...]:
        return self.evaluations.replies

    @property
    def _columns(self) -> int:
        return len(self.replies[0].columns)

    @cached_property
    def _number_counts(self) -> list[int]:
        return [number_rows(reply.layout, self._columns, self.sizes) for reply in self.replies]

    def number_rows(self, number: int) -> NDArray[np.intp]:
        """Rows of bits of a reply: bit after bit of all its numbers, l to a row, (rows,)."""
        return sum(self._number_counts[:number]) + np.arange(self._number_counts[number])

    def zero_rows(self, number: int) -> NDArray[np.intp]:
        """Rows of encryptions of zero: (the evaluator's columns, groups, pieces, 2), secrets before errors."""
        *before, own = [
            (self._columns, reply.layout.groups, self.sizes.pieces, 2) for reply in self.replies[: number + 1]
        ]
        return sum(self._number_counts) + sum(map(prod, before)) + np.arange(prod(own)).reshape(own)

    @cached_property
    def shape(self) -> Shape:
        return drawn_shape([reply.layout for reply in self.replies], self._columns, self.sizes)

    def linear(self, challenge: Challenge, k: int) -> tuple[Iterable[Term], Sequence[int]]:
        """The part of what was drawn in all equations of all replies, and the contents of the replies."""
        weights = self.evaluations.weights(challenge, k)
        return self._terms(weights, k), self.evaluations.constants(weights, k)

    def _terms(self, weights: ReplyWeights, k: int) -> Iterator[Term]:
        ones = np.ones((1, 1), np.uint32)
        for some in self._batches():
            rows = np.concatenate([self.number_rows(number) for number in some])
            bits = np.hstack([self._number_weights(weights, number) for number in some])
            yield Term(rows[:, None], ones, multipliers(bits, self.sizes, weights.prime))
            zeros = np.hstack([self.zero_rows(number)[..., 0].reshape(self._columns, -1) for number in some])
            blinds = self.evaluations.blind_weights(weights, k, some).reshape(REPEATS, -1)
            yield Term(zeros.T, weights.across, multipliers(blinds, self.sizes, weights.prime))
        yield self._error_term(weights)

    def _batches(self) -> Iterator[list[int]]:
        some, lines = list[int](), 0
        for number, (reply, count) in enumerate(zip(self.replies, self._number_counts, strict=True)):
            own = count + reply.layout.groups * self.sizes.pieces
            if some and lines + own > _LINES:
                yield some
                some, lines = [], 0
            some, lines = [*some, number], lines + own
        yield some

    def _error_term(self, weights: ReplyWeights) -> Term:
        """Errors of all encryptions of zero, with the weights nu rho eta: a line for each piece."""
        lines = [self.zero_rows(number)[..., 1].reshape(-1, self.sizes.pieces).T for number in range(len(self.replies))]
        worth = [
            code.product(weights.across[:, :, None], own[:, None], weights.prime).reshape(REPEATS, -1)
            for own in weights.groups
        ]
        along = multipliers(weights.coefficients, self.sizes, weights.prime)
        return Term(np.hstack(lines), np.hstack(worth), along)

    def _number_weights(self, weights: ReplyWeights, number: int) -> Residues:
        """The nu kappa 2^j for bit j of a flood, Delta times as much for noise, and zeros: (repeats, rows l)."""
        ring, prime = self.sizes.ring, weights.prime
        worth = [1 << j for j in range(ring.flood_bits + 1)] + [ring.delta << j for j in range(NOISE_BITS + 1)]
        both = code.product(weights.across[:, :, None], weights.numbers[number][:, None], prime).reshape(REPEATS, 1, -1)
        values = np.array([value % prime for value in worth], np.uint32)[None, :, None]
        found = code.product(values, both, prime).reshape(REPEATS, -1)
        return np.pad(found, ((0, 0), (0, self._number_counts[number] * self.sizes.message - found.shape[1])))
