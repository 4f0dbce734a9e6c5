"""What a proof shows can be made without a witness, and looks the same for the witnesses that differ most."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.shared.errors import DomainError, ProofError
from commingle.shared.proving import code, prover
from commingle.shared.proving.columns import Columns, column_witness, prove_columns
from commingle.shared.proving.evaluator import prove_replies, reply_witness
from commingle.shared.proving.parameters import RANGE_BITS, RANGES, REPEATS, thrown_away
from commingle.shared.proving.proof import Answers, Places, PrimeChecks, Proof, parse_proof
from commingle.shared.proving.prover import Matrix, prove_relations, two_halves, uniform
from commingle.shared.proving.relation import Relation, Shape, Squares, linear, quadratic, quadratic_values
from commingle.shared.proving.transcript import Challenge
from commingle.shared.ring.encryption import Entropy
from commingle.shared.ring.residues import Residues
from tests.world.proving import BOUND, hidden_sums, honest, last_replies_of, member, replies_of, reply_to
from tests.world.ring import seeded

CHALLENGE = Challenge(b"\1" * 32, b"\2" * 32, b"\3" * 32)
PIECES = 256
Stated = tuple[Columns, NDArray[np.int32], Callable[..., Matrix]]


def simulated(
    relation: Relation, k: int, places: NDArray[np.intp], entropy: Entropy
) -> tuple[NDArray[np.uint64], Answers, Residues]:
    """Sums, answers and opened columns modulo prime k, for challenges and places that are known before.

    All columns but those that hide answers are uniform, and so are sums and answers; the rest follows.
    """
    sizes, prime, rows = relation.sizes, relation.sizes.ring.primes[k], Places(relation.sizes, relation.shape.rows)
    columns = uniform((rows.all, sizes.opened), prime, entropy)
    sums = np.frombuffer(entropy(8 * RANGES**2), "<u8").reshape(RANGES, -1) >> np.uint64(64 - RANGE_BITS)

    said = uniform((REPEATS, sizes.linear), prime, entropy)
    terms, constants = linear(relation, CHALLENGE, sums, k)
    ends = [constant * pow(sizes.message, -1, prime) for constant in constants]
    said[:, 0] = [
        (end + int(each[sizes.message]) - int(each[2 * sizes.message])) % prime
        for end, each in zip(ends, said, strict=True)
    ]
    found = np.zeros((REPEATS, sizes.opened), np.uint32)
    for term in terms:
        parts = np.stack([code.combinations(term.weights, columns[line], prime) for line in term.rows])
        found = code.total(found, code.products(term.multipliers[..., places], parts, prime), prime)

    def hide(halves: tuple[slice, slice], said: Residues, found: Residues) -> None:
        powers = code.powers(sizes.shift(said.shape[1]), sizes.places, prime)[places]
        shown = code.difference(code.values(said, sizes.places, prime)[:, places], found, prime)
        columns[halves[0]] = code.difference(shown, code.product(columns[halves[1]], powers, prime), prime)

    hide(rows.linear, said, found)
    weights = quadratic(relation, CHALLENGE, prime)
    squares = code.squares(weights.squares, columns[: weights.squares.shape[1]], prime)
    bits = code.combinations(weights.bits, columns[: relation.shape.bits], prime)
    quotient = uniform((REPEATS, sizes.quotient), prime, entropy)
    inverse = code.inverse_vanishing(sizes, prime)[places]
    found = code.product(quadratic_values(weights, squares, bits, prime), inverse, prime)
    hide(rows.quadratic, quotient, found)

    folds = uniform((sizes.folds, sizes.width), prime, entropy)
    found = code.combinations(CHALLENGE.folds(rows.folded, prime, sizes.folds), columns[: rows.folded], prime)
    columns[rows.folds] = code.difference(code.words(folds, sizes, prime)[:, places], found, prime)
    return sums, Answers(folds[None], said[None], quotient[None]), columns


def false_columns() -> Relation:
    return honest(2000, 3).statement(1)


def false_replies() -> Relation:
    own, owner = honest(300, 2, 2), honest(300, 3, 1)
    (relation,) = replies_of(own, [reply_to(owner, hidden_sums(owner, own.rows[::-1]))]).relations
    return relation


def false_last_replies() -> Relation:
    """Its rows are beyond the bound that is stated."""
    own, owner = honest(300, 2, 2), honest(300, 3, 1)
    (relation,) = last_replies_of(own, [reply_to(owner, hidden_sums(owner, own.rows))], BOUND - 1).relations
    return relation


@pytest.mark.parametrize("k", [0, 4])
@pytest.mark.parametrize("false", [false_columns, false_replies, false_last_replies])
def test_simulator_that_has_no_witness_passes_every_check(false: Callable[[], Relation], k: int) -> None:
    """It is given a statement that is false, and the challenges beforehand."""
    relation = false()
    sizes = relation.sizes
    places = np.sort(np.random.default_rng(3).choice(sizes.places, sizes.opened, replace=False))
    sums, answers, columns = simulated(relation, k, places, seeded(5))
    primes, none = len(sizes.ring.primes), np.zeros(0, np.uint8)
    held = Answers(*(np.repeat(part, primes, axis=0) for part in _planes(answers)))  # only plane k is looked at
    proof = Proof(bytes(32), sums, held, np.repeat(columns.T[None], primes, axis=0), none, none, none)
    left = PrimeChecks(relation, CHALLENGE, proof, places, k).run()
    assert all(number % sizes.ring.primes[k] == 0 for number in left)


def _planes(answers: Answers) -> tuple[Residues, Residues, Residues]:
    return answers.folds, answers.linear, answers.quotient


@pytest.fixture
def stated() -> Stated:
    """An honest owner's statement, its witness, and what makes matrices of that, or of another one."""
    owner = honest(300, 2)
    statement = owner.statement()
    witness = column_witness(statement, owner.key, owner.rows)

    def matrix(of: NDArray[np.int32] = witness, sums: Residues | None = None) -> Matrix:
        ends = np.zeros((5, REPEATS), np.uint32) if sums is None else sums
        return Matrix(statement.sizes, of, seeded(1), ends)

    return statement, witness, matrix


