"""What an owner proves of its ciphertexts: true statements hold, and each way of cheating is refused by name."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.shared.proving import prover
from commingle.shared.proving.ciphertexts import Ciphertexts, segments
from commingle.shared.proving.columns import Columns
from commingle.shared.proving.commitment import levels_of
from commingle.shared.proving.errors import ProofError
from commingle.shared.proving.matrix import Matrix
from commingle.shared.proving.owner import column_witness, opened_secrets, prove_columns, verify_columns
from commingle.shared.proving.parameters import REPEATS
from commingle.shared.proving.proof import Places, parse_proof, proof_bytes
from commingle.shared.proving.prover import prove_relations
from commingle.shared.proving.transcript import first_challenges
from commingle.shared.ring.encryption import encrypt
from commingle.shared.ring.errors import CiphertextError, DomainError
from commingle.shared.ring.layout import format_residues, parse_residues
from commingle.shared.ring.parameters import STANDARD
from commingle.shared.ring.residues import Residues
from tests.world.proving import BOUND, Member, honest, member, rows_within
from tests.world.ring import seeded

PRIMES = STANDARD.primes


def proof_of(statement: Columns, witness: NDArray[np.int32], seed: int = 5) -> bytes:
    """By the rules, of whatever witness."""
    return prove_relations([statement], lambda _: witness, seeded(seed))[0]


def refused(statement: Columns, received: bytes) -> str:
    with pytest.raises(ProofError) as caught:
        verify_columns(statement, received)
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


def test_each_segment_of_many_rows_is_proved_by_itself() -> None:
    made = honest(70_000, 8)
    parts = list(segments(made.layout))
    assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
    assert parts[-1][1] == 70_000
    assert len(parts) == 2
    for number, (start, stop) in enumerate(parts):
        statement = made.statement(number=number)
        received = prove_columns(statement, made.key, made.rows[start:stop], seeded(number))
        verify_columns(statement, received)
        assert refused(made.statement(number=1 - number), received) in {"size", "commitment"}


def test_proof_is_as_long_as_its_statement_says(owner: Member, proof: bytes) -> None:
    statement = owner.statement()
    assert len(proof) == proof_bytes(statement.sizes, Places(statement.rows).all)


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
    secret_rows = statement.bits
    own = column_witness(cheat.statement(4 * BOUND), cheat.key, cheat.rows)
    shown[:secret_rows] = own[:secret_rows]
    assert refused(statement, proof_of(statement, shown)) == "total"


class Residual(Matrix):
    """A prover's matrix in which one number is another integer modulo each prime."""

    place = (0, 0)
    shown: Residues

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


def attempts(statement: Columns, matrix: Matrix) -> Iterator[bytes]:
    """The prover's steps with a matrix of one's own."""
    tree = levels_of(prover._leaves(matrix))
    (challenge,) = first_challenges([statement.digest], [tree[-1][0]])
    made = prover._proof(statement, challenge, matrix, tree)
    if made is not None:
        yield made.to_bytes()


def no_sums() -> Residues:
    return np.zeros((len(PRIMES), REPEATS), np.uint32)


def test_squares_that_wrap_around_modulo_each_prime_are_refused() -> None:
    """A row far beyond its bound, filled up by an integer whose square is negative enough modulo every prime."""
    for length in range(2**14, 2**13, -1):
        missing = BOUND - 2 * length**2
        roots = [square_root(missing % prime, prime) for prime in PRIMES]
        if None not in roots:
            break
    made = member(np.array([[length, length]] * 2), 4)
    statement = made.statement(2 * length**2)
    witness = column_witness(statement, made.key, made.rows)
    claimed = made.statement()
    matrix = Residual(claimed.sizes, witness, seeded(8), no_sums())
    group = claimed.bits + claimed.ciphertexts.layout.columns
    for place in (0, 1):
        witness[group : group + 4, place] = 0
    witness[group : group + 4, 2:] = 0
    witness[group, 2:] = int(BOUND**0.5)
    matrix.place = (group, slice(0, 2))  # type: ignore[assignment] # both rows, alike
    matrix.shown = np.array(roots, np.uint32)
    (received,) = attempts(claimed, matrix)
    assert refused(claimed, received) == "range"


