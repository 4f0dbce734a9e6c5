"""A proof as bytes: the root, answers to the first challenge, and the columns that the second one opens.

Its size follows from the number of rows and l: t columns and paths, 20 bytes an entry, and 0.9 to 3.4 MB of answers for
the ring that releases use. Anybody who has the statement verifies it (docs/proofs/proved-bounds.md, 4).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from commingle.shared.errors import DomainError, ProofError
from commingle.shared.proving import code
from commingle.shared.proving.parameters import MATRIX_LIMIT, RANGE_BITS, RANGES, REPEATS, Sizes
from commingle.shared.proving.relation import Relation, Term, linear, quadratic, quadratic_values
from commingle.shared.proving.transcript import (
    CAP,
    HASH_BYTES,
    Challenge,
    ColumnHashes,
    first_challenges,
    opened_places,
    root_of,
    second_challenges,
    tops,
)
from commingle.shared.ring.parameters import format_residues
from commingle.shared.ring.residues import Residues


@dataclass(frozen=True, slots=True)
class Places:
    """The numbers of a matrix's rows; those of the witness come first.

    Raises DomainError: too many for section 5 of the proof.
    """

    sizes: Sizes
    witness: int

    def __post_init__(self) -> None:
        if self.all > MATRIX_LIMIT:
            raise DomainError(f"a matrix of {self.all} rows is not proved")

    @property
    def masked(self) -> int:
        return self.witness + self.sizes.mask_rows

    @property
    def linear(self) -> tuple[slice, slice]:
        """Rows of the linear combinations: low and high halves."""
        return self._halves(self.masked)

    @property
    def quadratic(self) -> tuple[slice, slice]:
        """Rows of the quadratic combinations: low and high halves."""
        return self._halves(self.masked + 2 * REPEATS)

    @property
    def folded(self) -> int:
        """All but the last ones, which hide combinations of all others."""
        return self.masked + 4 * REPEATS

    @property
    def folds(self) -> slice:
        return slice(self.folded, self.all)

    @property
    def all(self) -> int:
        return self.witness + self.sizes.added

    @staticmethod
    def _halves(start: int) -> tuple[slice, slice]:
        return slice(start, start + REPEATS), slice(start + REPEATS, start + 2 * REPEATS)


@dataclass(frozen=True, slots=True)
class Answers:
    """To the second challenge. Residues modulo each prime, primes first."""

    folds: Residues  # combinations of all rows, (primes, `Sizes.folds`, k)
    linear: Residues  # coefficients, (primes, REPEATS, `Sizes.linear`)
    quotient: Residues  # of the quadratic combinations over x^l + 1, (primes, REPEATS, `Sizes.quotient`)

    def to_bytes(self) -> bytes:
        return b"".join(map(format_residues, (self.folds, self.linear, self.quotient)))


@dataclass(frozen=True, slots=True)
class Proof:
    """What one party sends."""

    root: bytes  # of the tree
    sums: NDArray[np.uint64]  # over random subsets of rows and of positions, and masks, as integers, (RANGES, RANGES)
    answers: Answers  # to the second challenge
    columns: Residues  # opened, (primes, t, rows)
    salts: NDArray[np.uint8]  # of their leaves, (t, 32)
    paths: NDArray[np.uint8]  # to the cap, (t, log2 (4 l / CAP), 32)
    cap: NDArray[np.uint8]  # of the tree, (CAP, 32)

    def to_bytes(self) -> bytes:
        opened = format_residues(self.columns) + self.salts.tobytes() + self.paths.tobytes() + self.cap.tobytes()
        return self.root + shown_bytes(self.sums) + self.answers.to_bytes() + opened


def shown_bytes(sums: NDArray[np.integer]) -> bytes:
    return sums.astype("<u8", copy=False).tobytes()


def _shapes(sizes: Sizes, rows: int) -> Iterator[tuple[str, Sequence[int]]]:
    primes = len(sizes.ring.primes)
    yield "<u8", (RANGES, RANGES)
    yield "<u4", (primes, sizes.folds, sizes.width)
    yield "<u4", (primes, REPEATS, sizes.linear)
    yield "<u4", (primes, REPEATS, sizes.quotient)
    yield "<u4", (primes, sizes.opened, rows)
    yield "u1", (sizes.opened, HASH_BYTES)
    yield "u1", (sizes.opened, (sizes.places // CAP).bit_length() - 1, HASH_BYTES)
    yield "u1", (CAP, HASH_BYTES)


def parse_head(received: bytes) -> tuple[bytes, bytes]:
    """The root, and sums in their wire form: challenges are hashed from both."""
    end = HASH_BYTES + np.dtype("<u8").itemsize * RANGES**2
    return received[:HASH_BYTES], received[HASH_BYTES:end]


def proof_bytes(sizes: Sizes, rows: int) -> int:
    return HASH_BYTES + sum(np.dtype(kind).itemsize * prod(shape) for kind, shape in _shapes(sizes, rows))


def parse_proof(received: bytes, sizes: Sizes, rows: int) -> Proof:
    """The inverse of `Proof.to_bytes`. Raises ProofError: another length, or a residue or a sum beyond its limit."""
    if len(received) != proof_bytes(sizes, rows):
        raise ProofError("size")
    parts, at = [], HASH_BYTES
    for kind, shape in _shapes(sizes, rows):
        parts.append(np.frombuffer(received, kind, prod(shape), at).reshape(shape))
        at += parts[-1].nbytes
    sums, folds, linear, quotient, columns, salts, paths, cap = parts
    if any(
        bool((plane >= prime).any())
        for part in (folds, linear, quotient, columns)
        for plane, prime in zip(part, sizes.ring.primes, strict=True)
    ):
        raise ProofError("residues")
    if bool((sums >> RANGE_BITS).any()):
        raise ProofError("sums")
    return Proof(received[:HASH_BYTES], sums, Answers(folds, linear, quotient), columns, salts, paths, cap)


def verify_relations(relations: Sequence[Relation], received: Sequence[bytes]) -> None:
    """Verify one proof for each relation of the statement. Raises ProofError: its sender made one wrongly."""
    if len(received) != len(relations):
        raise ProofError("size")
    heads = [parse_head(part) for part in received]
    asked = first_challenges([relation.digest for relation in relations], [root for root, _ in heads])
    challenges = second_challenges(asked, [shown for _, shown in heads])
    left = np.zeros((len(relations[0].sizes.ring.primes), REPEATS), object)
    for relation, challenge, part in zip(relations, challenges, received, strict=True):
        rows = Places(relation.sizes, relation.shape.rows).all
        left += _verify_one(relation, challenge, parse_proof(part, relation.sizes, rows))
    for numbers, prime in zip(left, relations[0].sizes.ring.primes, strict=True):
        if any(number % prime for number in numbers):
            raise ProofError("total")


def _verify_one(relation: Relation, challenge: Challenge, proof: Proof) -> NDArray[np.object_]:
    """The excess of the sums of linear combinations over their constants, (primes, REPEATS)."""
    places = opened_places(challenge, proof.answers.to_bytes(), relation.sizes)
    _check_commitment(proof, places)
    primes = range(len(relation.sizes.ring.primes))
    return np.array([PrimeChecks(relation, challenge, proof, places, k).run() for k in primes], object)


def _check_commitment(proof: Proof, places: NDArray[np.intp]) -> None:
    hashes = ColumnHashes(proof.salts)
    for columns in proof.columns:
        hashes.add_columns(columns)
    ends = proof.cap[places >> proof.paths.shape[1]].tobytes()
    if root_of(proof.cap.tobytes()) != proof.root or b"".join(tops(hashes.leaves(), places, proof.paths)) != ends:
        raise ProofError("commitment")


class PrimeChecks:
    """Modulo one prime, at the opened places: compares the answers with what the columns there give."""

    def __init__(
        self,
        relation: Relation,
        challenge: Challenge,
        proof: Proof,
        places: NDArray[np.intp],
        k: int,
    ) -> None:
        self.relation, self.challenge, self.sums, self.answers = relation, challenge, proof.sums, proof.answers
        self.columns, self.places, self.k = np.ascontiguousarray(proof.columns[k].T), places, k
        self.sizes, self.prime = relation.sizes, relation.sizes.ring.primes[k]
        self.rows = Places(relation.sizes, relation.shape.rows)

    def run(self) -> list[int]:
        terms, constants = linear(self.relation, self.challenge, self.sums, self.k)
        for failed, holds in (
            ("code", self._code()),
            ("linear", self._linear(terms)),
            ("quadratic", self._quadratic()),
        ):
            if not holds:
                raise ProofError(failed)
        length = self.sizes.message
        said = self.answers.linear[self.k][:, [0, length, 2 * length]].tolist()
        sums = [length * (low - middle + high) for low, middle, high in said]  # x^l is -1 where it is summed
        return [number - constant for number, constant in zip(sums, constants, strict=True)]

    def _code(self) -> bool:
        weights = self.challenge.folds(self.rows.folded, self.prime, self.sizes.folds)
        sums = code.combinations(weights, self.columns[: self.rows.folded], self.prime)
        sums = code.total(sums, self.columns[self.rows.folds], self.prime)
        return np.array_equal(self._words(self.answers.folds[self.k]), sums)

    def _linear(self, terms: Iterable[Term]) -> bool:
        found = np.zeros((REPEATS, len(self.places)), np.uint32)
        for term in terms:
            sums = code.chosen(term.weights, self.columns, term.rows, self.prime)
            opened = code.products(term.multipliers[..., self.places], sums, self.prime)
            found = code.total(found, opened, self.prime)
        blind = self.blind(self.rows.linear, self.sizes.linear)
        return np.array_equal(self._values(self.answers.linear[self.k]), code.total(found, blind, self.prime))

    def _quadratic(self) -> bool:
        weights = quadratic(self.relation, self.challenge, self.prime)
        squares = code.squares(weights.squares, self.columns[: weights.squares.shape[1]], self.prime)
        bits = code.combinations(weights.bits, self.columns[: self.relation.shape.bits], self.prime)
        found = quadratic_values(weights, squares, bits, self.prime)
        blind = self.blind(self.rows.quadratic, self.sizes.quotient)
        hidden = code.difference(self._values(self.answers.quotient[self.k]), blind, self.prime)
        vanishing = code.vanishing(self.sizes, self.prime)[self.places]
        return np.array_equal(code.product(hidden, vanishing, self.prime), found)

    def blind(self, halves: tuple[slice, slice], coefficients: int) -> Residues:
        """The blind of a combination of so many coefficients, from its two rows: whatever they are, it has no more."""
        powers = code.powers(self.sizes.shift(coefficients), self.sizes.places, self.prime)[self.places]
        low, high = (self.columns[half] for half in halves)
        return code.total(low, code.product(high, powers, self.prime), self.prime)

    def _words(self, rows: Residues) -> Residues:
        return code.words(rows, self.sizes, self.prime)[:, self.places]

    def _values(self, coefficients: Residues) -> Residues:
        return code.values(coefficients, self.sizes.places, self.prime)[:, self.places]
