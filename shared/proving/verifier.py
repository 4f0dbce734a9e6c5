"""The verifier's side: anybody's who has the statement (docs/proofs/proved-bounds.md, 4)."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving import code
from commingle.shared.proving.errors import ProofError
from commingle.shared.proving.parameters import REPEATS
from commingle.shared.proving.proof import Places, Proof, parse_head, parse_proof
from commingle.shared.proving.relation import Relation, Term, linear, quadratic, quadratic_values
from commingle.shared.proving.transcript import (
    Challenge,
    ColumnHashes,
    first_challenges,
    opened_places,
    root_of,
    second_challenges,
    tops,
)
from commingle.shared.ring.residues import Residues


def verify_relations(relations: Sequence[Relation], received: Sequence[bytes]) -> None:
    """Nothing, if these proofs, one for each relation of the statement, hold.

    Raises ProofError: one does not. Its sender made it wrongly.
    """
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
    """What the sums of linear combinations exceed their constants by, (primes, REPEATS)."""
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
    """Modulo one prime: what was answered, at the opened places, against what the columns there give."""

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
        """What hides a combination of so many coefficients, from its two rows: it has no more, whatever they are."""
        powers = code.powers(self.sizes.shift(coefficients), self.sizes.places, self.prime)[self.places]
        low, high = (self.columns[half] for half in halves)
        return code.total(low, code.product(high, powers, self.prime), self.prime)

    def _words(self, rows: Residues) -> Residues:
        return code.words(rows, self.sizes, self.prime)[:, self.places]

    def _values(self, coefficients: Residues) -> Residues:
        return code.values(coefficients, self.sizes.places, self.prime)[:, self.places]
