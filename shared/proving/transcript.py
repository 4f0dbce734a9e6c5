"""Challenges, hashed from all that was said before (Fiat and Shamir; docs/proofs/proved-bounds.md, 4).

Everybody who has the statement and the proof computes the same. SHA-256 and SHAKE-128 are random oracles in the proof.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256, shake_128

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving import code
from commingle.shared.proving.parameters import FOLDS, OPENED, RANGES, REPEATS, Sizes
from commingle.shared.ring.randomness import public_slots
from commingle.shared.ring.residues import Residues


@dataclass(frozen=True, slots=True)
class Challenge:
    """What the first challenge asks of one relation: numbers under a purpose.

    Attributes:
        seed: 32 bytes, of this relation alone.
        common: 32 bytes, of all that are proved together.
    """

    seed: bytes
    common: bytes

    def shared(self) -> "Challenge":
        """The same for all relations."""
        return Challenge(self.common, self.common)

    def numbers(self, purpose: bytes, count: int, prime: int, *, repeats: int = REPEATS) -> Residues:
        """Independent and uniform modulo a prime: (repeats, count)."""
        return public_slots(self.seed + purpose, range(repeats), count, prime)

    def subsets(self, rows: int) -> NDArray[np.float64]:
        """Independent fair bits, as numbers that BLAS adds exactly: (RANGES, rows)."""
        drawn = np.frombuffer(shake_128(self.seed + b"range").digest(-(-RANGES * rows // 8)), np.uint8)
        return np.unpackbits(drawn)[: RANGES * rows].reshape(RANGES, rows).astype(np.float64)

    def folds(self, rows: int, prime: int) -> Residues:
        """Weights of rows that fold them in halves, each fold with a number of its own: (FOLDS, rows)."""
        levels = (rows - 1).bit_length()
        drawn = self.numbers(b"fold", levels + 1, prime, repeats=FOLDS).astype(np.uint64)
        weights = drawn[:, :1]
        for level in range(levels):
            weights = np.hstack([weights, weights * drawn[:, level + 1 : level + 2] % prime])
        return code.reduced(weights[:, :rows], prime)


def first_challenges(digests: Sequence[bytes], roots: Sequence[bytes]) -> list[Challenge]:
    """After all commitments: of relations that are proved together, each with its digest and the root of its tree."""
    common = sha256(b"commingle/proving/v1" + b"".join([*digests, *roots])).digest()
    return [Challenge(sha256(common + k.to_bytes(8, "little")).digest(), common) for k in range(len(digests))]


def opened_places(challenge: Challenge, answers: bytes, sizes: Sizes) -> NDArray[np.intp]:
    """After the answers to the first: t different places, ascending."""
    source = shake_128(challenge.seed + b"places" + sha256(answers).digest())
    found: list[int] = []
    asked = 8 * OPENED
    while len(found) < OPENED:
        drawn = np.frombuffer(source.digest(asked), "<u2") % sizes.places  # a power of two: uniform
        found = list(dict.fromkeys(drawn.tolist()))[:OPENED]
        asked *= 2
    return np.array(sorted(found), np.intp)
