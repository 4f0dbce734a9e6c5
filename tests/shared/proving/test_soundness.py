"""How likely a false statement passes, in exact integers, and the lemma of folds on all words of a small code."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from math import comb, log2, prod, sqrt

import numpy as np
import pytest

from commingle.shared.errors import DomainError
from commingle.shared.proving import code
from commingle.shared.proving.columns import Columns
from commingle.shared.proving.parameters import (
    BOUND_LIMIT,
    LENGTHS,
    MATRIX_LIMIT,
    NOISE_BITS,
    RANGE_BITS,
    RANGES,
    REPEATS,
    Sizes,
)
from commingle.shared.proving.proof import Answers, Places, PrimeChecks, Proof
from commingle.shared.proving.transcript import Challenge, first_challenges, opened_places, second_challenges
from commingle.shared.ring.parameters import ROWS_LIMIT, STANDARD
from tests.world.proving import BOUND, honest
from tests.world.ring import toy

EVERY = [Sizes(STANDARD, length) for length in LENGTHS]
SIZES = EVERY[0]
CHALLENGE = Challenge(bytes(32), bytes(32), bytes(32))


def wrong_places(sizes: Sizes) -> int:
    """e: a matrix that differs from polynomials at more places than these is caught by its combinations."""
    return (sizes.places - 2 * sizes.width + 1) // 2


def missed(sizes: Sizes, agreeing: int) -> Fraction:
    """How likely t different places, drawn uniformly, are all among so many."""
    return Fraction(comb(agreeing, sizes.opened), comb(sizes.places, sizes.opened))


def range_error() -> Fraction:
    """How likely the first challenge spares an entry that is out of range, at most (the proof's 5.4)."""
    return 2 * Fraction(1, 1 << RANGES)


def combination_error(sizes: Sizes, rows: int) -> Fraction:
    """How likely the second challenge spares what is wrong, at most: of a matrix of so many rows (the proof's 5.6)."""
    prime, levels = min(sizes.ring.primes), (rows - 1).bit_length() + 1
    fold = Fraction(levels * (wrong_places(sizes) + 1), prime) ** sizes.folds
    return max(fold, Fraction(4, prime) ** REPEATS)


def opening_error(sizes: Sizes) -> Fraction:
    """How likely the opened places spare what is wrong, at most (the proof's 5.7)."""
    wrong = wrong_places(sizes)
    return max(missed(sizes, sizes.places - wrong - 1), missed(sizes, wrong + 2 * sizes.width - 2))


every_size = pytest.mark.parametrize("sizes", EVERY, ids=str)


def test_sizes_are_those_of_the_proof() -> None:
    found = [(each.message, each.places, each.opened, each.width, each.folds, wrong_places(each)) for each in EVERY]
    assert found == [
        (2048, 8192, 293, 2341, 7, 1755),
        (4096, 16384, 269, 4365, 7, 3827),
        (8192, 32768, 259, 8451, 8, 7933),
    ]
    assert [(each.pieces, each.mask_rows, each.added) for each in EVERY] == [(4, 6, 29), (2, 3, 26), (1, 2, 26)]
    assert (RANGES, REPEATS, RANGE_BITS) == (105, 4, 59)


@every_size
def test_distance_of_the_code_is_more_than_three_times_what_may_be_wrong(sizes: Sizes) -> None:
    distance = sizes.places - sizes.width + 1
    assert 3 * wrong_places(sizes) < distance


@every_size
def test_both_challenges_spare_what_is_wrong_with_at_most_2_to_the_minus_104(sizes: Sizes) -> None:
    prime = min(STANDARD.primes)
    assert range_error() == Fraction(1, 2**104)
    assert combination_error(sizes, MATRIX_LIMIT) < Fraction(1, 2**104)
    assert Fraction(17 * (wrong_places(sizes) + 1), prime) ** sizes.folds < Fraction(1, 2**104)
    assert Fraction(4, prime) ** REPEATS < Fraction(1, 2**115)


@every_size
def test_opened_places_spare_what_is_wrong_with_less_than_2_to_the_minus_104_and_one_fewer_do_not(sizes: Sizes) -> None:
    assert opening_error(sizes) < Fraction(1, 2**104)
    for agreeing in (sizes.places - wrong_places(sizes) - 1, wrong_places(sizes) + 2 * sizes.width - 2):
        one_by_one = prod((Fraction(agreeing - i, sizes.places - i) for i in range(sizes.opened)), start=Fraction(1))
        assert one_by_one == Fraction(comb(agreeing, sizes.opened), comb(sizes.places, sizes.opened))
        assert one_by_one <= opening_error(sizes)
    fewer, width = sizes.opened - 1, sizes.width - 1
    wrong = (sizes.places - 2 * width + 1) // 2
    agreeing = max(sizes.places - wrong - 1, wrong + 2 * width - 2)
    assert Fraction(comb(agreeing, fewer), comb(sizes.places, fewer)) >= Fraction(1, 2**104)


@every_size
def test_wrong_answer_and_right_one_differ_by_a_polynomial_of_degree_at_most_2k_minus_2(sizes: Sizes) -> None:
    """Of what any two halves of k coefficients make, whoever chose them: the proof's 4.3 and 5.7."""
    row, blinds = sizes.width - 1, {}
    for coefficients in (sizes.linear, sizes.quotient):
        shift = sizes.shift(coefficients)
        blinds[coefficients] = max(row, shift + row)
        assert blinds[coefficients] == coefficients - 1
        assert shift + sizes.opened <= sizes.width  # low takes back all that is random in high
    sums = max(sizes.message - 1 + row, sizes.linear - 1, blinds[sizes.linear])
    squares = max(2 * row, max(sizes.quotient - 1, blinds[sizes.quotient]) + sizes.message)
    assert (sizes.shift(sizes.linear), sizes.shift(sizes.quotient)) == (sizes.message - 1, sizes.opened - 1)
    assert max(sums, squares) <= 2 * sizes.width - 2
    assert wrong_places(sizes) + max(sums, squares) < sizes.places - wrong_places(sizes)


def test_number_beyond_its_range_leaves_every_sum_in_range_in_no_more_than_a_share_of_the_subsets() -> None:
    """The proof's 5.4 with two subsets of either kind, all of them, modulo 61 and with masks below 4: 2 * 2^-2."""
    modulus, masks, kinds = 61, 4, 2
    drawn = np.random.default_rng(3)
    subsets = np.array(list(product((0, 1), repeat=3)))
    for large in (2 * masks, -2 * masks, 2 * masks + 5, 30, -30):
        for _ in range(20):
            witness, mask = drawn.integers(-30, 31, (3, 3)), drawn.integers(-30, 31, (kinds, kinds))
            witness[tuple(drawn.integers(0, 3, 2))] = large
            ((a, b), (c, d)) = (subsets @ witness @ subsets.T + mask[:, :, None, None]) % modulus < masks
            kept = np.einsum("ik,il,jk,jl->", *(within.astype(int) for within in (a, b, c, d)))
            assert Fraction(int(kept), len(subsets) ** (2 * kinds)) <= 2 * Fraction(1, 2**kinds)


@every_size
def test_no_two_halves_make_a_blind_of_more_coefficients_than_what_it_hides(sizes: Sizes) -> None:
    """Halves of k coefficients each, the last ones not zero, as the verifier puts them together at all places."""
    owner = honest(300, 2).ciphertexts()
    statement = Columns(replace(owner, sizes=sizes), BOUND)
    prime, rows = sizes.ring.primes[0], Places(sizes, statement.shape.rows)
    halves = np.random.default_rng(4).integers(1, prime, (4 * REPEATS, sizes.width)).astype(np.uint32)
    columns = np.zeros((rows.all, sizes.places), np.uint32)
    columns[rows.linear[0].start : rows.quadratic[1].stop] = code.values(halves, sizes.places, prime)
    none, answers = np.zeros(0, np.uint8), Answers(*[np.zeros(0, np.uint32)] * 3)
    proof = Proof(bytes(32), none.astype(np.uint64), answers, columns.T[None], none, none, none)
    checks = PrimeChecks(statement, CHALLENGE, proof, np.arange(sizes.places), 0)
    for places, coefficients in ((rows.linear, sizes.linear), (rows.quadratic, sizes.quotient)):
        made = code.interpolated(checks.blind(places, coefficients), prime)
        assert made[:, coefficients - 1].all()
        assert not made[:, coefficients:].any()


def test_error_of_2_to_the_63_tries_is_below_2_to_the_minus_40() -> None:
    tries = 2**63
    most = max(max(range_error(), combination_error(sizes, MATRIX_LIMIT), opening_error(sizes)) for sizes in EVERY)
    assert tries * most + Fraction(tries**2, 2**256) <= Fraction(1, 2**41) + Fraction(1, 2**128) < Fraction(1, 2**40)


def test_squares_and_bits_of_numbers_within_their_range_do_not_wrap_around() -> None:
    largest = 2 ** (RANGE_BITS + 1)
    rows = MATRIX_LIMIT
    assert rows * largest**2 + max(BOUND_LIMIT, rows * STANDARD.error_bound**2) < STANDARD.modulus
    assert largest * (largest + 1) < STANDARD.modulus


def test_key_of_numbers_within_their_range_is_the_only_one_but_for_2_to_the_minus_80_for_each_coefficient() -> None:
    """The union of the proof's 2.1, in bits for each of N coefficients: secrets, products, slots that vanish."""
    vanishing = log2(2 * sqrt(STANDARD.degree))
    assert log2(5) + RANGE_BITS + 3 + vanishing - log2(STANDARD.modulus) < -80


def test_messages_are_the_only_ones_whose_errors_are_within_their_range() -> None:
    largest = 2 ** (RANGE_BITS + 1)
    assert 2 * largest < STANDARD.delta
    assert 2 * largest * STANDARD.delta + 2 * largest < STANDARD.modulus // 2


def test_noise_of_what_is_proved_of_a_reply_opens_rightly() -> None:
    entry = int(BOUND_LIMIT**0.5)
    crude = STANDARD.degree * (STANDARD.error_bound + 1) << RANGE_BITS + 1
    noise = STANDARD.error_bound * ROWS_LIMIT * entry + crude + (1 << STANDARD.flood_bits)
    assert 2 * noise + STANDARD.dropped * (STANDARD.degree + 1) < STANDARD.dropped << STANDARD.scale_bits
    message = ROWS_LIMIT * BOUND_LIMIT + (1 << NOISE_BITS)
    assert message <= 1 << 63


def test_ring_or_length_for_which_nothing_is_proved_is_refused() -> None:
    for ring, length in ((toy(64), 2048), (STANDARD, 1024), (STANDARD, 16384)):
        with pytest.raises(DomainError, match="nothing is proved"):
            Sizes(ring, length)
    others = replace(STANDARD, primes=(2147352577, 2147205121, 2147074049, 2146959361, 2146713601))
    with pytest.raises(DomainError, match="1 modulo 65536"):
        Sizes(others, 8192)


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
    weights = CHALLENGE.folds(21, prime, SIZES.folds).astype(object)
    drawn = CHALLENGE.numbers(b"fold", 6, prime, repeats=SIZES.folds).astype(object)
    for row in range(21):
        exact = drawn[:, 0].copy()
        for level in range(5):
            if row >> level & 1:
                exact = exact * drawn[:, level + 1] % prime
        assert np.array_equal(weights[:, row], exact)


@every_size
def test_opened_places_are_as_many_different_ones_and_depend_on_every_answer(sizes: Sizes) -> None:
    found = opened_places(CHALLENGE, b"answers", sizes)
    assert len(set(found.tolist())) == sizes.opened
    assert found.max() < sizes.places
    assert not np.array_equal(found, opened_places(CHALLENGE, b"answert", sizes))


def test_numbers_of_the_second_challenge_depend_on_every_sum_of_every_part_and_subsets_on_none() -> None:
    first = first_challenges([b"one", b"two"], [bytes(32), bytes(32)])
    found = [second_challenges(first, shown) for shown in ([b"a", b"b"], [b"a", b"c"], [b"d", b"b"])]
    for number in range(2):
        drawn = [challenges[number].numbers(b"range", 4, STANDARD.primes[0]).tobytes() for challenges in found]
        assert len(set(drawn)) == 3
        assert len({challenges[number].subsets(b"rows", 9).tobytes() for challenges in found}) == 1
    assert not np.array_equal(first[0].subsets(b"rows", 9), first[1].subsets(b"rows", 9))
    assert not np.array_equal(first[0].subsets(b"rows", 9), first[0].subsets(b"positions", 9))


def test_opened_places_are_uniform() -> None:
    """Chi-squared of 1 000 draws over 64 pieces; with 63 degrees of freedom beyond 150 has probability below 1e-8."""
    counts = np.zeros(64)
    for draw in range(1000):
        counts += np.bincount(opened_places(CHALLENGE, draw.to_bytes(4, "big"), SIZES) // 128, minlength=64)
    expected = 1000 * SIZES.opened / 64
    assert ((counts - expected) ** 2 / expected).sum() < 150
