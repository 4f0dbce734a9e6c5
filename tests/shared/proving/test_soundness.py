"""How likely a false statement passes, in exact integers, and the lemma of folds on all words of a small code."""

from fractions import Fraction
from itertools import combinations, product
from math import comb, prod

import numpy as np
import pytest

from commingle.shared.proving import code
from commingle.shared.proving.columns import BOUND_LIMIT, SQUARES
from commingle.shared.proving.parameters import (
    FOLDS,
    MATRIX_LIMIT,
    OPENED,
    RANGE_BITS,
    RANGES,
    REPEATS,
    Sizes,
    first_error,
    second_error,
)
from commingle.shared.proving.proof import Answers, Places, Proof
from commingle.shared.proving.replies import NOISE_BITS
from commingle.shared.proving.transcript import Challenge, opened_places
from commingle.shared.proving.verifier import _Checks
from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.parameters import ROWS_LIMIT, STANDARD
from tests.world.proving import honest
from tests.world.ring import toy

SIZES = Sizes(STANDARD)
CHALLENGE = Challenge(bytes(32), bytes(32))


def test_sizes_are_those_of_the_proof() -> None:
    assert (SIZES.places, SIZES.message, SIZES.width, OPENED) == (8192, 2048, 2344, 296)
    assert (SIZES.linear, SIZES.quotient, SIZES.wrong_places) == (4391, 2639, 1752)
    assert (RANGES, FOLDS, REPEATS, RANGE_BITS) == (104, 7, 4, 52)


def test_distance_of_the_code_is_more_than_three_times_what_may_be_wrong() -> None:
    distance = SIZES.places - SIZES.width + 1
    assert 3 * SIZES.wrong_places < distance


def test_first_challenge_spares_what_is_wrong_with_less_than_2_to_the_minus_104() -> None:
    prime = min(STANDARD.primes)
    assert first_error(SIZES, MATRIX_LIMIT) == Fraction(1, 2**104)
    assert Fraction(17 * (SIZES.wrong_places + 1), prime) ** FOLDS < Fraction(1, 2**112)
    assert Fraction(2, prime) ** REPEATS < Fraction(1, 2**119)


def test_opened_places_spare_what_is_wrong_with_less_than_2_to_the_minus_104() -> None:
    assert second_error(SIZES) < Fraction(1, 2**104)
    for agreeing in (SIZES.places - SIZES.wrong_places - 1, SIZES.wrong_places + 2 * SIZES.width - 2):
        one_by_one = prod((Fraction(agreeing - i, SIZES.places - i) for i in range(OPENED)), start=Fraction(1))
        assert one_by_one == Fraction(comb(agreeing, OPENED), comb(SIZES.places, OPENED)) <= second_error(SIZES)


def test_wrong_answer_and_right_one_differ_by_a_polynomial_of_degree_at_most_2k_minus_2() -> None:
    """Of what any two halves of k coefficients make, whoever chose them: the proof's 4.3 and 5.7."""
    row, blinds = SIZES.width - 1, {}
    for coefficients in (SIZES.linear, SIZES.quotient):
        shift = SIZES.shift(coefficients)
        blinds[coefficients] = max(row, shift + row)
        assert blinds[coefficients] == coefficients - 1
        assert shift + OPENED <= SIZES.width  # low takes back all that is random in high
    sums = max(SIZES.message - 1 + row, SIZES.linear - 1, blinds[SIZES.linear])
    squares = max(2 * row, max(SIZES.quotient - 1, blinds[SIZES.quotient]) + SIZES.message)
    assert (SIZES.shift(SIZES.linear), SIZES.shift(SIZES.quotient)) == (SIZES.message - 1, OPENED - 1)
    assert (sums, squares) == (4390, 4686)
    assert max(sums, squares) <= 2 * SIZES.width - 2
    assert SIZES.wrong_places + max(sums, squares) < SIZES.places - SIZES.wrong_places


def test_no_two_halves_make_a_blind_of_more_coefficients_than_what_it_hides() -> None:
    """Halves of k coefficients each, the last ones not zero, as the verifier puts them together at all places."""
    statement = honest(300, 2).statement()
    prime, rows = SIZES.ring.primes[0], Places(statement.rows)
    halves = np.random.default_rng(4).integers(1, prime, (4 * REPEATS, SIZES.width)).astype(np.uint32)
    columns = np.zeros((rows.all, SIZES.places), np.uint32)
    columns[rows.linear[0].start : rows.quadratic[1].stop] = code.values(halves, SIZES.places, prime)
    none = np.zeros(0, np.uint8)
    proof = Proof(
        bytes(32), Answers(none.astype(np.uint64), *[none.astype(np.uint32)] * 4), columns.T[None], none, none
    )
    checks = _Checks(statement, CHALLENGE, proof, np.arange(SIZES.places), 0)
    for places, coefficients in ((rows.linear, SIZES.linear), (rows.quadratic, SIZES.quotient)):
        made = code.interpolated(checks._blind(places, coefficients), prime)
        assert made[:, coefficients - 1].all()
        assert not made[:, coefficients:].any()


