"""Compiled loops against Python integers, NumPy, and the transform that FIPS 204 publishes."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.ring.parameters import STANDARD
from commingle.shared.ring.residues import (
    backward,
    divide,
    forward,
    integers,
    kernels,
    products,
    remainders,
    residues,
    root_powers,
    roots,
    sums,
    to_coefficients,
    to_slots,
)
from tests.world.ring import product, reversed_bits, root, toy

PRIMES = st.sampled_from(toy(64).primes)
FIPS204 = json.loads((Path(__file__).parents[2] / "vectors" / "fips204_zetas.json").read_text())


def values(coefficients: list[int], prime: int) -> list[int]:
    """The polynomial at the odd powers of psi, in bit-reversed order, by definition."""
    degree = len(coefficients)
    points = [pow(root(degree, prime), 2 * reversed_bits(k, degree) + 1, prime) for k in range(degree)]
    return [sum(c * pow(x, i, prime) for i, c in enumerate(coefficients)) % prime for x in points]


def transformed(rows: NDArray[np.uint32], prime: int) -> NDArray[np.uint32]:
    """A numpy oracle of the transform: one stage after the other, products in 64 bits, remainders by division."""
    degree = rows.shape[1]
    found, groups = rows.astype(np.uint64), 1
    while groups < degree:
        power = roots(degree, prime).forward[0][groups : 2 * groups].astype(np.uint64)
        pairs = found.reshape(len(rows), groups, 2, -1)
        low, high = pairs[:, :, 0], pairs[:, :, 1] * power[None, :, None] % prime
        found = np.stack([(low + high) % prime, (low + prime - high) % prime], axis=2).reshape(len(rows), degree)
        groups *= 2
    return found.astype(np.uint32)


def largest(count: int, degree: int, prime: int) -> NDArray[np.uint32]:
    return np.full((count, degree), prime - 1, np.uint32)


@pytest.mark.parametrize("degree", [8, 16, 64])
@given(PRIMES, st.data())
def test_transform_is_evaluation_at_the_odd_powers_of_psi(degree: int, prime: int, data: st.DataObject) -> None:
    residue = st.integers(0, prime - 1) | st.just(prime - 1)
    coefficients = data.draw(st.lists(residue, min_size=degree, max_size=degree))
    rows = np.array([coefficients], np.uint32)
    forward(rows, prime)
    assert rows[0].tolist() == values(coefficients, prime)


def test_transform_with_the_published_powers_of_fips_204_is_the_transform_of_fips_204() -> None:
    prime, zetas = FIPS204["prime"], FIPS204["zetas"]
    powers, quotients = root_powers(FIPS204["zeta"], 256, prime)
    assert powers.tolist()[1:] == zetas[1:]
    coefficients = np.random.default_rng(1).integers(0, prime, 256).tolist()
    found, number = list(coefficients), 0
    for half in (128, 64, 32, 16, 8, 4, 2, 1):  # algorithm 41
        for start in range(0, 256, 2 * half):
            number += 1
            for j in range(start, start + half):
                turned = zetas[number] * found[j + half] % prime
                found[j], found[j + half] = (found[j] + turned) % prime, (found[j] - turned) % prime
    rows = np.array([coefficients], np.uint32)
    kernels().forward(rows, powers, quotients, np.empty((8, 32), np.uint32), prime, 1)
    assert rows[0].tolist() == found


@pytest.mark.parametrize("prime", STANDARD.primes)
def test_transform_of_the_standard_ring_agrees_with_numpy_and_is_undone(prime: int) -> None:
    degree = STANDARD.degree
    rows = np.random.default_rng(prime).integers(0, prime, (3, degree)).astype(np.uint32)
    rows = np.concatenate([rows, largest(1, degree, prime), np.zeros((1, degree), np.uint32)])
    found = rows.copy()
    forward(found, prime)
    np.testing.assert_array_equal(found, transformed(rows, prime))
    backward(found, prime)
    np.testing.assert_array_equal(found, rows.astype(np.uint64) * degree % prime)


@given(PRIMES | st.sampled_from(STANDARD.primes), st.data())
def test_remainders_are_those_of_python_integers_up_to_the_largest_sum(prime: int, data: st.DataObject) -> None:
    number = st.integers(0, (prime << 32) - 1) | st.sampled_from([0, prime - 1, prime, (prime << 32) - 1])
    numbers = data.draw(st.lists(number, min_size=1, max_size=20))
    found = remainders(np.array([numbers], np.uint64), prime)
    assert found.tolist() == [[number % prime for number in numbers]]


def test_sums_of_products_do_not_overflow_however_many_and_however_large() -> None:
    prime, degree, stripes = STANDARD.primes[0], 520, 300
    sums = np.zeros((2, 3, degree), np.uint64)
    left = largest(2 * stripes, degree, prime).reshape(stripes, 2, degree)
    right = largest(3 * stripes, degree, prime).reshape(stripes, 3, degree)
    for _ in range(2):
        kernels().add_products(sums, left, right, prime)
        assert sums.max() < prime << 32
    assert set((sums % prime).ravel().tolist()) == {2 * stripes * (prime - 1) ** 2 % prime}


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_sums_of_products_are_those_of_python_integers(seed: int, stripes: int, a: int, b: int) -> None:
    prime, rng = STANDARD.primes[1], np.random.default_rng(seed)
    left = rng.integers(0, prime, (stripes, a, 16)).astype(np.uint32)
    right = rng.integers(0, prime, (stripes, b, 16)).astype(np.uint32)
    sums = np.zeros((a, b, 16), np.uint64)
    kernels().add_products(sums, left, right, prime)
    exact = np.einsum("sak,sbk->abk", left.astype(object), right.astype(object))
    assert (sums.astype(object) % prime).tolist() == (exact % prime).tolist()


@pytest.mark.parametrize("sign", [-1, 1])
def test_windows_do_not_overflow_in_the_longest_stripe(sign: int) -> None:
    prime, degree = STANDARD.primes[0], STANDARD.degree
    sums = np.zeros((1, 1), np.int64)
    words = largest(2, degree, prime).view(np.int32).reshape(2, 1, degree)
    rows = np.full((2, 1, degree), sign * 2**14, np.int32)
    kernels().add_windows(sums, words, rows, 1, prime)
    assert sums[0, 0] == 2 * degree * sign * 2**14 * (prime - 1) % prime


def test_windows_are_inner_products_of_each_columns_part_with_each_row() -> None:
    prime, rng, width, length = STANDARD.primes[2], np.random.default_rng(3), 3, 5
    words = rng.integers(0, prime, (4, 2, 16)).astype(np.int32)
    rows = rng.integers(-(2**14), 2**14, (4, 2, length)).astype(np.int32)
    sums = np.zeros((5, 2), np.int64)  # the last column of the second group is not there
    kernels().add_windows(sums, words, rows, width, prime)
    for a in range(5):
        window = words[:, a // width, length * (a % width) :][:, :length].astype(object)
        for b in range(2):
            assert sums[a, b] == (window * rows[:, b]).sum() % prime


RING = toy(16)
NUMBERS = st.integers(0, RING.modulus - 1)
POLYNOMIALS = st.lists(NUMBERS, min_size=16, max_size=16)


def planes(numbers: list[int]) -> NDArray[np.uint32]:
    return np.array([[x % p for x in numbers] for p in RING.primes], np.uint32)


@given(POLYNOMIALS, POLYNOMIALS)
def test_product_of_slots_is_the_product_modulo_x_to_the_n_plus_1(left: list[int], right: list[int]) -> None:
    slots = products(to_slots(planes(left), RING.primes), to_slots(planes(right), RING.primes), RING.primes)
    assert integers(to_coefficients(slots, RING.primes), RING.primes) == product(left, right, RING.modulus)


@given(POLYNOMIALS, POLYNOMIALS)
def test_sum_of_residues_is_the_sum_of_integers(left: list[int], right: list[int]) -> None:
    found = integers(sums(planes(left), planes(right), RING.primes), RING.primes)
    assert found == [(x + y) % RING.modulus for x, y in zip(left, right, strict=True)]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4))
def test_residues_and_integers_undo_each_other_for_signed_words(numbers: list[int]) -> None:
    found = integers(residues(np.array(numbers, np.int64), RING.primes), RING.primes)
    assert found == [number % RING.modulus for number in numbers]


@given(st.lists(NUMBERS | st.sampled_from([0, 1, RING.modulus - 1]), min_size=1, max_size=8), st.integers(1, 4))
def test_division_by_dropped_primes_rounds_to_the_nearest_integer(numbers: list[int], kept: int) -> None:
    dropped = int(np.prod(np.array(RING.primes[kept:], object)))
    exact = [(2 * x + dropped) // (2 * dropped) for x in numbers]
    found = divide(planes(numbers), RING.primes, kept)
    assert found.tolist() == [[x % prime for x in exact] for prime in RING.primes[:kept]]
