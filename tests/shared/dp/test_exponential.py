"""The oracle is `decimal`, whose exponential is correctly rounded at any precision (libmpdec, proved for itself)."""

from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import chain, repeat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.shared.dp.accounting import SIGMA_LIMIT
from commingle.shared.dp.exponential import GRID_BITS, GRID_ERROR, Entropy, exp_bounds, gaussian_grid, lies_below


def exponential(exponent: Fraction, digits: int = 120) -> Fraction:
    """exp(-exponent), its relative error below 10^-(digits - 10)."""
    with localcontext() as context:
        context.prec = digits
        return Fraction((-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp())


def given_words(words: Iterator[bytes]) -> Entropy:
    return lambda _: next(words)


@given(st.integers(0, 1 << 70), st.integers(1, 1 << 70), st.integers(1, 200))
def test_bounds_hold_the_exponential_and_are_three_units_apart(numerator: int, denominator: int, bits: int) -> None:
    exponent = min(Fraction(numerator, denominator), Fraction(10_000))
    low, high = exp_bounds(exponent.numerator, exponent.denominator, bits)
    assert 0 <= low <= exponential(exponent) * 2**bits <= high <= low + 3


@pytest.mark.parametrize("bits", [1, 64, 128, 4096])
def test_exponential_of_zero_lies_within_its_bounds(bits: int) -> None:
    low, high = exp_bounds(0, 1, bits)
    assert low <= 1 << bits <= high


def test_bounds_of_many_bits_agree_with_those_of_few() -> None:
    low, high = exp_bounds(355, 113, 20_000)
    assert low <= exponential(Fraction(355, 113), 6_050) * 2**20_000 <= high <= low + 3


@pytest.mark.parametrize("sigma", [1, 3, 127, 128, 129, 255, 1_000_003, SIGMA_LIMIT - 1, SIGMA_LIMIT])
def test_grid_is_too_small_by_less_than_its_error(sigma: int) -> None:
    width = 1 << max(sigma.bit_length() - 7, 0)
    grid = gaussian_grid(width, sigma, 640)
    assert len(grid) == 641
    for k, height in enumerate(grid):
        exact = exponential(Fraction((k * width) ** 2, 2 * sigma**2)) * 2**GRID_BITS
        assert height <= exact < height + GRID_ERROR


@given(
    peak=st.integers(1, 1 << 40),
    sigma=st.integers(1, SIGMA_LIMIT),
    away=st.floats(0, 8),
    later=st.integers(0, 2**64 - 1),
)
def test_decision_is_that_of_exact_arithmetic(peak: int, sigma: int, away: float, later: int) -> None:
    """The uniform's first word is the curve's own, so nothing is decided by it, or one beside it."""
    x = int(away * sigma)
    curve = peak * exponential(Fraction(x**2, 2 * sigma**2))
    digits = int(curve * 2**64)
    for first in (digits - 1, digits, digits + 1):
        level, word = divmod(max(first, 0), 2**64)
        words = chain([later.to_bytes(8)], repeat(b"\x55" * 8))  # the last adds up to a third of a unit
        uniform = Fraction((word << 64) + later, 2**128) + Fraction(1, 3 << 128)
        below = lies_below(word, level, peak=peak, x=x, sigma=sigma, entropy=given_words(words))
        assert below is (level + uniform < curve)


def test_undecided_uniform_is_continued_until_it_is_decided() -> None:
    curve = 100 * exponential(Fraction(1, 2))
    for change in (-16, 16):  # in the last of three words
        level, uniform = divmod(int(curve * 2**192) + change, 2**192)
        first, *further = (uniform >> shift & (2**64 - 1) for shift in (128, 64, 0))
        words = (word.to_bytes(8) for word in further)
        below = lies_below(first, level, peak=100, x=5, sigma=5, entropy=given_words(words))
        assert below is (change < 0)
        assert next(words, None) is None, "both further words are needed"


def test_coin_falls_as_often_as_its_probability_says() -> None:
    """False alarm below 1e-9: the normal tail beyond 6.2 deviations."""
    draw, count = np.random.default_rng(7), 20_000
    chance = float(exponential(Fraction(9, 8)))
    heads = sum(
        lies_below(int.from_bytes(draw.bytes(8)), 0, peak=1, x=3, sigma=2, entropy=draw.bytes) for _ in range(count)
    )
    assert abs(heads - count * chance) < 6.2 * (count * chance * (1 - chance)) ** 0.5
