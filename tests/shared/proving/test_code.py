"""Rows as polynomials and words, loops and four squares, against Python integers."""

from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.errors import DomainError
from commingle.shared.proving import code
from commingle.shared.proving.ciphertexts import transposed_products
from commingle.shared.proving.columns import NUMBER_LIMIT, four_squares
from commingle.shared.proving.parameters import LENGTHS, Sizes
from commingle.shared.proving.transcript import ColumnHashes
from commingle.shared.ring.parameters import STANDARD
from commingle.shared.ring.residues import roots, to_slots
from tests.world.ring import product, reversed_bits, root

EVERY = [Sizes(STANDARD, length) for length in LENGTHS]
PRIMES = st.sampled_from(STANDARD.primes)


def uniform(prime: int, *shape: int, seed: int = 1) -> NDArray[np.uint32]:
    drawn = np.random.default_rng(seed).integers(0, prime, shape).astype(np.uint32)
    drawn.reshape(-1)[: drawn.size // 3] = prime - 1  # the largest there is
    return drawn


def point(degree: int, prime: int, place: int) -> int:
    """The root of x^degree + 1 that belongs to a place."""
    return pow(root(degree, prime), 2 * reversed_bits(place, degree) + 1, prime)


def at(coefficients: NDArray[np.uint32], x: int, prime: int) -> int:
    found = 0
    for coefficient in reversed(coefficients.tolist()):
        found = (found * x + coefficient) % prime
    return found


@given(PRIMES, st.integers(0, 2**32))
def test_combinations_and_squares_are_those_of_python_integers(prime: int, seed: int) -> None:
    weights, rows = uniform(prime, 3, 40, seed=seed), uniform(prime, 40, 9, seed=seed + 1)
    integers, factors = rows.astype(object), weights.astype(object)
    assert np.array_equal(code.combinations(weights, rows, prime), factors @ integers % prime)
    assert np.array_equal(code.squares(weights, rows, prime), factors @ integers**2 % prime)


@given(PRIMES, st.integers(0, 2**32))
def test_products_are_those_of_python_integers(prime: int, seed: int) -> None:
    left, right = uniform(prime, 30, 4, 7, seed=seed), uniform(prime, 30, 4, 7, seed=seed + 1)
    exact = (left.astype(object) * right.astype(object)).sum(axis=0) % prime
    assert np.array_equal(code.products(left, right, prime), exact)
    shared = (left.astype(object) * right[:, :1].astype(object)).sum(axis=0) % prime
    assert np.array_equal(code.products(left, right[:, :1], prime), shared)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 31, 32, 33, 63, 64])
def test_values_are_the_polynomials_however_few_coefficients_it_has(size: int) -> None:
    prime = STANDARD.primes[0]
    coefficients = uniform(prime, 2, size)
    found = code.values(coefficients, 64, prime)
    exact = [[at(row, point(64, prime, place), prime) for place in range(64)] for row in coefficients]
    assert np.array_equal(found, exact)


def test_leaves_are_hashes_of_each_column_after_its_salt_whatever_batches_rows_come_in() -> None:
    salts, rows = np.arange(256 * 32, dtype=np.uint8).reshape(256, 32), uniform(STANDARD.primes[0], 53, 256)
    hashes, opened = ColumnHashes(salts), ColumnHashes(salts[200:])
    for batch in (rows[:33], rows[33:]):
        hashes.add(np.ascontiguousarray(batch))
    opened.add_columns(np.ascontiguousarray(rows.T[200:]))
    exact = [
        sha256(b"\0" + salt.tobytes() + column.tobytes()).digest() for salt, column in zip(salts, rows.T, strict=True)
    ]
    assert (hashes.leaves(), opened.leaves()) == (exact, exact[200:])


