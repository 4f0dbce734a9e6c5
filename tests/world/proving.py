"""Parties with encrypted columns, for proofs about them; honest ones, and witnesses of what is false."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving.ciphertexts import Ciphertexts, segments
from commingle.shared.proving.columns import Columns
from commingle.shared.proving.evaluator import Encrypted, Replies
from commingle.shared.proving.lengths import column_sizes
from commingle.shared.proving.replies import Reply
from commingle.shared.ring.encryption import SecretKey, encrypt, public_key, secret_key
from commingle.shared.ring.parameters import Layout
from commingle.shared.ring.replies import HiddenSums, InnerProducts, hide_sums, whole_reply
from tests.world.ring import seeded

BOUND = 4**14


@dataclass(frozen=True)
class Member:
    """One party of a release, after it sent its ciphertexts."""

    layout: Layout
    key: SecretKey
    public_key: bytes
    rows: NDArray[np.int64]
    blocks: tuple[bytes, ...]

    def ciphertexts(self, number: int = 0) -> Ciphertexts:
        start, stop = list(segments(self.layout))[number]
        pairs = zip(self.layout.blocks(), self.blocks, strict=True)
        blocks = [part for block, part in pairs if start <= block[0] < stop]
        return Ciphertexts(self.layout, (start, stop), self.public_key, blocks, column_sizes(self.layout))

    def statement(self, bound: int = BOUND, number: int = 0) -> Columns:
        """What it proves of one segment."""
        return Columns(self.ciphertexts(number), bound)


def rows_within(bound: int, rows: int, columns: int, seed: int) -> NDArray[np.int64]:
    """Rows whose squared norms go up to a bound, and reach it."""
    drawn = np.random.default_rng(seed).normal(size=(rows, columns))
    scaled = drawn / np.linalg.norm(drawn, axis=1)[:, None] * np.linspace(0, 1, rows)[:, None]
    made: NDArray[np.int64] = np.trunc(scaled * bound**0.5).astype(np.int64)
    made[-1] = 0
    made[-1, 0] = int(bound**0.5)
    return made


def member(rows: NDArray[np.int64], seed: int) -> Member:
    layout, entropy = Layout(f"party {seed}".encode(), *rows.shape), seeded(seed)
    key = secret_key(entropy(32), layout.parameters)
    published = public_key(key, layout, entropy)
    blocks = tuple(encrypt(key, layout, block, rows[slice(*block)], entropy) for block in layout.blocks())
    return Member(layout, key, published, rows, blocks)


@cache
def honest(rows: int, columns: int, seed: int = 1) -> Member:
    return member(rows_within(BOUND, rows, columns, seed), seed)


def hidden_sums(owner: Member, rows: NDArray[np.int64], seed: int = 9) -> list[HiddenSums]:
    """An evaluation of the owner's ciphertexts with these rows."""
    found = InnerProducts(owner.layout, rows.shape[1])
    for block, received in zip(owner.layout.blocks(), owner.blocks, strict=True):
        found.add(received, rows[slice(*block)])
    noise = np.random.default_rng(seed).integers(-(2**40), 2**40, (owner.layout.columns, rows.shape[1]))
    return list(hide_sums(found, owner.public_key, noise, seeded(seed)))


def reply_to(owner: Member, hidden: Sequence[HiddenSums]) -> Reply:
    """What the owner receives of it."""
    return Reply(owner.layout, owner.public_key, owner.blocks, [whole_reply(owner.layout, each) for each in hidden])


def replies_of(evaluator: Member, replies: Sequence[Reply]) -> Replies:
    """What an evaluator proves that encrypted its rows."""
    return Replies(evaluator.layout, Encrypted(evaluator.public_key, evaluator.blocks), tuple(replies))


def last_replies_of(evaluator: Member, replies: Sequence[Reply], bound: int = BOUND) -> Replies:
    """What the last party proves, whose ciphertexts nobody has."""
    return Replies(evaluator.layout, bound, tuple(replies))
