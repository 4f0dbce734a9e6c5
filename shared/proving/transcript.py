"""Challenges, hashed from all that was said before (Fiat and Shamir; docs/proofs/proved-bounds.md, 4).

Everybody who has the statement and the proof computes the same. SHA-256 and SHAKE-128 are random oracles in the proof.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256, shake_128

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving import code
from commingle.shared.proving.parameters import RANGES, REPEATS, Sizes
from commingle.shared.ring.randomness import public_numbers
from commingle.shared.ring.residues import Residues


@dataclass(frozen=True, slots=True)
class Challenge:
    """What is asked of one relation: subsets before its sums are shown, numbers under a purpose afterwards.

    Attributes:
        first: 32 bytes, of this relation alone, when all have committed: what subsets are hashed from.
        seed: 32 bytes, of this relation alone, when sums of all are shown.
        common: 32 bytes, of all that are proved together.
    """

    first: bytes
    seed: bytes
    common: bytes

    def shared(self) -> "Challenge":
        """The same for all relations."""
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
    """After the sums that the first ones ask for, of all: nobody chooses sums who knows what they are multiplied by."""
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
