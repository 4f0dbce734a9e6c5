"""What an evaluator proves of all its replies in a release, and everybody verifies (docs/proofs/proved-bounds.md).

A proof is made once and stored; a retry sends what was stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving.ciphertexts import Ciphertexts, segments
from commingle.shared.proving.evaluated import Bounded, Evaluated
from commingle.shared.proving.joined import Joined
from commingle.shared.proving.lengths import reply_sizes
from commingle.shared.proving.owner import filled_up, opened_secrets, rows_in_groups, secret_bits
from commingle.shared.proving.parameters import Sizes
from commingle.shared.proving.prover import prove_relations
from commingle.shared.proving.relation import Relation
from commingle.shared.proving.replies import NOISE_BITS, Drawn, Reply
from commingle.shared.proving.verifier import verify_relations
from commingle.shared.ring.encryption import SecretKey, within_limits
from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.layout import Layout
from commingle.shared.ring.randomness import Entropy
from commingle.shared.ring.replies import HiddenSums


@dataclass(frozen=True)
class Encrypted:
    """What an evaluator encrypted its own rows to.

    Attributes:
        public_key: its own.
        blocks: all its own ciphertexts, in order.
    """

    public_key: bytes
    blocks: Sequence[bytes]


@dataclass(frozen=True)
class Replies:
    """The statement: all replies of one party are evaluations of the same rows.

    Attributes:
        layout: the evaluator's own.
        rows: what is known of them: their ciphertexts, or of a party that encrypts none, the bound on their squared
            norms, which is proved with the replies.
        replies: to the others.

    Raises:
        CiphertextError: a key or ciphertexts that are not residues of their size.
        DomainError: there are no replies, or they are not about as many rows and columns, or the bound is none.
    """

    layout: Layout
    rows: Encrypted | int
    replies: tuple[Reply, ...]

    def __post_init__(self) -> None:
        """Sums over the rows are over the same rows."""
        shape = self.layout.rows, self.layout.columns
        if not self.replies or any((reply.layout.rows, len(reply.columns)) != shape for reply in self.replies):
            raise DomainError("replies are made of all rows and columns of their evaluator")
        _ = self.relations

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        """What was drawn, with the first segment of rows; then each other segment."""
        owners, encrypted = [reply.layout for reply in self.replies], isinstance(self.rows, Encrypted)
        sizes = reply_sizes(self.layout, owners, encrypted=encrypted)
        parts = [self._part(segment, sizes) for segment in segments(self.layout)]
        return Joined((Drawn(self.replies, sizes), parts[0])), *parts[1:]

    def _part(self, segment: tuple[int, int], sizes: Sizes) -> Relation:
        if not isinstance(self.rows, Encrypted):
            return Bounded(self.layout, segment, self.rows, self.replies, sizes)
        first, last = (-(-row // self.layout.block_rows) for row in segment)
        held = self.rows.blocks[first:last]
        return Evaluated(Ciphertexts(self.layout, segment, self.rows.public_key, held, sizes), self.replies)


def prove_replies(
    statement: Replies,
    key: SecretKey | None,
    rows: NDArray[np.integer],
    hidden: Sequence[Sequence[HiddenSums]],
    entropy: Entropy,
) -> list[bytes]:
    """A proof of the statement, which tells nothing else, in parts.

    Args:
        statement: about replies that were made of these rows.
        key: the evaluator's own, of its ciphertexts, if it has any.
        rows: its own, (n, d'), those of its ciphertexts.
        hidden: what each reply was made of, column by column (`ring.replies.hide_sums`).
        entropy: private; only tests give others than the operating system's.

    Raises:
        DomainError: ciphertexts of another key, or rows or noise that do not fit, or rows beyond their bound.
    """
    return prove_relations(
        statement.relations, lambda number: reply_witness(statement.relations[number], key, rows, hidden), entropy
    )


def verify_replies(statement: Replies, received: Sequence[bytes]) -> None:
    """Nothing, if the proof holds. It takes nobody's secrets.

    Raises:
        ProofError: it does not.
    """
    verify_relations(statement.relations, received)


def reply_witness(
    relation: Relation, key: SecretKey | None, rows: NDArray[np.integer], hidden: Sequence[Sequence[HiddenSums]]
) -> NDArray[np.int32]:
    """The matrix that makes one of a statement's relations true, (rows, l). Arguments are those of `prove_replies`."""
    if isinstance(relation, Joined):
        found = np.empty((relation.rows, relation.sizes.message), np.int32)
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


def _drawn_witness(drawn: Drawn, hidden: Sequence[Sequence[HiddenSums]]) -> NDArray[np.int32]:
    found = np.zeros((drawn.rows, drawn.sizes.message), np.int32)
    for number, columns in enumerate(hidden):
        bits = _number_bits(columns, drawn.sizes.ring.flood_bits).T.ravel()
        rows = drawn.number_rows(number)
        found[rows] = np.pad(bits, (0, rows.size * drawn.sizes.message - bits.size)).reshape(len(rows), -1)
        zeros = drawn.zero_rows(number)
        for part, made in enumerate(([column.blind for column in columns], [column.error for column in columns])):
            found[zeros[..., part]] = np.stack(made).reshape(*zeros.shape[:3], -1)
    return found


def _number_bits(columns: Sequence[HiddenSums], flood_bits: int) -> NDArray[np.uint8]:
    """Of each number, column by column, the bits of its flood and of its noise, each raised to be none below zero."""
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
    others = (held.reshape(-1, length).astype(np.int32) for held in (errors, columns))
    return np.concatenate([secret_bits(secret, length), *others])


def _bounded_witness(part: Bounded, rows: NDArray[np.integer]) -> NDArray[np.int32]:
    start, stop = part.segment
    held = within_limits(rows[start:stop], (stop - start, part.layout.columns)).astype(np.int64)
    return filled_up(part.in_groups(held), part.squares[0].bound).reshape(-1, part.sizes.message).astype(np.int32)
