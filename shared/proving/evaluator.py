"""An evaluator's proof about all its replies in a release, and its verification (docs/proofs/proved-bounds.md).

Rows that the evaluator encrypted are those in its ciphertexts, whose bounds were proved before (`Evaluated`). The last
party encrypts none: the same proof as for its replies shows that its rows are within their bound (`Bounded`). A proof
is made once and stored; a retry sends the stored one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.errors import DomainError
from commingle.shared.proving.ciphertexts import Ciphertexts, segments
from commingle.shared.proving.columns import filled_up, opened_secrets, require_bound, rows_in_groups, secret_bits
from commingle.shared.proving.lengths import bounded_shape, evaluated_shape, reply_sizes
from commingle.shared.proving.parameters import NOISE_BITS, REPEATS, Sizes
from commingle.shared.proving.proof import verify_relations
from commingle.shared.proving.prover import prove_relations
from commingle.shared.proving.relation import Joined, Relation, Shape, Term, multipliers
from commingle.shared.proving.replies import Drawn, Evaluations, Reply
from commingle.shared.proving.transcript import Challenge
from commingle.shared.ring.encryption import Entropy, SecretKey, within_limits
from commingle.shared.ring.parameters import Layout
from commingle.shared.ring.replies import Hiding


@dataclass(frozen=True)
class Evaluated:
    """One segment of the evaluator's rows: those of its ciphertexts.

    Rows: bits of the secret, errors of the key and the ciphertexts, (polynomials, pieces), and columns, (groups, d').
    """

    ciphertexts: Ciphertexts
    evaluations: Evaluations

    @property
    def sizes(self) -> Sizes:
        return self.ciphertexts.sizes

    @cached_property
    def digest(self) -> bytes:
        return sha256(b"evaluated" + self.ciphertexts.digest).digest()

    @property
    def shape(self) -> Shape:
        return evaluated_shape(self.ciphertexts.layout, self.sizes, self.ciphertexts.count)

    @property
    def column_rows(self) -> NDArray[np.intp]:
        """(groups, columns)."""
        shape = self.ciphertexts.groups, self.ciphertexts.layout.columns
        return self.shape.bits + self.ciphertexts.error_rows.size + np.arange(np.prod(shape)).reshape(shape)

    def linear(self, challenge: Challenge, k: int) -> tuple[Iterable[Term], Sequence[int]]:
        """The equations b = a s + e + Delta y of the segment, and its rows' part in all equations of all replies."""
        own, constants = self.ciphertexts.linear(challenge, k, self.column_rows)

        def terms() -> Iterator[Term]:
            yield from own
            yield _row_term(self, self.ciphertexts, challenge, k)

        return terms(), constants


@dataclass(frozen=True)
class Bounded:
    """One segment of the rows of a party that encrypts none: squared norms are within a bound.

    Row i of the segment is at position i modulo l of group i / l. Rows of the matrix: of each group the columns, and
    four numbers that fill up the sums of their squares.
    """

    layout: Layout  # of ciphertexts that the party would make: it names party and release
    segment: tuple[int, int]
    bound: int  # c, the integer bound on squared norms of rows; a DomainError, as another segment, if it is none
    evaluations: Evaluations
    sizes: Sizes

    def __post_init__(self) -> None:
        if self.segment not in segments(self.layout):
            raise DomainError("what is proved is proved of one segment of rows")
        require_bound(self.bound)

    @cached_property
    def digest(self) -> bytes:
        facts = b"".join(fact.to_bytes(8, "little") for fact in (*self.segment, self.bound))
        return sha256(b"bounded" + self.layout.label + facts).digest()

    @property
    def shape(self) -> Shape:
        return bounded_shape(self.layout, self.sizes, self.segment[1] - self.segment[0], self.bound)

    @property
    def column_rows(self) -> NDArray[np.intp]:
        """Numbers of the rows of columns: (groups, columns)."""
        (held,) = self.shape.squares
        return np.arange(held.rows).reshape(held.groups, held.members)[:, : self.layout.columns]

    def in_groups(self, rows: NDArray[Any]) -> NDArray[Any]:
        """From a value for each row of the segment, (count, m), to the matrix, zeros behind: (groups, m, l)."""
        groups, length = self.shape.squares[0].groups, self.sizes.message
        padded = np.zeros((groups * length, rows.shape[1]), rows.dtype)
        padded[: len(rows)] = rows
        return padded.reshape(groups, length, -1).transpose(0, 2, 1)

    def linear(self, challenge: Challenge, k: int) -> tuple[Iterable[Term], Sequence[int]]:
        def terms() -> Iterator[Term]:
            yield _row_term(self, self, challenge, k)

        return terms(), [0] * REPEATS


def _row_term(part: Evaluated | Bounded, held: "Ciphertexts | Bounded", challenge: Challenge, k: int) -> Term:
    """The weight of an entry in all equations of all replies: of its column, (repeats, d'), and row, (repeats, n)."""
    weights = part.evaluations.weights(challenge, k)
    counts = part.evaluations.row_weights(weights, k, *held.segment)
    placed = held.in_groups(counts.T).transpose(1, 0, 2).reshape(REPEATS, -1)
    return Term(part.column_rows, weights.across, multipliers(placed, part.sizes, weights.prime))


@dataclass(frozen=True)
class Encrypted:
    public_key: bytes
    blocks: Sequence[bytes]


@dataclass(frozen=True)
class Replies:
    """The statement: all replies of one party are evaluations of the same rows.

    Raises CiphertextError: a key or ciphertexts that are not residues of their size; DomainError: there are no replies,
    or they are not about as many rows and columns, or the bound is none.
    """

    layout: Layout  # the evaluator's own
    # the public facts about them: their ciphertexts, or of a party that encrypts none the bound on squared norms
    rows: Encrypted | int
    replies: tuple[Reply, ...]

    def __post_init__(self) -> None:
        shape = self.layout.rows, self.layout.columns
        if not self.replies or any((reply.layout.rows, len(reply.columns)) != shape for reply in self.replies):
            raise DomainError("replies are made of all rows and columns of their evaluator")
        _ = self.relations

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        """One about what was drawn and the first segment of rows; then one for each other segment."""
        owners, encrypted = [reply.layout for reply in self.replies], isinstance(self.rows, Encrypted)
        sizes = reply_sizes(self.layout, owners, encrypted=encrypted)
        made = Evaluations(self.replies)
        parts = [self._part(segment, made, sizes) for segment in segments(self.layout)]
        return Joined((Drawn(made, sizes), parts[0])), *parts[1:]

    def _part(self, segment: tuple[int, int], made: Evaluations, sizes: Sizes) -> Relation:
        if not isinstance(self.rows, Encrypted):
            return Bounded(self.layout, segment, self.rows, made, sizes)
        first, last = (-(-row // self.layout.block_rows) for row in segment)
        held = self.rows.blocks[first:last]
        return Evaluated(Ciphertexts(self.layout, segment, self.rows.public_key, held, sizes), made)


def prove_replies(
    statement: Replies,
    key: SecretKey | None,
    rows: NDArray[np.integer],
    hidden: Sequence[Sequence[Hiding]],
    entropy: Entropy,
) -> list[bytes]:
    """A proof of the statement, about replies that were made of these rows, in parts; it tells nothing else.

    `key` is the evaluator's own, of its ciphertexts, if it has any; `rows`, (n, d'), are those in them; `hidden` has
    what hid each reply, column by column (`ring.replies.hide_sums`); `entropy` is private, and only tests give others
    than the operating system's. Raises DomainError: ciphertexts of another key, or rows or noise that do not fit, or
    rows beyond their bound.
    """
    return prove_relations(
        statement.relations, lambda number: reply_witness(statement.relations[number], key, rows, hidden), entropy
    )


def verify_replies(statement: Replies, received: Sequence[bytes]) -> None:
    """Raises ProofError: the proof does not hold. Needs no secret."""
    verify_relations(statement.relations, received)


def reply_witness(
    relation: Relation, key: SecretKey | None, rows: NDArray[np.integer], hidden: Sequence[Sequence[Hiding]]
) -> NDArray[np.int32]:
    """The matrix that makes one of a statement's relations true, (rows, l). Arguments are those of `prove_replies`."""
    if isinstance(relation, Joined):
        found = np.empty((relation.shape.rows, relation.sizes.message), np.int32)
        for number, part in enumerate(relation.parts):
            found[relation.places(number)] = reply_witness(part, key, rows, hidden)
        return found
    if isinstance(relation, Drawn):
        return _drawn_witness(relation, hidden)
    if isinstance(relation, Bounded):
        return _bounded_witness(relation, rows)
    if isinstance(relation, Evaluated) and key is not None:
        return _rows_witness(relation, key, rows)
    raise DomainError("a part of no proof of replies")


def _drawn_witness(drawn: Drawn, hidden: Sequence[Sequence[Hiding]]) -> NDArray[np.int32]:
    found = np.zeros((drawn.shape.rows, drawn.sizes.message), np.int32)
    for number, columns in enumerate(hidden):
        bits = _number_bits(columns, drawn.sizes.ring.flood_bits).T.ravel()
        rows = drawn.number_rows(number)
        found[rows] = np.pad(bits, (0, rows.size * drawn.sizes.message - bits.size)).reshape(len(rows), -1)
        zeros = drawn.zero_rows(number)
        for part, made in enumerate(([column.blind for column in columns], [column.error for column in columns])):
            found[zeros[..., part]] = np.stack(made).reshape(*zeros.shape[:3], -1)
    return found


def _number_bits(columns: Sequence[Hiding], flood_bits: int) -> NDArray[np.uint8]:
    """The bits of each number's flood and of its noise, column by column, each raised so that none is below zero."""
    pairs = [pair for column in columns for pair in zip(column.floods, column.noise, strict=True)]
    if any(abs(noise) >> NOISE_BITS for _, noise in pairs):
        raise DomainError("noise is beyond what is proved")
    raised = [(flood + (1 << flood_bits)) | (noise + (1 << NOISE_BITS)) << (flood_bits + 1) for flood, noise in pairs]
    count = flood_bits + NOISE_BITS + 2
    held = b"".join(number.to_bytes(-(-count // 8), "little") for number in raised)
    return np.unpackbits(np.frombuffer(held, np.uint8).reshape(len(raised), -1), axis=1, bitorder="little")[:, :count]


def _rows_witness(part: Evaluated, key: SecretKey, rows: NDArray[np.integer]) -> NDArray[np.int32]:
    length, (start, stop) = part.sizes.message, part.ciphertexts.segment
    secret, errors = opened_secrets(part.ciphertexts, key)
    columns = rows_in_groups(part.ciphertexts, rows[start:stop])
    others = (held.reshape(-1, length) for held in (errors, columns))
    return np.concatenate([secret_bits(secret, length), *others])


def _bounded_witness(part: Bounded, rows: NDArray[np.integer]) -> NDArray[np.int32]:
    start, stop = part.segment
    held = within_limits(rows[start:stop], (stop - start, part.layout.columns)).astype(np.int32)
    return filled_up(part.in_groups(held), part.shape.squares[0].bound).reshape(-1, part.sizes.message)