def chi_squared(words: NDArray[np.uint32], prime: int) -> float:
    """Of the pieces of [0, p) in which words lie: with 255 degrees of freedom."""
    counts = np.bincount((words.astype(np.uint64) * PIECES // prime).ravel().astype(np.intp), minlength=PIECES)
    expected = words.size / PIECES
    return float(((counts - expected) ** 2 / expected).sum())


ALL_ZERO = np.zeros((2000, 3), np.int64)
ALL_AT_THEIR_BOUND = np.tile(np.array([2**14, 0, 0]), (2000, 1))


@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize("rows", [ALL_ZERO, ALL_AT_THEIR_BOUND], ids=["all zero", "all at their bound"])
def test_opened_columns_and_answers_are_uniform_for_the_witnesses_that_differ_most(
    rows: NDArray[np.int64], encrypted: bool
) -> None:
    """Beyond 450, chi-squared with 255 degrees of freedom has probability 1e-12; eleven are looked at."""
    own = member(rows, 3)
    statement: Relation = own.statement()
    if encrypted:
        received = prove_columns(own.statement(), own.key, own.rows, seeded(6))
    else:
        owner = honest(2000, 2)
        hidden = hidden_sums(owner, own.rows)
        said = last_replies_of(own, [reply_to(owner, hidden)])
        (statement,), (received,) = said.relations, prove_replies(said, None, own.rows, [hidden], seeded(6))
    proof = parse_proof(received, statement.sizes, Places(statement.sizes, statement.shape.rows).all)
    for k, prime in enumerate(statement.sizes.ring.primes):
        assert chi_squared(proof.columns[k], prime) < 450
        answers = np.concatenate([part[k].ravel() for part in _planes(proof.answers)])
        assert chi_squared(answers, prime) < 450
    assert chi_squared((proof.sums >> np.uint64(RANGE_BITS - 32)).astype(np.uint32), 2**32) < 450


def test_columns_of_a_witness_without_random_tails_are_not_uniform() -> None:
    """The test above would see it: a row of zeros has a word of zeros."""
    sizes = honest(300, 2).statement().sizes
    rows = np.zeros((8, sizes.width), np.uint32)
    assert chi_squared(code.words(rows, sizes, 2147352577), 2147352577) > 10**6


def test_two_halves_are_the_polynomial_that_hides_and_sum_up_as_asked(stated: Stated) -> None:
    statement, _, made = stated
    sums = np.arange(5 * REPEATS, dtype=np.uint32).reshape(5, REPEATS)
    matrix = made(sums=sums)
    sizes, places = statement.sizes, Places(statement.sizes, statement.shape.rows)
    for k, prime in enumerate(sizes.ring.primes):
        words = code.words(matrix.rows(k), sizes, prime)
        for halves, hiding in ((places.linear, "linear"), (places.quadratic, "quadratic")):
            low, high = (words[half] for half in halves)
            polynomials = getattr(matrix.blinds[k], hiding)
            powers = code.powers(sizes.shift(polynomials.shape[1]), sizes.places, prime)
            whole = code.values(polynomials, sizes.places, prime)
            assert np.array_equal(code.total(low, code.product(high, powers, prime), prime), whole)
        linear = matrix.blinds[k].linear.astype(np.int64)
        ends = linear[:, 0] - linear[:, sizes.message] + linear[:, 2 * sizes.message]
        assert np.array_equal(ends % prime, sums[k])


def test_high_half_has_as_many_random_coefficients_as_are_opened_whatever_the_polynomial_is() -> None:
    """Two draws of the same polynomials: what differs are all of the t low coefficients, and what low takes back."""
    sizes = honest(300, 2).statement().sizes
    prime = sizes.ring.primes[0]
    for count in (sizes.linear, sizes.quotient):
        polynomials, shift = uniform((REPEATS, count), prime, seeded(1)), sizes.shift(count)
        (low, high), (other_low, other_high) = (two_halves(polynomials, sizes, prime, seeded(seed)) for seed in (2, 3))
        opened = sizes.opened
        drawn = uniform((REPEATS, opened), prime, seeded(2))
        assert np.array_equal(high[:, :opened], drawn)
        assert (high[:, :opened] != other_high[:, :opened]).mean() > 0.99
        assert np.array_equal(high[:, opened:], other_high[:, opened:])
        changed = code.difference(low, other_low, prime)
        taken = code.difference(other_high[:, :opened], high[:, :opened], prime)
        assert np.array_equal(changed[:, shift : shift + opened], taken)
        assert not np.delete(changed, np.s_[shift : shift + opened], axis=1).any()


def test_sums_of_blinds_are_uniform_but_together_zero() -> None:
    own, owner = honest(300, 2, 2), honest(300, 3, 1)
    (relation,) = replies_of(own, [reply_to(owner, hidden_sums(owner, own.rows))]).relations
    sums = prover.sums_to_zero([relation] * 3, seeded(3))
    assert len(sums) == 3
    for k, prime in enumerate(relation.sizes.ring.primes):
        together = sum(part[k].astype(np.int64) for part in sums) % prime
        assert not together.any()
        assert all(part[k].all() for part in sums)


def test_sums_that_would_tell_of_the_witness_are_not_shown(stated: Stated) -> None:
    """Masks that are all zero: the sums would be those of the witness, which is at the lower end of the range."""
    statement, _, made = stated
    matrix = made()
    shown = prover.shown_sums(statement, CHALLENGE, matrix)
    assert shown is not None
    assert shown.max() < 1 << RANGE_BITS
    for end in (0, (1 << RANGE_BITS) - 1):
        matrix.masks[:] = end
        assert prover.shown_sums(statement, CHALLENGE, matrix) is None


def test_sums_are_shown_from_what_the_largest_witness_reaches_to_as_much_below_their_end_and_nowhere_else(
    stated: Stated,
) -> None:
    """A witness of zeros, so that sums are masks: one at an end of the interval, then one beyond it, among all."""
    statement, witness, made = stated
    matrix = made(np.zeros_like(witness))
    least = statement.shape.largest * statement.sizes.message
    for inside, outside in ((least, least - 1), ((1 << RANGE_BITS) - least - 1, (1 << RANGE_BITS) - least)):
        matrix.masks[:] = 1 << RANGE_BITS - 1
        matrix.masks[17, 101] = inside
        shown = prover.shown_sums(statement, CHALLENGE, matrix)
        assert shown is not None
        assert shown[17, 101] == inside
        matrix.masks[17, 101] = outside
        assert prover.shown_sums(statement, CHALLENGE, matrix) is None


def test_honest_rows_reach_no_more_than_what_is_taken_for_the_largest_sum() -> None:
    """The witness with the most: all rows and errors at their bounds, spread as far as their squares allow."""
    for shape in ((300, 2), (2000, 3), (900, 17)):
        made = honest(*shape)
        statement = made.statement()
        witness = column_witness(statement, made.key, made.rows).astype(np.int64)
        assert np.abs(witness).sum(axis=0).max() <= statement.shape.largest
        own = honest(*shape, 2)
        hidden = hidden_sums(made, own.rows)
        (last,) = last_replies_of(own, [reply_to(made, hidden)]).relations
        witness = reply_witness(last, None, own.rows, [hidden]).astype(np.int64)
        assert np.abs(witness).sum(axis=0).max() <= last.shape.largest
    spread = Squares(3, 4, 4 * 25)
    assert spread.largest == 3 * 4 * 5  # each of four numbers is 5


def test_shown_sums_are_those_of_python_integers(stated: Stated) -> None:
    statement, witness, made = stated
    matrix = made()
    rows, positions = (
        CHALLENGE.subsets(purpose, count)
        for purpose, count in ((b"rows", statement.shape.rows), (b"positions", statement.sizes.message))
    )
    for j, i in ((0, 0), (3, 104), (104, 7)):
        exact = sum(witness[rows[j].astype(bool)][:, positions[i].astype(bool)].ravel().tolist())
        assert matrix.sums(rows, positions)[j, i] == exact + int(matrix.masks[j, i])


def test_witness_of_another_shape_is_not_proved(stated: Stated) -> None:
    statement, witness, _ = stated
    with pytest.raises(DomainError, match="this shape"):
        prove_relations([statement], lambda _: witness[:-1], seeded(1))


def test_witness_of_which_more_than_a_quarter_of_all_tries_is_thrown_away_is_not_proved(stated: Stated) -> None:
    least = (1 << RANGE_BITS) // (8 * RANGES**2 * 2048) + 1

    class Wide(Columns):
        """Its rows sum up to more than they do."""

        @property
        def shape(self) -> Shape:
            return replace(super().shape, squares=(), reach=least - super().shape.bits)

    statement, witness, _ = stated
    wide = Wide(statement.ciphertexts, BOUND)
    assert thrown_away(wide.sizes, least) > Fraction(1, 4) >= thrown_away(wide.sizes, least - 1)
    with pytest.raises(DomainError, match="too many tries"):
        prove_relations([wide], lambda _: witness, seeded(1))


def test_failure_names_its_check_and_nothing_else() -> None:
    owner = honest(300, 2)
    with pytest.raises(ProofError) as caught:
        parse_proof(b"", owner.statement(BOUND).sizes, 200)
    assert str(caught.value) == "a proof about encrypted columns fails: size"
    assert caught.value.code == "proof"
