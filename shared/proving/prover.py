"""The prover's side, and its matrix: witness, masks, and all that is random (docs/proofs/proved-bounds.md, 3, 4, 6)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commingle.shared.errors import DomainError
from commingle.shared.proving import code
from commingle.shared.proving.parameters import RANGE_BITS, RANGES, REPEATS, Sizes, check_tries
from commingle.shared.proving.proof import Answers, Places, Proof, shown_bytes
from commingle.shared.proving.relation import Relation, Term, linear, quadratic, quadratic_values
from commingle.shared.proving.transcript import (
    Challenge,
    ColumnHashes,
    first_challenges,
    levels_of,
    opened_places,
    paths,
    second_challenges,
)
from commingle.shared.ring.encryption import SEED_BYTES, Entropy, keystream
from commingle.shared.ring.residues import Residues

_MOST_TRIES = 64  # all of them are thrown away with probability 2^-128 at most
_BATCH_WORDS = 1 << 21  # values that are held at one time, whole rows
_SUMMED_ROWS = 64  # as floats at one time
_KEPT_WORDS = 5 << 20  # modulo each of five primes: 105 MB


@dataclass(frozen=True, slots=True, repr=False)
class Blinds:
    """What hides the combinations modulo one prime."""

    linear: Residues = field(repr=False)  # polynomials of `Sizes.linear` coefficients with the given sums
    quadratic: Residues = field(repr=False)  # polynomials of `Sizes.quotient` coefficients
    # the same as rows, two halves each, and the rows that hide folds: those of the matrix after its masks
    rows: Residues = field(repr=False)


class Matrix:
    """All rows; those modulo one prime are made when they are asked for. Its repr says nothing.

    The witness is (rows, l); entropy is private, for one proof alone. `sums`, (primes, REPEATS), times l are the sums
    of the blinds of linear combinations over the roots of x^l + 1.
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
        """First halves of the words of `rows`, its first rows modulo prime k: some at a time, with their places."""
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
    """Independent and uniform modulo a prime below 2^31 and close to it: the words of 31 bits that are below it."""
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
    """Two of k coefficients each with low + x^s high the polynomial; t random ones overlap, so that high hides it."""
    count, width, shift = len(polynomials), sizes.width, sizes.shift(polynomials.shape[1])
    low, high = polynomials[:, :width].copy(), np.zeros((count, width), np.uint32)
    high[:, : sizes.opened] = uniform((count, sizes.opened), prime, entropy)
    high[:, width - shift :] = polynomials[:, width:]  # all beyond the t random ones
    overlap = slice(shift, shift + sizes.opened)
    low[:, overlap] = code.difference(low[:, overlap], high[:, : sizes.opened], prime)
    return low, high


def prove_relations(
    relations: Sequence[Relation], witness: Callable[[int], NDArray[np.int32]], entropy: Entropy
) -> list[bytes]:
    """A proof of each relation, under one challenge; they tell only that the statement is true. Made once, and stored.

    One matrix is held at a time; if there are several, each is made three times. A try that would show a sum too close
    to an end of its range is thrown away, whatever the witness is, and another one is made: at most a quarter of them,
    far fewer for most sizes. Linear equations of all relations hold in sum. Whether `witness` (of relation k, (rows,
    l)) obeys the relation is not checked here: the proof would fail. `entropy` is private; only tests give others than
    the operating system's. Raises DomainError: a witness has another shape, or more than a quarter of all tries may be
    thrown away.
    """
    check_tries(relations[0].sizes, sum(relation.shape.largest for relation in relations))
    for _ in range(_MOST_TRIES):
        made = _attempt(relations, witness, entropy)
        if made is not None:
            return made
    raise DomainError("entropy that is not random")


def _attempt(
    relations: Sequence[Relation], witness: Callable[[int], NDArray[np.int32]], entropy: Entropy
) -> list[bytes] | None:
    seeds, sums = [entropy(SEED_BYTES) for _ in relations], sums_to_zero(relations, entropy)

    def matrix(number: int) -> Matrix:
        rows, relation = witness(number), relations[number]
        if rows.shape != (relation.shape.rows, relation.sizes.message):
            raise DomainError("a witness of this shape is not proved")
        return Matrix(relation.sizes, rows, keystream(seeds[number]), sums[number])

    held = [matrix(0)] if len(relations) == 1 else []
    trees = [levels_of(leaves_of(held[0] if held else matrix(number))) for number in range(len(relations))]
    asked = first_challenges([relation.digest for relation in relations], [tree[-1][0] for tree in trees])
    shown = []
    for number, (relation, challenge) in enumerate(zip(relations, asked, strict=True)):
        found = shown_sums(relation, challenge, held[0] if held else matrix(number))
        if found is None:
            return None
        shown.append(found)
    proofs: list[bytes] = []
    challenges = second_challenges(asked, [shown_bytes(found) for found in shown])
    for number, (relation, challenge) in enumerate(zip(relations, challenges, strict=True)):
        made = held[0] if held else matrix(number)
        proofs.append(answered(relation, challenge, made, shown[number], trees[number]).to_bytes())
    return proofs


