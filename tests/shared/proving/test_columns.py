"""What an owner proves of its ciphertexts: true statements hold, and each way of cheating is refused by name."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.shared.errors import CiphertextError, DomainError, ProofError
from commingle.shared.proving import ciphertexts, prover
from commingle.shared.proving.ciphertexts import segments
from commingle.shared.proving.columns import (
    Columns,
    column_witness,
    four_squares,
    opened_secrets,
    prove_columns,
    verify_columns,
)
from commingle.shared.proving.evaluator import Evaluated, reply_witness, verify_replies
from commingle.shared.proving.parameters import RANGE_BITS, REPEATS
from commingle.shared.proving.proof import Places, parse_proof, shown_bytes, verify_relations
from commingle.shared.proving.prover import Matrix, prove_relations
from commingle.shared.proving.relation import Joined, Relation
from commingle.shared.proving.transcript import first_challenges, levels_of, second_challenges
from commingle.shared.ring.encryption import encrypt
from commingle.shared.ring.parameters import STANDARD, format_residues, parse_residues
from commingle.shared.ring.residues import Residues, residues, sums, to_slots
from tests.world.proving import BOUND, Member, hidden_sums, honest, last_replies_of, member, replies_of, reply_to
from tests.world.ring import seeded

PRIMES = STANDARD.primes


def proof_of(statement: Columns, witness: NDArray[np.int32], seed: int = 5) -> bytes:
    """By the rules, of whatever witness."""
    return prove_relations([statement], lambda _: witness, seeded(seed))[0]


def refused(statement: Relation, received: bytes) -> str:
    with pytest.raises(ProofError) as caught:
        verify_relations([statement], [received])
    return caught.value.failed


@pytest.fixture(scope="module")
def owner() -> Member:
    return honest(2000, 3)


@pytest.fixture(scope="module")
def witness(owner: Member) -> NDArray[np.int32]:
    return column_witness(owner.statement(), owner.key, owner.rows)


@pytest.fixture(scope="module")
def proof(owner: Member) -> bytes:
    return prove_columns(owner.statement(), owner.key, owner.rows, seeded(3))


SHAPES = [(1, 1), (9000, 1), (5000, 2), (2731, 3), (1171, 7), (900, 17), (514, 33)]


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_proof_of_rows_within_their_bound_holds_for_every_arrangement(rows: int, columns: int) -> None:
    made = honest(rows, columns)
    verify_columns(made.statement(), prove_columns(made.statement(), made.key, made.rows, seeded(2)))


def test_each_segment_of_many_rows_is_proved_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ciphertexts, "SEGMENT_WORDS", 1 << 19)
    made = honest(40_000, 8)
    parts = list(segments(made.layout))
    assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
    assert parts[-1][1] == 40_000
    assert len(parts) == 2
    for number, (start, stop) in enumerate(parts):
        statement = made.statement(number=number)
        received = prove_columns(statement, made.key, made.rows[start:stop], seeded(number))
        verify_columns(statement, received)
        assert refused(made.statement(number=1 - number), received) in {"size", "commitment"}


@pytest.mark.parametrize("excess", [1, 2, 5000])
def test_row_beyond_its_bound_is_not_proved(owner: Member, excess: int) -> None:
    with pytest.raises(DomainError, match="beyond their bound"):
        prove_columns(owner.statement(BOUND - excess), owner.key, owner.rows, seeded(3))


def test_row_one_beyond_its_bound_is_refused_whatever_fills_it_up(witness: NDArray[np.int32], owner: Member) -> None:
    """The last row has squared norm c + 1 for the claimed c; its four squares are nothing."""
    statement = owner.statement(BOUND - 1)
    assert refused(statement, proof_of(statement, witness)) == "quadratic"


def test_other_rows_than_were_encrypted_are_refused(owner: Member) -> None:
    """Rows within bounds are proved where rows beyond them were encrypted."""
    beyond = owner.rows.copy()
    beyond[7] = [2**14, 2**14, -(2**14)]
    cheat = member(beyond, 1)
    statement = cheat.statement()
    shown = column_witness(owner.statement(), owner.key, owner.rows)
    others = statement.shape.bits + statement.shape.squares[0].rows
    own = column_witness(cheat.statement(4 * BOUND), cheat.key, cheat.rows)
    shown[:others] = own[:others]
    assert refused(statement, proof_of(statement, shown)) == "total"


class Residual(Matrix):
    """A prover's matrix in which one number is another integer modulo each prime."""

    place: Any = (0, 0)
    shown: Any

    def rows(self, k: int) -> Residues:
        made = super().rows(k)
        made[self.place] = self.shown[k]
        return made