def test_error_of_2_to_the_63_tries_is_below_2_to_the_minus_40() -> None:
    tries = 2**63
    assert tries * max(first_error(SIZES, MATRIX_LIMIT), second_error(SIZES)) + Fraction(tries**2, 2**256) < Fraction(
        1, 2**40
    )


def test_squares_and_bits_of_numbers_within_their_range_do_not_wrap_around() -> None:
    largest = 2**RANGE_BITS
    columns = 2**16
    assert (columns + SQUARES) * largest**2 + BOUND_LIMIT < STANDARD.modulus
    assert largest * (largest + 1) < STANDARD.modulus


def test_messages_are_the_only_ones_whose_errors_are_within_their_range() -> None:
    largest = 2**RANGE_BITS
    assert 2 * largest < STANDARD.delta
    assert 2 * largest * STANDARD.delta + 2 * largest < STANDARD.modulus // 2


def test_noise_of_what_is_proved_of_a_reply_opens_rightly() -> None:
    entry = int(BOUND_LIMIT**0.5)
    crude = STANDARD.degree * (STANDARD.error_bound + 1) << RANGE_BITS
    noise = STANDARD.error_bound * ROWS_LIMIT * entry + crude + (1 << STANDARD.flood_bits)
    assert 2 * noise + STANDARD.dropped * (STANDARD.degree + 1) < STANDARD.dropped << STANDARD.scale_bits
    message = ROWS_LIMIT * BOUND_LIMIT + (1 << NOISE_BITS)
    assert message <= 1 << 63


def test_ring_with_too_few_places_proves_nothing() -> None:
    with pytest.raises(DomainError, match="too few places"):
        Sizes(toy(64))


def test_line_with_more_good_points_than_errors_is_close_as_a_whole() -> None:
    """All pairs of words of a Reed-Solomon code of dimension 2 and length 5 over 5 elements: e = 1 < 4/3."""
    field, length, e = 5, 5, 1
    codewords = np.array([[(a + b * x) % field for x in range(length)] for a in range(field) for b in range(field)])

    def distance(word: np.ndarray) -> int:
        return int((codewords != word).sum(axis=1).min())

    def together(u: np.ndarray, v: np.ndarray) -> bool:
        kept = [list(places) for places in combinations(range(length), length - e)]
        return any(
            (codewords[:, places] == u[places]).all(axis=1).any()
            and (codewords[:, places] == v[places]).all(axis=1).any()
            for places in kept
        )

    words = [np.array([0, 0, *rest]) for rest in product(range(field), repeat=3)]  # one of each class modulo the code
    for u, v in product(words, words):
        good = sum(distance((u + alpha * v) % field) <= e for alpha in range(field))
        assert good <= e + 1 or together(u, v)


def test_weights_of_folds_are_products_of_one_number_for_each_bit_of_a_rows_number() -> None:
    prime = STANDARD.primes[0]
    weights = CHALLENGE.folds(21, prime).astype(object)
    drawn = CHALLENGE.numbers(b"fold", 6, prime, repeats=FOLDS).astype(object)
    for row in range(21):
        exact = drawn[:, 0].copy()
        for level in range(5):
            if row >> level & 1:
                exact = exact * drawn[:, level + 1] % prime
        assert np.array_equal(weights[:, row], exact)


def test_opened_places_are_as_many_different_ones_and_depend_on_every_answer() -> None:
    found = opened_places(CHALLENGE, b"answers", SIZES)
    assert len(set(found.tolist())) == OPENED
    assert found.max() < SIZES.places
    assert not np.array_equal(found, opened_places(CHALLENGE, b"answert", SIZES))


def test_opened_places_are_uniform() -> None:
    """Chi-squared of 1 000 draws over 64 pieces; with 63 degrees of freedom beyond 150 has probability below 1e-8."""
    counts = np.zeros(64)
    for draw in range(1000):
        counts += np.bincount(opened_places(CHALLENGE, draw.to_bytes(4, "big"), SIZES) // 128, minlength=64)
    expected = 1000 * OPENED / 64
    assert ((counts - expected) ** 2 / expected).sum() < 150
