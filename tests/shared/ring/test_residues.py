import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.ring.residues import (
    divide,
    integers,
    products,
    residues,
    sums,
    to_coefficients,
    to_slots,
)
from tests.world.ring import product, toy

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


@given(st.integers(0, RING.modulus // RING.dropped - 2), st.integers(0, RING.dropped - 1))
def test_division_is_off_by_less_than_a_half(whole: int, remainder: int) -> None:
    (found,) = integers(divide(planes([whole * RING.dropped + remainder]), RING.primes, RING.kept), RING.primes[:3])
    assert 2 * abs(found * RING.dropped - whole * RING.dropped - remainder) < RING.dropped