def square_root(number: int, prime: int) -> int | None:
    """By Tonelli and Shanks."""
    if pow(number, (prime - 1) // 2, prime) != 1:
        return None
    odd, twos = prime - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    other = next(z for z in range(2, prime) if pow(z, (prime - 1) // 2, prime) == prime - 1)
    c, r, t = pow(other, odd, prime), pow(number, (odd + 1) // 2, prime), pow(number, odd, prime)
    while t != 1:
        least = next(i for i in range(1, twos) if pow(t, 1 << i, prime) == 1)
        b = pow(c, 1 << (twos - least - 1), prime)
        twos, c, r, t = least, b * b % prime, r * b % prime, t * b * b % prime
    return r


def made_of(statement: Relation, matrix: Matrix, shown: NDArray[np.uint64] | None = None) -> bytes:
    """The prover's steps with a matrix of one's own, and sums that a cheat says are those of it."""
    tree = levels_of(prover.leaves_of(matrix))
    asked = first_challenges([statement.digest], [tree[-1][0]])
    sums = prover.shown_sums(statement, asked[0], matrix) if shown is None else shown
    assert sums is not None
    (challenge,) = second_challenges(asked, [shown_bytes(sums)])
    return prover.answered(statement, challenge, matrix, sums, tree).to_bytes()


@pytest.mark.parametrize("check", ["linear", "quadratic"])
def test_answer_that_is_not_of_the_rows_behind_the_root_is_refused_by_its_own_check(
    owner: Member, witness: NDArray[np.int32], check: str
) -> None:
    """Its total is right: what is altered is a coefficient that no total has."""
    statement = owner.statement()
    matrix = Matrix(statement.sizes, witness, seeded(3), no_sums())
    verify_relations([statement], [made_of(statement, matrix)])
    for blinds, prime in zip(matrix.blinds, PRIMES, strict=True):
        answer = getattr(blinds, check)
        answer[:, 1] = (answer[:, 1] + 1) % prime
    assert refused(statement, made_of(statement, matrix)) == check


def roots_of(number: int) -> Residues | None:
    """Of its square root modulo each prime, (primes, 1); none where it has none."""
    found = [square_root(number % prime, prime) for prime in PRIMES]
    return None if None in found else np.array(found, np.uint32)[:, None]


def wrapping_around() -> tuple[int, Residues]:
    """A length of both entries of a row beyond its bound, and what fills its squares up modulo every prime."""
    found = ((length, roots_of(BOUND - 2 * length**2)) for length in range(2**14, 2**13, -1))
    return next((length, roots) for length, roots in found if roots is not None)


def no_sums() -> Residues:
    return np.zeros((len(PRIMES), REPEATS), np.uint32)


def test_squares_that_wrap_around_modulo_each_prime_are_refused() -> None:
    """A row far beyond its bound, filled up by an integer whose square is negative enough modulo every prime."""
    length, roots = wrapping_around()
    made = member(np.array([[length, length]] * 2), 4)
    witness = column_witness(made.statement(2 * length**2), made.key, made.rows)
    claimed = made.statement()
    filling = claimed.column_rows[:, claimed.ciphertexts.layout.columns :]
    group = int(filling[0, 0])
    witness[filling] = 0
    witness[filling[:, 0]] = int(BOUND**0.5)
    matrix = Residual(claimed.sizes, witness, seeded(8), no_sums())
    matrix.place, matrix.shown = (group, slice(0, 2)), roots  # both rows, alike
    assert refused(claimed, made_of(claimed, matrix)) == "total"
    assert_out_of_range(claimed, matrix)


def test_last_partys_squares_that_wrap_around_modulo_each_prime_are_refused() -> None:
    """The same in a proof of replies by a party that encrypts nothing; they are evaluations of its long rows."""
    length, roots = wrapping_around()
    made, owner = member(np.array([[length, length]] * 2), 4), honest(2, 3)
    hidden = hidden_sums(owner, made.rows)
    said, claimed = (
        last_replies_of(made, [reply_to(owner, hidden)], bound).relations[0] for bound in (2 * length**2, BOUND)
    )
    witness = reply_witness(said, None, made.rows, [hidden])
    verify_relations([said], prove_relations([said], lambda _: witness, seeded(7)))
    assert isinstance(claimed, Joined)
    filling = claimed.places(1)[2:]
    assert len(filling) == 4
    witness[filling] = 0
    witness[filling[0]] = int(BOUND**0.5)
    matrix = Residual(claimed.sizes, witness, seeded(8), no_sums())
    matrix.place, matrix.shown = (int(filling[0]), slice(0, 2)), roots
    assert refused(claimed, made_of(claimed, matrix)) == "total"
    assert_out_of_range(claimed, matrix)


def test_errors_whose_squares_wrap_around_modulo_each_prime_are_refused() -> None:
    """An error of 2^61, of which everything is as it has to be modulo every prime but its size."""
    made = honest(300, 2)
    statement, large = made.statement(), 1 << 61
    errors = every_error(made)
    position = 77
    left = statement.shape.squares[0].bound - int(
        (errors.reshape(-1, statement.sizes.message)[1:, position] ** 2).sum()
    )
    while (roots := roots_of(left - large**2)) is None:
        large += 1
    errors[0, position] = large
    cheat = with_errors(made, errors)
    claimed = cheat.statement()
    witness = column_witness(made.statement(), made.key, made.rows)
    first, filling = int(claimed.ciphertexts.error_rows[0, 0]), int(claimed.ciphertexts.error_rows[-1, -1]) + 1
    witness[filling : filling + 4, position] = 0
    residues = np.array([[large % prime, root[0]] for root, prime in zip(roots, PRIMES, strict=True)], np.uint32)
    matrix = Residual(claimed.sizes, witness, seeded(8), no_sums())
    matrix.place, matrix.shown = ([first, filling], position), residues
    assert refused(claimed, made_of(claimed, matrix)) == "total"
    assert_out_of_range(claimed, matrix)


def assert_out_of_range(statement: Relation, matrix: "Residual") -> None:
    """The sums that are right modulo every prime are no numbers below 2^59: with those that are, a proof is refused.

    Everything else holds: the sums that an honest prover would show, were they in range, are refused for nothing else.
    """
    modulus, sizes = prod(PRIMES), statement.sizes
    numbers = sum(
        residue.astype(object) * (modulus // prime) * pow(modulus // prime, -1, prime)
        for residue, prime in zip(matrix.shown, PRIMES, strict=True)
    )
    exact = matrix.witness.astype(object)
    exact[matrix.place] = numbers % modulus
    tree = levels_of(prover.leaves_of(matrix))
    (challenge,) = first_challenges([statement.digest], [tree[-1][0]])
    rows = challenge.subsets(b"rows", statement.shape.rows).astype(object)
    positions = challenge.subsets(b"positions", sizes.message)
    changed = np.unique(np.atleast_1d(np.array(matrix.place[0])))
    sums = matrix.sums(challenge.subsets(b"rows", statement.shape.rows), positions).astype(object)
    over = (exact[changed] - matrix.witness[changed]) @ positions.T.astype(object)
    right = (sums + rows[:, changed] @ over) % modulus
    assert (right >> RANGE_BITS).astype(bool).any()
    cut = (right % (1 << 64)).astype(np.uint64)
    assert refused(statement, made_of(statement, matrix, cut)) == "sums"
    assert refused(statement, made_of(statement, matrix, cut % np.uint64(1 << RANGE_BITS))) == "total"


def every_error(made: Member) -> NDArray[np.int64]:
    return opened_secrets(made.ciphertexts(), made.key)[1].astype(np.int64)


def with_errors(made: Member, errors: NDArray[np.int64]) -> Member:
    """The same key and rows, encrypted with these errors, the public key's first: (polynomials, N)."""
    layout, change = made.layout, (errors.astype(object) - every_error(made))
    moved = residues(change, PRIMES)
    key = parse_residues(made.public_key, layout.key_shape, PRIMES)
    (block,) = made.blocks
    words = parse_residues(block, layout.block_shape(0, layout.rows), PRIMES)
    return replace(
        made,
        public_key=format_residues(sums(key, to_slots(moved[:, 0].copy(), PRIMES), PRIMES)),
        blocks=(format_residues(sums(words, moved[:, 1:].reshape(words.shape), PRIMES)),),
    )


@pytest.mark.parametrize("beyond", [0, 1])
def test_errors_whose_squares_sum_up_to_their_bound_hold_and_to_one_more_are_refused(beyond: int) -> None:
    """One error is far beyond what is drawn, so that an honest prover refuses either; a cheat proves the first."""
    made = honest(300, 2)
    statement, position = made.statement(), 1234
    errors = every_error(made)
    parts = errors.reshape(-1, statement.sizes.message)
    found = four_squares(np.array([statement.shape.squares[0].bound + beyond]))[:, 0]
    parts[:, position] = 0
    parts[2:6, position] = found
    cheat = with_errors(made, errors)
    claimed = cheat.statement()
    with pytest.raises(DomainError, match="beyond what is drawn"):
        prove_columns(claimed, cheat.key, cheat.rows, seeded(3))
    witness = column_witness(statement, made.key, made.rows)
    first, held = claimed.shape.bits, claimed.ciphertexts.error_rows.size
    witness[first : first + held, position] = parts[:, position]
    witness[first + held : first + held + 4, position] = 0
    received = proof_of(claimed, witness)
    if beyond:
        assert refused(claimed, received) == "quadratic"
    else:
        verify_columns(claimed, received)


@pytest.mark.parametrize("error", [60, 1000, 2**60])
def test_oversized_noise_is_refused(error: int) -> None:
    """One error of one ciphertext is beyond what all of them may be together, shown as it is or as one that is not."""
    made = honest(300, 2)
    errors = every_error(made)
    errors[1, 5] = error
    cheat = with_errors(made, errors)
    statement = cheat.statement()
    with pytest.raises(DomainError, match="beyond what is drawn"):
        prove_columns(statement, cheat.key, cheat.rows, seeded(3))
    witness = column_witness(made.statement(), made.key, made.rows)
    assert refused(statement, proof_of(statement, witness)) == "total"
    matrix = Residual(statement.sizes, witness, seeded(8), no_sums())
    matrix.place = (int(statement.ciphertexts.error_rows[1, 0]), 5)
    matrix.shown = np.array([error % prime for prime in PRIMES], np.uint32)
    assert refused(statement, made_of(statement, matrix)) == "quadratic"


def test_number_that_is_out_of_range_is_refused_where_its_square_does_not_matter() -> None:
    """An error in a proof of replies, which has no squares: all is right modulo every prime but for what is shown."""
    own, owner = honest(300, 2, 2), honest(300, 3, 1)
    errors = every_error(own)
    errors[1, 5] = 1 << 61
    cheat = with_errors(own, errors)
    hidden = hidden_sums(owner, own.rows)
    true, false = (replies_of(each, [reply_to(owner, hidden)]) for each in (own, cheat))
    (relation,), (known,) = false.relations, true.relations
    witness = reply_witness(known, own.key, own.rows, [hidden])
    matrix = Residual(relation.sizes, witness, seeded(8), no_sums())
    assert isinstance(relation, Joined)
    evaluated = relation.parts[1]
    assert isinstance(evaluated, Evaluated)
    numbers = evaluated.ciphertexts.error_rows
    row = relation.places(1)[numbers[1, 5 // relation.sizes.message]]
    matrix.place = (int(row), 5)
    matrix.shown = np.array([(1 << 61) % prime for prime in PRIMES], np.uint32)
    with pytest.raises(ProofError) as caught:
        verify_replies(false, [made_of(relation, matrix)])
    assert caught.value.failed == "total"


def test_word_that_is_no_polynomial_is_refused(owner: Member, witness: NDArray[np.int32]) -> None:
    class Bent(Matrix):
        """Its first row has other values at a third of the places."""

        def values(self, rows: Residues, k: int, count: int) -> Iterator[tuple[slice, Residues]]:
            for batch, made in super().values(rows, k, count):
                if batch.start == 0 and count == self.sizes.places:
                    made[0, : count // 3] ^= 1
                yield batch, made

    statement = owner.statement()
    received = made_of(statement, Bent(statement.sizes, witness, seeded(8), no_sums()))
    assert refused(statement, received) == "code"


def test_bit_of_a_secret_that_is_two_is_refused(owner: Member, witness: NDArray[np.int32]) -> None:
    tampered = witness.copy()
    ones = np.flatnonzero((tampered[0] == 1) & (tampered[1] == 1))
    tampered[0, ones[0]], tampered[1, ones[0]] = 2, 0
    statement = owner.statement()
    assert refused(statement, proof_of(statement, tampered)) == "quadratic"


def test_two_keys_in_one_release_are_refused() -> None:
    """Ciphertexts under another secret than the public key's."""
    made, other = honest(300, 2), honest(300, 2, 7)
    blocks = (encrypt(other.key, made.layout, (0, 300), made.rows, seeded(4)),)
    statement = replace(made, blocks=blocks).statement()
    with pytest.raises(DomainError, match="another key"):
        prove_columns(statement, made.key, made.rows, seeded(3))
    witness = column_witness(made.statement(), made.key, made.rows)
    assert refused(statement, proof_of(statement, witness)) == "total"


def test_every_flipped_byte_is_refused(owner: Member, proof: bytes) -> None:
    """Sixty places over all of the proof, ends of its parts among them."""
    statement = owner.statement()
    places = [0, 31, 32, len(proof) - 1, *np.random.default_rng(6).integers(0, len(proof), 56).tolist()]
    for place in places:
        tampered = bytearray(proof)
        tampered[place] ^= 1 << (place % 7)
        assert refused(statement, bytes(tampered)) != "size"


def test_proof_of_another_size_is_refused(owner: Member, proof: bytes) -> None:
    for received in (b"", proof[:-1], proof + b"\0"):
        assert refused(owner.statement(), received) == "size"


def test_proof_holds_for_its_statement_alone(owner: Member, proof: bytes) -> None:
    others = [owner.statement(BOUND + 1), honest(2000, 3, 2).statement()]
    key = bytearray(owner.public_key)
    key[0] ^= 1
    others.append(replace(owner, public_key=bytes(key)).statement())
    named = replace(owner, layout=replace(owner.layout, context=b"another release"))
    others.append(named.statement())
    for statement in others:
        assert refused(statement, proof) == "commitment"


def test_answers_that_are_exchanged_between_two_proofs_are_refused(owner: Member, proof: bytes) -> None:
    statement, rows = owner.statement(), Places(owner.statement().sizes, owner.statement().shape.rows).all
    other = parse_proof(prove_columns(statement, owner.key, owner.rows, seeded(4)), statement.sizes, rows)
    own = parse_proof(proof, statement.sizes, rows)
    parts = ("answers", "sums", "root", "paths", "cap")
    for mixed in (replace(own, **{part: getattr(other, part)}) for part in parts):
        assert refused(statement, mixed.to_bytes()) == "commitment"


def test_statement_about_no_bound_or_malformed_ciphertexts_is_none(owner: Member) -> None:
    for bound in (0, -1, 2**38):
        with pytest.raises(DomainError, match="positive"):
            owner.statement(bound)
    whole = owner.ciphertexts()
    with pytest.raises(DomainError, match="one segment"):
        replace(whole, segment=(0, 1999))
    with pytest.raises(DomainError, match="other blocks"):
        replace(whole, blocks=[])
    for key, blocks in ((whole.public_key[4:], whole.blocks), (whole.public_key, [b"\xff" * len(whole.blocks[0])])):
        with pytest.raises(CiphertextError):
            replace(whole, public_key=key, blocks=blocks)


def test_rows_of_another_shape_or_beyond_the_limit_are_not_proved(owner: Member) -> None:
    for rows in (owner.rows[:-1], owner.rows + 2**15):
        with pytest.raises(DomainError, match="asked for"):
            prove_columns(owner.statement(), owner.key, rows, seeded(3))


def test_matrix_says_nothing_of_what_it_holds(owner: Member, witness: NDArray[np.int32]) -> None:
    assert repr(Matrix(owner.statement().sizes, witness, seeded(1), no_sums())) == "Matrix(…)"