@pytest.mark.parametrize("sizes", EVERY, ids=str)
@pytest.mark.parametrize("prime", [STANDARD.primes[0], STANDARD.primes[-1]])
def test_word_is_a_polynomial_with_the_rows_values_and_a_random_multiple_of_what_vanishes_on_them(
    prime: int, sizes: Sizes
) -> None:
    row = uniform(prime, 1, sizes.width)
    coefficients, word = code.polynomials(row, sizes, prime)[0], code.words(row, sizes, prime)[0]
    for place in (0, 1, 77, sizes.message - 1):
        assert at(coefficients, point(sizes.message, prime, place), prime) == row[0, place]
    assert np.array_equal(coefficients[sizes.message :], row[0, sizes.message :])
    for place in (0, 1, 4097, sizes.places - 1):
        x = point(sizes.places, prime, place)
        assert at(coefficients, x, prime) == word[place]
        assert (pow(x, sizes.message, prime) + 1) % prime == code.vanishing(sizes, prime)[place] != 0
        for exponent in (0, sizes.message, sizes.shift(sizes.linear), sizes.shift(sizes.quotient)):
            assert pow(x, exponent, prime) == code.powers(exponent, sizes.places, prime)[place]
    assert np.array_equal(code.rows_of(code.polynomials(row, sizes, prime), sizes, prime), row)


@given(PRIMES)
def test_what_vanishes_on_rows_is_inverted_at_all_places(prime: int) -> None:
    for sizes in EVERY:
        both = code.vanishing(sizes, prime).astype(object) * code.inverse_vanishing(sizes, prime)
        assert set(both % prime) == {1}


@given(PRIMES, st.sampled_from([8, 16, 32]), st.integers(0, 2**32))
def test_values_at_the_first_places_are_those_of_the_whole_word_and_interpolate_it(
    prime: int, count: int, seed: int
) -> None:
    coefficients = uniform(prime, 3, count, seed=seed)
    found = code.values(coefficients, count, prime, roots_of=64)
    assert np.array_equal(found, code.values(coefficients, 64, prime)[:, :count])
    assert np.array_equal(code.interpolated(found, prime, roots_of=64), coefficients)


def test_transposed_product_is_the_transposed_matrix_of_the_product() -> None:
    prime, degree = STANDARD.primes[0], 16
    a, s, weights = (uniform(prime, 1, degree, seed=k) for k in range(3))
    found = transposed_products(to_slots(a[None].copy(), [prime])[0], weights, prime)[0]
    masks = product(a[0].tolist(), s[0].tolist(), prime)
    left = sum(x * y for x, y in zip(weights[0].tolist(), masks, strict=True))
    right = sum(x * y for x, y in zip(found.tolist(), s[0].tolist(), strict=True))
    assert left % prime == right % prime


@given(st.lists(st.integers(0, NUMBER_LIMIT - 1) | st.integers(0, 5000), max_size=30))
def test_four_squares_sum_up_to_each_number(numbers: list[int]) -> None:
    found = four_squares(np.array(numbers, np.int64))
    assert found.shape == (4, len(numbers))
    assert found.min(initial=0) >= 0
    assert (found**2).sum(axis=0).tolist() == numbers


def test_four_squares_are_found_for_every_small_number_and_for_hard_ones() -> None:
    hard = [7 * 4**k for k in range(17)] + [4**19 - 1, 4**19 - 4, NUMBER_LIMIT - 1, NUMBER_LIMIT - 8]
    numbers = np.array([*range(100_000), *hard], np.int64)
    assert np.array_equal((four_squares(numbers) ** 2).sum(axis=0), numbers)


@pytest.mark.parametrize("number", [-1, NUMBER_LIMIT])
def test_numbers_beyond_the_table_are_refused(number: int) -> None:
    with pytest.raises(DomainError, match="asked for"):
        four_squares(np.array([number]))


@pytest.mark.parametrize("degree", [8, 8192, 32768])
def test_tables_of_roots_are_those_of_python_integers(degree: int) -> None:
    for prime in (STANDARD.primes[0], STANDARD.primes[-1]):
        held, psi = roots(degree, prime), root(degree, prime)
        for table, base in ((held.forward, psi), (held.backward, pow(psi, -1, prime))):
            powers = [pow(base, reversed_bits(k, degree), prime) for k in range(degree)]
            assert table[0].tolist() == powers
            assert table[1].tolist() == [(power << 32) // prime for power in powers]
