from fractions import Fraction
from itertools import islice
from math import log2, sqrt

import numpy as np
import pytest

from commingle.shared.errors import DomainError
from commingle.shared.ring.parameters import ENTRY_LIMIT, ROWS_LIMIT, STANDARD, Parameters
from tests.world.ring import flood_distance, primal_attack_bits, ring_primes, security_bits, toy

# Homomorphic Encryption Standard (Albrecht et al. 2018), ternary secrets, classical: N, log2 q, bits
TABLE = [
    *[(1024, 27, 128), (2048, 54, 128), (4096, 109, 128), (8192, 218, 128), (16384, 438, 128)],
    *[(1024, 19, 192), (2048, 37, 192), (4096, 75, 192), (8192, 152, 192), (16384, 305, 192)],
    *[(1024, 14, 256), (2048, 29, 256), (4096, 58, 256), (8192, 118, 256), (16384, 237, 256)],
]


@pytest.mark.parametrize(("degree", "modulus_bits", "level"), TABLE)
def test_estimate_reaches_each_level_of_the_standard_at_its_modulus_and_not_with_a_bit_more(
    degree: int, modulus_bits: int, level: int
) -> None:
    assert primal_attack_bits(degree, modulus_bits, error_deviation=3.2) > level - 1
    assert primal_attack_bits(degree, modulus_bits + 1, error_deviation=3.2) < level + 1


def test_standard_ring_is_within_the_128_bit_row_of_the_standard_with_a_margin() -> None:
    assert (STANDARD.degree, 218, 128) in TABLE
    assert log2(STANDARD.modulus) < 155
    assert security_bits(STANDARD) > 187
    assert sqrt(STANDARD.error_bound / 2) > 3.19  # the deviation that the table is for, not less


def test_primes_are_the_largest_there_are_for_the_longest_rows_of_a_proof() -> None:
    """1 modulo twice the 4 N places of rows of N numbers."""
    assert STANDARD.primes == tuple(islice(ring_primes(4 * STANDARD.degree), len(STANDARD.primes)))


def test_no_opening_is_wrong_by_exact_arithmetic_over_all_bounds() -> None:
    """The proof's 3.2 with fractions: noise, flood and rounding are below half a scale, messages within the modulus."""
    noise = 21 * (ROWS_LIMIT * ENTRY_LIMIT + 2 * STANDARD.degree)
    worst = Fraction(noise + 2**STANDARD.flood_bits, STANDARD.dropped) + Fraction(STANDARD.degree + 1, 2)
    assert worst < Fraction(2**STANDARD.scale_bits, 2)
    assert 2**63 * 2**STANDARD.scale_bits + worst < Fraction(STANDARD.kept_modulus, 2)


def test_all_openings_of_the_largest_release_are_flooded_to_2_to_the_minus_45() -> None:
    assert flood_distance(STANDARD, ROWS_LIMIT, 2**16) < 2**-45
    assert flood_distance(STANDARD, 100_000, 600) < 2**-55


@pytest.mark.parametrize("noise", [1, 21 * (2**14 + 2**14), 2**33, 2**42 - 1])
def test_most_openings_are_flooded_to_2_to_the_minus_40_and_one_more_is_not_by_exact_arithmetic(noise: int) -> None:
    """The proof's 4.1 with the largest noise there can be in place of its mean."""
    most = STANDARD.most_openings(noise)
    distance = Fraction(noise, 2 * 2**STANDARD.flood_bits)
    assert most * distance <= Fraction(1, 2**40) < (most + 1) * distance


@pytest.mark.parametrize(("reach", "noise"), [(8, 0), (8, 1), (8, 7), (64, 20), (64, 63)])
def test_flood_within_its_range_less_the_largest_noise_has_one_law_whatever_the_noise(reach: int, noise: int) -> None:
    """All floods of [-R, R) with every noise up to V: what falls into [-R + V, R - V) is each number there, once."""
    core = range(-reach + noise, reach - noise)
    for v in range(-noise, noise + 1):
        assert sorted(f + v for f in range(-reach, reach) if f + v in core) == list(core)
    assert 1 - Fraction(len(core), 2 * reach) == Fraction(noise, reach)
    assert STANDARD.flood_delta(noise) == Fraction(noise, 2**STANDARD.flood_bits)


def test_flood_distance_bounds_the_mean_shift_over_twice_the_flood() -> None:
    """With errors drawn 2,000 times: total variation of a uniform law from itself shifted by v is |v| / 2R."""
    ring, rng, rows = toy(64), np.random.default_rng(5), 50
    y = rng.integers(-ENTRY_LIMIT, ENTRY_LIMIT, (rows, 1), endpoint=True)
    drawn = rng.binomial(21, 0.5, (2000, rows)) - rng.binomial(21, 0.5, (2000, rows))
    mean = float(np.abs(drawn @ y).mean())
    assert mean / 2.0 ** (ring.flood_bits + 1) < flood_distance(ring, rows, 1) < 5 * mean / 2.0 ** (ring.flood_bits + 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"flood_bits": 89},  # would reach half a scale
        {"scale_bits": 27},
        {"scale_bits": 29},  # messages of 64 bits would wrap around
        {"kept": 2},
        {"kept": 4},  # too little is dropped for the flood
        {"degree": 65536},  # not every prime is 1 modulo 131072
        {"primes": (4294828033, *STANDARD.primes[1:])},  # beyond 2^31
    ],
)
def test_parameters_that_could_open_wrongly_do_not_come_into_being(changes: dict[str, int]) -> None:
    fields = {name: getattr(STANDARD, name) for name in Parameters.__slots__}
    Parameters(**fields)
    with pytest.raises(DomainError):
        Parameters(**{**fields, **changes})


def test_every_parameter_changes_the_digest() -> None:
    others = [
        toy(64),
        toy(16),
        Parameters(64, toy(64).primes, 3, 28, 87),
        Parameters(64, toy(64).primes, 3, 28, 88, 20),
    ]
    assert len({ring.digest for ring in [STANDARD, *others]}) == 5
