"""The prover's side (docs/proofs/proved-bounds.md, 4)."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving import code
from commingle.shared.proving.matrix import Matrix, uniform
from commingle.shared.proving.parameters import RANGE_BITS, REPEATS, Sizes, check_tries
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
from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.residues import Residues

_MOST_TRIES = 64  # all of them are thrown away with probability 2^-128 at most


def prove_relations(
    relations: Sequence[Relation], witness: Callable[[int], NDArray[np.int32]], entropy: Entropy
) -> list[bytes]:
    """A proof of each, under one challenge, that tell nothing but that the statement is true. Made once, and stored.

    One matrix is held at a time, and of several each is made three times. A try that would show a sum too close to an
    end of its range is thrown away, whatever the witness is, and another one is made: at most a quarter of them, far
    fewer for most sizes.

    Args:
        relations: the statement; their linear equations hold in sum.
        witness: of relation k, (rows, l). That it obeys the relation is not checked here: the proof would fail.
        entropy: private; only tests give others than the operating system's.

    Raises:
        DomainError: a witness has another shape, or more than a quarter of all tries may be thrown away.
    """
    check_tries(relations[0].sizes, sum(relation.largest for relation in relations))
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
        if rows.shape != (relation.rows, relation.sizes.message):
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
    """The sums that a challenge asks for; none where one is too close to an end of its range to be shown."""
    sizes = relation.sizes
    sums = matrix.sums(challenge.subsets(b"rows", relation.rows), challenge.subsets(b"positions", sizes.message))
    largest = relation.largest * sizes.message
    if sums.min() < largest or sums.max() >= (1 << RANGE_BITS) - largest:
        return None
    return sums.astype(np.uint64)


def sums_to_zero(relations: Sequence[Relation], entropy: Entropy) -> list[Residues]:
    """What blinds sum up to, (primes, REPEATS) for each relation: uniform, but together zero."""
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
    sizes, prime, places = relation.sizes, relation.sizes.ring.primes[k], Places(relation.sizes, relation.rows)
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
        sums = np.stack([code.chosen(term.weights, rows, line, prime) for line in term.rows])
        words = code.words(sums.reshape(-1, sizes.width), sizes, prime).reshape(*sums.shape[:2], -1)
        found = code.total(found, code.products(term.multipliers, words, prime), prime)
    return code.interpolated(found, prime)[:, : sizes.linear]


def _quotient(relation: Relation, challenge: Challenge, matrix: Matrix, rows: Residues, k: int) -> Residues:
    """The quadratic combinations over x^l + 1, as coefficients: zero beyond `Sizes.quotient` for a true statement.

    It has fewer than 2 l coefficients, so values of all rows at 2 l places are enough: the first half.
    """
    sizes, prime, half = relation.sizes, relation.sizes.ring.primes[k], relation.sizes.places // 2
    weights, squares = quadratic(relation, challenge, prime), np.zeros((REPEATS, half), np.uint32)
    for batch, values in matrix.halves(k, rows[: weights.squares.shape[1]]):
        squares = code.total(squares, code.squares(weights.squares[:, batch], values, prime), prime)
    bits = code.polynomials(code.combinations(weights.bits, rows[: relation.bits], prime), sizes, prime)
    found = quadratic_values(weights, squares, code.values(bits, half, prime, roots_of=sizes.places), prime)
    divided = code.product(found, code.inverse_vanishing(sizes, prime)[:half], prime)
    return code.interpolated(divided, prime, roots_of=sizes.places)
