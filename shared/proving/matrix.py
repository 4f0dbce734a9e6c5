"""The prover's matrix: a witness, masks, and all that is random in it (docs/proofs/proved-bounds.md, 3 and 6)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving import code
from commingle.shared.proving.parameters import RANGE_BITS, RANGES, REPEATS, Sizes
from commingle.shared.ring.encryption import Entropy
from commingle.shared.ring.residues import Residues

_BATCH_WORDS = 1 << 21  # values that are held at one time, whole rows
_SUMMED_ROWS = 64  # as floats at one time
_KEPT_WORDS = 5 << 20  # modulo each of five primes: 105 MB


@dataclass(frozen=True, slots=True, repr=False)
class Blinds:
    """What hides the combinations modulo one prime.

    Attributes:
        linear: polynomials of `Sizes.linear` coefficients with the given sums.
        quadratic: polynomials of `Sizes.quotient` coefficients.
        rows: the same as rows, two halves each, and the rows that hide folds: those of the matrix after its masks.
    """

    linear: Residues = field(repr=False)
    quadratic: Residues = field(repr=False)
    rows: Residues = field(repr=False)


class Matrix:
    """All rows, and those modulo one prime when they are asked for. Its repr says nothing.

    Args:
        witness: (rows, l).
        entropy: private, for one proof alone.
        sums: what the blinds of linear combinations sum up to over the roots of x^l + 1, over l: (primes, REPEATS).
    """

    __slots__ = ("_kept", "blinds", "masks", "salts", "sizes", "tails", "witness")

    def __init__(self, sizes: Sizes, witness: NDArray[np.int32], entropy: Entropy, sums: Residues) -> None:
        self.sizes, self.witness = sizes, witness
        self._kept: dict[int, list[Residues]] = {}
        words = np.frombuffer(entropy(8 * RANGES**2), "<u8") >> np.uint64(64 - RANGE_BITS)
        self.masks: NDArray[np.int64] = words.astype(np.int64).reshape(RANGES, RANGES)
        shape = (len(witness) + sizes.mask_rows, sizes.opened)
        self.tails = [uniform(shape, prime, entropy) for prime in sizes.ring.primes]
        self.blinds = [
            _blinds(sizes, prime, entropy, ends) for prime, ends in zip(sizes.ring.primes, sums, strict=True)
        ]
        self.salts = np.frombuffer(entropy(32 * sizes.places), np.uint8).reshape(sizes.places, 32)

    def __repr__(self) -> str:
        return "Matrix(…)"

    def sums(self, rows: NDArray[np.uint8], positions: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Over each subset of the witness's rows and each of positions, and their masks: (RANGES, RANGES).

        BLAS adds floats exactly: no sum of the witness reaches 2^53.
        """
        found, chosen = np.zeros((RANGES, RANGES)), positions.T.astype(np.float64)
        for start in range(0, len(self.witness), _SUMMED_ROWS):
            part = slice(start, start + _SUMMED_ROWS)
            found += rows[:, part].astype(np.float64) @ (self.witness[part].astype(np.float64) @ chosen)
        return found.astype(np.int64) + self.masks

    def rows(self, k: int) -> Residues:
        """All of them modulo prime k: (rows, width)."""
        prime, held = self.sizes.ring.primes[k], len(self.witness)
        inside = held + self.sizes.mask_rows
        made = np.empty((inside + len(self.blinds[k].rows), self.sizes.width), np.uint32)
        inner = made[:inside]
        raw, numbers = self.witness.view(np.uint32), inner[:held, : self.sizes.message]
        np.minimum(raw, np.add(raw, np.uint32(prime), out=numbers), out=numbers)  # negative ones wrap around
        masks = (self.masks % prime).ravel()
        masks = np.pad(masks, (0, self.sizes.mask_rows * self.sizes.message - masks.size))
        inner[held:, : self.sizes.message] = masks.reshape(self.sizes.mask_rows, -1)
        inner[:, self.sizes.message :] = self.tails[k]
        made[inside:] = self.blinds[k].rows
        return made

    def words(self, k: int) -> Iterator[Residues]:
        """All rows modulo prime k as words of the code, some at a time; those of a small matrix are kept."""
        if k in self._kept:
            yield from self._kept[k]
            return
        rows, made = self.rows(k), []
        for _, words in self.values(rows, k, self.sizes.places):
            if len(rows) * self.sizes.places <= _KEPT_WORDS:
                made.append(words)
            yield words
        if made:
            self._kept[k] = made

    def halves(self, k: int, rows: Residues) -> Iterator[tuple[slice, Residues]]:
        """First halves of the words of its first rows, which are given modulo prime k: some at a time, and which."""
        half, start = self.sizes.places // 2, 0
        if k not in self._kept:
            yield from self.values(rows, k, half)
            return
        for words in self._kept[k]:
            held = words[: len(rows) - start, :half]
            if len(held):
                yield slice(start, start + len(held)), held
            start += len(held)

    def values(self, rows: Residues, k: int, count: int) -> Iterator[tuple[slice, Residues]]:
        """Rows modulo prime k, some at a time, at the first so many places."""
        prime, size, places = self.sizes.ring.primes[k], _BATCH_WORDS // count, self.sizes.places
        for start in range(0, len(rows), size):
            batch = slice(start, start + size)
            polynomials = code.polynomials(rows[batch], self.sizes, prime)
            yield batch, code.values(polynomials, count, prime, roots_of=places)


def uniform(shape: tuple[int, ...], prime: int, entropy: Entropy) -> Residues:
    """Independent and uniform modulo a prime below 2^31 and close to it: words of 31 bits that are below it."""
    count, drawn = int(np.prod(shape)), np.empty(0, np.uint32)
    while len(drawn) < count:
        more = np.frombuffer(entropy(4 * (count - len(drawn) + 64)), "<u4") & np.uint32(0x7FFFFFFF)
        drawn = np.concatenate([drawn, more[more < prime]])
    return drawn[:count].reshape(shape)


def _blinds(sizes: Sizes, prime: int, entropy: Entropy, sums: Residues) -> Blinds:
    linear = uniform((REPEATS, sizes.linear), prime, entropy)
    ends = sums.astype(np.int64) - linear[:, 2 * sizes.message]
    linear[:, 0] = (ends + linear[:, sizes.message]) % prime  # x^l is -1 where it is summed
    quadratic = uniform((REPEATS, sizes.quotient), prime, entropy)
    halves = [half for f in (linear, quadratic) for half in two_halves(f, sizes, prime, entropy)]
    made = [code.rows_of(half, sizes, prime) for half in halves]
    return Blinds(linear, quadratic, np.vstack([*made, uniform((sizes.folds, sizes.width), prime, entropy)]))


def two_halves(polynomials: Residues, sizes: Sizes, prime: int, entropy: Entropy) -> tuple[Residues, Residues]:
    """Two of k coefficients each, low + x^s high being the polynomial: t random ones overlap, so that high hides it."""
    count, width, shift = len(polynomials), sizes.width, sizes.shift(polynomials.shape[1])
    low, high = polynomials[:, :width].copy(), np.zeros((count, width), np.uint32)
    high[:, : sizes.opened] = uniform((count, sizes.opened), prime, entropy)
    high[:, width - shift :] = polynomials[:, width:]  # all beyond the t random ones
    overlap = slice(shift, shift + sizes.opened)
    low[:, overlap] = code.difference(low[:, overlap], high[:, : sizes.opened], prime)
    return low, high