def shown_sums(relation: Relation, challenge: Challenge, matrix: Matrix) -> NDArray[np.uint64] | None:
    """The sums that a challenge asks for; None if one is too close to an end of its range to be shown."""
    sizes = relation.sizes
    sums = matrix.sums(challenge.subsets(b"rows", relation.shape.rows), challenge.subsets(b"positions", sizes.message))
    largest = relation.shape.largest * sizes.message
    if sums.min() < largest or sums.max() >= (1 << RANGE_BITS) - largest:
        return None
    return sums.astype(np.uint64)


def sums_to_zero(relations: Sequence[Relation], entropy: Entropy) -> list[Residues]:
    """The sums of blinds, (primes, REPEATS) for each relation: uniform, but together zero."""
    primes = relations[0].sizes.ring.primes
    parts = [uniform((len(relations), REPEATS), prime, entropy).astype(np.int64) for prime in primes]
    for part, prime in zip(parts, primes, strict=True):
        part[-1] = -part[:-1].sum(axis=0) % prime
    return [np.stack([part[number] for part in parts]).astype(np.uint32) for number in range(len(relations))]


def answered(
    relation: Relation, challenge: Challenge, matrix: Matrix, sums: NDArray[np.uint64], tree: list[list[bytes]]
) -> Proof:
    primes = range(len(relation.sizes.ring.primes))
    each = [_answers(relation, matrix, challenge, sums, k) for k in primes]
    answers = Answers(*(np.stack(parts) for parts in zip(*each, strict=True)))
    places = opened_places(challenge, answers.to_bytes(), relation.sizes)
    columns = np.stack([_columns(matrix, places, k) for k in primes])
    return Proof(tree[-1][0], sums, answers, columns, matrix.salts[places], *paths(tree, places))


def leaves_of(matrix: Matrix) -> list[bytes]:
    hashes = ColumnHashes(matrix.salts)
    for k in range(len(matrix.sizes.ring.primes)):
        for words in matrix.words(k):
            hashes.add(words)
    return hashes.leaves()


def _columns(matrix: Matrix, places: NDArray[np.intp], k: int) -> Residues:
    return np.hstack([words[:, places].T for words in matrix.words(k)])


def _answers(
    relation: Relation, matrix: Matrix, challenge: Challenge, sums: NDArray[np.uint64], k: int
) -> tuple[Residues, Residues, Residues]:
    sizes, prime, places = relation.sizes, relation.sizes.ring.primes[k], Places(relation.sizes, relation.shape.rows)
    rows = matrix.rows(k)
    folds = code.combinations(challenge.folds(places.folded, prime, sizes.folds), rows[: places.folded], prime)
    return (
        code.total(folds, rows[places.folds], prime),
        code.total(_linear(linear(relation, challenge, sums, k)[0], sizes, rows, k), matrix.blinds[k].linear, prime),
        code.total(
            _quotient(relation, challenge, matrix, rows, k)[:, : sizes.quotient], matrix.blinds[k].quadratic, prime
        ),
    )


def _linear(terms: Iterable[Term], sizes: Sizes, rows: Residues, k: int) -> Residues:
    prime = sizes.ring.primes[k]
    found = np.zeros((REPEATS, sizes.places), np.uint32)
    for term in terms:
        sums = code.chosen(term.weights, rows, term.rows, prime)
        words = code.words(sums.reshape(-1, sizes.width), sizes, prime).reshape(*sums.shape[:2], -1)
        found = code.total(found, code.products(term.multipliers, words, prime), prime)
    return code.interpolated(found, prime)[:, : sizes.linear]


def _quotient(relation: Relation, challenge: Challenge, matrix: Matrix, rows: Residues, k: int) -> Residues:
    """The quadratic combinations over x^l + 1, as coefficients: zero beyond `Sizes.quotient` for a true statement.

    They have fewer than 2 l coefficients, so values of all rows at 2 l places are enough: the first half.
    """
    sizes, prime, half = relation.sizes, relation.sizes.ring.primes[k], relation.sizes.places // 2
    weights, squares = quadratic(relation, challenge, prime), np.zeros((REPEATS, half), np.uint32)
    for batch, values in matrix.halves(k, rows[: weights.squares.shape[1]]):
        squares = code.total(squares, code.squares(weights.squares[:, batch], values, prime), prime)
    bits = code.polynomials(code.combinations(weights.bits, rows[: relation.shape.bits], prime), sizes, prime)
    found = quadratic_values(weights, squares, code.values(bits, half, prime, roots_of=sizes.places), prime)
    divided = code.product(found, code.inverse_vanishing(sizes, prime)[:half], prime)
    return code.interpolated(divided, prime, roots_of=sizes.places)