def test_word_that_is_no_polynomial_is_refused(owner: Member, witness: NDArray[np.int32]) -> None:
    class Bent(Matrix):
        """Its first row has other values at a third of the places."""

        def values(self, rows: Residues, k: int, count: int) -> Iterator[tuple[slice, Residues]]:
            for batch, made in super().values(rows, k, count):
                if batch.start == 0 and count == self.sizes.places:
                    made[0, : count // 3] ^= 1
                yield batch, made

    statement = owner.statement()
    (received,) = attempts(statement, Bent(statement.sizes, witness, seeded(8), no_sums()))
    assert refused(statement, received) in {"range", "code"}


@pytest.mark.parametrize("error", [22, 1000, 2**60])
def test_oversized_noise_is_refused(error: int) -> None:
    """One error of one ciphertext is beyond what is drawn; the bits that are shown are those of the largest."""
    made = honest(300, 2)
    words = parse_residues(made.blocks[0], made.layout.block_shape(0, 300), PRIMES)
    _, errors = opened_secrets(made.ciphertexts(), made.key)
    for k, prime in enumerate(PRIMES):
        words[k, 0, 0, 5] = (int(words[k, 0, 0, 5]) + error - int(errors[1, 5])) % prime
    cheat = replace(made, blocks=(format_residues(words),))
    statement = cheat.statement()
    with pytest.raises(DomainError, match="beyond what is drawn"):
        prove_columns(statement, cheat.key, cheat.rows, seeded(3))
    witness = column_witness(made.statement(), made.key, made.rows)
    witness[statement.error_rows[1, 0], 5] = 1
    assert refused(statement, proof_of(statement, witness)) == "total"
    witness[statement.error_rows[1, 0, 0], 5] += error - 21 if error < 2**20 else 2**20
    assert refused(statement, proof_of(statement, witness)) in {"quadratic", "total"}


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
        assert refused(statement, bytes(tampered)) in {
            "residues",
            "sums",
            "commitment",
            "range",
            "code",
            "linear",
            "quadratic",
            "total",
        }


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
    statement, rows = owner.statement(), Places(owner.statement().rows).all
    other = parse_proof(prove_columns(statement, owner.key, owner.rows, seeded(4)), statement.sizes, rows)
    own = parse_proof(proof, statement.sizes, rows)
    for mixed in (replace(own, answers=other.answers), replace(own, root=other.root), replace(own, paths=other.paths)):
        assert refused(statement, mixed.to_bytes()) == "commitment"


def test_statement_about_no_bound_or_malformed_ciphertexts_is_none(owner: Member) -> None:
    for bound in (0, -1, 2**38):
        with pytest.raises(DomainError, match="positive"):
            owner.statement(bound)
    whole = owner.ciphertexts()
    with pytest.raises(DomainError, match="one segment"):
        Ciphertexts(whole.layout, (0, 1999), whole.public_key, whole.blocks)
    with pytest.raises(DomainError, match="other blocks"):
        Ciphertexts(whole.layout, whole.segment, whole.public_key, [])
    for key, blocks in ((whole.public_key[4:], whole.blocks), (whole.public_key, [b"\xff" * len(whole.blocks[0])])):
        with pytest.raises(CiphertextError):
            Ciphertexts(whole.layout, whole.segment, key, blocks)


def test_rows_of_another_shape_or_beyond_the_limit_are_not_proved(owner: Member) -> None:
    for rows in (owner.rows[:-1], owner.rows + 2**15):
        with pytest.raises(DomainError, match="asked for"):
            prove_columns(owner.statement(), owner.key, rows, seeded(3))


def test_matrix_says_nothing_of_what_it_holds(owner: Member, witness: NDArray[np.int32]) -> None:
    assert repr(Matrix(owner.statement().sizes, witness, seeded(1), no_sums())) == "Matrix(…)"


def test_rows_that_reach_their_bound_are_among_those_that_are_proved() -> None:
    rows = rows_within(BOUND, 2000, 3, 1)
    assert (rows**2).sum(axis=1).max() == BOUND
