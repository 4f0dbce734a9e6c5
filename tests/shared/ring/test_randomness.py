"""Laws of what is drawn, by chi-square with fixed seeds, and the public hash against its definition."""

from hashlib import shake_128

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from commingle.shared.errors import DomainError
from commingle.shared.ring.encryption import errors, floods, keystream, public_slots, ternary
from commingle.shared.ring.parameters import STANDARD
from tests.world.ring import seeded

ERROR_RATE = 1e-9


def check_counts(observed: NDArray[np.int64], law: NDArray[np.float64]) -> None:
    expected = law * observed.sum()
    assert expected.min() > 5
    assert float(((observed - expected) ** 2 / expected).sum()) < float(stats.chi2.isf(ERROR_RATE, len(law) - 1))


def test_secrets_are_uniform_on_three_values() -> None:
    drawn = ternary(300_000, seeded(1))
    assert len(drawn) == 300_000
    check_counts(np.bincount(drawn + 1, minlength=3), np.full(3, 1 / 3))


def test_byte_that_would_favour_one_value_is_drawn_again() -> None:
    given = iter([bytes([255, 0, 255, 2]), bytes([255, 1]), bytes([254])])
    assert ternary(4, lambda count: next(given)[:count]).tolist() == [-1, 1, 0, 1]


def test_errors_are_centred_binomial_and_stay_within_their_bound() -> None:
    bound = STANDARD.error_bound
    drawn = errors((1000, 1000), bound, seeded(2))
    assert np.abs(drawn).max() <= bound
    assert errors((64,), bound, lambda count: b"\xff\xff\xff\xff\0\0\0\0" * (count // 8)).tolist() == [bound] * 64
    law = stats.binom.pmf(np.arange(2 * bound + 1), 2 * bound, 0.5)
    inner = slice(bound - 13, bound + 14)
    observed = np.bincount((drawn + bound).ravel(), minlength=2 * bound + 1)
    rest = [observed.sum() - observed[inner].sum()]
    check_counts(np.array([*rest, *observed[inner]]), np.array([1 - law[inner].sum(), *law[inner]]))


def test_floods_are_uniform_in_their_interval_and_reach_both_ends() -> None:
    bits = STANDARD.flood_bits
    assert set(floods(2, bits, bytes)) == {-(2**bits)}
    assert set(floods(2, bits, lambda count: b"\xff" * count)) == {2**bits - 1}
    drawn = np.array([flood // 2 ** (bits - 4) for flood in floods(100_000, bits, seeded(3))])
    check_counts(np.bincount(drawn + 16, minlength=32), np.full(32, 1 / 32))
    low = np.array([flood % 16 for flood in floods(100_000, bits, seeded(4))])
    check_counts(np.bincount(low, minlength=16), np.full(16, 1 / 16))


def test_keystream_is_one_stream_whatever_the_pieces_and_another_for_each_key() -> None:
    whole, pieces = keystream(bytes(32)), keystream(bytes(32))
    assert whole(1000) == pieces(1) + pieces(0) + pieces(700) + pieces(299)
    assert keystream(bytes(32))(64) != keystream(bytes(31) + b"\1")(64)
    with pytest.raises(DomainError):
        keystream(bytes(16))


@pytest.mark.parametrize("prime", [STANDARD.primes[0], 1_073_750_017])  # half of all words are left out for the second
def test_public_polynomials_are_the_first_words_below_the_prime_of_their_hash(prime: int) -> None:
    found = public_slots(b"label", [7], 4096, prime)
    stream = shake_128(b"label" + (7).to_bytes(8, "little") + prime.to_bytes(4, "little")).digest(1 << 16)
    words = [int.from_bytes(stream[i : i + 4], "little") % 2**31 for i in range(0, 1 << 16, 4)]
    assert found[0].tolist() == [word for word in words if word < prime][:4096]


def test_public_polynomials_differ_by_label_number_and_prime() -> None:
    made = [
        public_slots(label, [number], 64, prime)[0].tolist()
        for label in (b"a", b"b")
        for number in (0, 1)
        for prime in STANDARD.primes[:2]
    ]
    assert len({tuple(words) for words in made}) == 8
