"""Challenges, hashed from all that was said before (Fiat and Shamir; docs/proofs/proved-bounds.md, 4), and a hash tree.

Everybody who has the statement and the proof computes the same challenges. SHA-256 and SHAKE-128 are random oracles in
the proof. The tree is over the columns of the matrix of words: a leaf is SHA-256 of a salt of 32 bytes and its column
modulo each prime after the other, so closed leaves tell nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256, shake_128

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving import code
from commingle.shared.proving.parameters import RANGES, REPEATS, Sizes
from commingle.shared.ring.encryption import public_numbers
from commingle.shared.ring.residues import Residues


@dataclass(frozen=True, slots=True)
class Challenge:
    """The questions to one relation: subsets before its sums are shown, numbers under a purpose afterwards."""

    first: bytes  # 32 bytes, of this relation alone, after all have committed: for the hash of subsets
    seed: bytes  # 32 bytes, of this relation alone, when sums of all are shown
    common: bytes  # 32 bytes, of all that are proved together

    def shared(self) -> "Challenge":
        """A challenge that all relations share."""
        return Challenge(self.first, self.common, self.common)

    def numbers(self, purpose: bytes, count: int, prime: int, *, repeats: int = REPEATS) -> Residues:
        """Independent and uniform modulo a prime: (repeats, count)."""
        return np.stack([public_numbers(self.seed + purpose, i, count, prime) for i in range(repeats)])

    def subsets(self, purpose: bytes, count: int) -> NDArray[np.uint8]:
        """Independent fair bits: (RANGES, count)."""
        drawn = np.frombuffer(shake_128(self.first + purpose).digest(-(-RANGES * count // 8)), np.uint8)
        return np.unpackbits(drawn)[: RANGES * count].reshape(RANGES, count)

    def folds(self, rows: int, prime: int, repeats: int) -> Residues:
        """Weights of rows that fold them in halves, each fold with a number of its own: (repeats, rows)."""
        levels = (rows - 1).bit_length()
        drawn = self.numbers(b"fold", levels + 1, prime, repeats=repeats).astype(np.uint64)
        weights = drawn[:, :1]
        for level in range(levels):
            weights = np.hstack([weights, weights * drawn[:, level + 1 : level + 2] % prime])
        return code.reduced(weights[:, :rows], prime)


def first_challenges(digests: Sequence[bytes], roots: Sequence[bytes]) -> list[Challenge]:
    """After all commitments: of relations that are proved together, each with its digest and the root of its tree."""
    common = sha256(b"commingle/proving/v2" + b"".join([*digests, *roots])).digest()
    return [Challenge(seed, seed, common) for seed in _seeds(common, len(digests))]


def second_challenges(first: Sequence[Challenge], shown: Sequence[bytes]) -> list[Challenge]:
    """After the sums that the first ones ask for, of all: nobody who knows the multipliers can still choose sums."""
    common = sha256(first[0].common + b"".join(shown)).digest()
    seeds = _seeds(common, len(first))
    return [Challenge(challenge.first, seed, common) for challenge, seed in zip(first, seeds, strict=True)]


def _seeds(common: bytes, count: int) -> list[bytes]:
    return [sha256(common + k.to_bytes(8, "little")).digest() for k in range(count)]


def opened_places(challenge: Challenge, answers: bytes, sizes: Sizes) -> NDArray[np.intp]:
    """After the answers to the second: t different places, ascending."""
    source = shake_128(challenge.seed + b"places" + sha256(answers).digest())
    found: list[int] = []
    asked = 8 * sizes.opened
    while len(found) < sizes.opened:
        drawn = np.frombuffer(source.digest(asked), "<u2") % sizes.places  # a power of two: uniform
        found = list(dict.fromkeys(drawn.tolist()))[: sizes.opened]
        asked *= 2
    return np.array(sorted(found), np.intp)


HASH_BYTES = 32
CAP = 256  # nodes that are sent whole, where paths end
_STRIP = 128  # columns that are hashed while they are in a core's cache; divides every number of places


class ColumnHashes:
    """Leaves that grow while rows come, prime by prime: at most one batch of rows is held."""

    __slots__ = ("_hashes",)

    def __init__(self, salts: NDArray[np.uint8]) -> None:
        self._hashes = [sha256(b"\0" + salt.tobytes()) for salt in salts]

    def add(self, rows: Residues) -> None:
        """The next rows of all these columns, which are a multiple of `_STRIP`: (rows, columns)."""
        columns = np.empty((_STRIP, len(rows)), np.uint32)
        for start in range(0, len(self._hashes), _STRIP):
            code.kernels().transpose(rows, start, columns)
            self.add_columns(columns, start)

    def add_columns(self, columns: Residues, start: int = 0) -> None:
        """The next rows of the columns from `start` on: (columns, rows)."""
        hashes = self._hashes[start : start + len(columns)]
        for column, made in zip(columns.astype("<u4", copy=False), hashes, strict=True):
            made.update(column)

    def leaves(self) -> list[bytes]:
        return [made.digest() for made in self._hashes]


def levels_of(leaves: list[bytes]) -> list[list[bytes]]:
    """The tree from its leaves, a power of two, to its cap; and its root alone, the hash of all of the cap."""
    levels = [leaves]
    while len(levels[-1]) > CAP:
        below = levels[-1]
        levels.append([_node(left, right) for left, right in zip(below[::2], below[1::2], strict=True)])
    return [*levels, [root_of(b"".join(levels[-1]))]]


def root_of(cap: bytes) -> bytes:
    return sha256(b"\2" + cap).digest()


def paths(levels: list[list[bytes]], places: NDArray[np.intp]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The neighbours on the way from each place to the cap, (places, height, 32), and the cap, (CAP, 32)."""
    *below, cap, _ = levels
    found = [level[(place >> k) ^ 1] for place in places.tolist() for k, level in enumerate(below)]
    shape = len(places), len(below), HASH_BYTES
    return np.frombuffer(b"".join(found), np.uint8).reshape(shape), np.frombuffer(b"".join(cap), np.uint8).reshape(
        -1, HASH_BYTES
    )


def tops(leaves: list[bytes], places: NDArray[np.intp], found: NDArray[np.uint8]) -> Iterator[bytes]:
    """The node of the cap that each leaf and its path lead to."""
    for leaf, place, path in zip(leaves, places.tolist(), found, strict=True):
        node = leaf
        for k, neighbour in enumerate(path):
            other = neighbour.tobytes()
            node = _node(other, node) if (place >> k) & 1 else _node(node, other)
        yield node


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()
