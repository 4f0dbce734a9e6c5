"""What the proof of the sampler says of its histogram, estimates and decisions (docs/proofs/sampling.md).

The oracle is `decimal`, whose exponential is correctly rounded at any precision (libmpdec, proved for itself).
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import chain, repeat
from math import ceil, floor, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.dp.accounting import SIGMA_LIMIT
from commingle.shared.dp.noise import (
    ENTRIES,
    GRID_BITS,
    GRID_ERROR,
    Entropy,
    Histogram,
    exp_bounds,
    gaussian_grid,
    histogram,
    kept_candidates,
    lies_below,
    sample,
    tail_candidate,
)

SIGMAS = [1, 2, 3, 63, 64, 127, 128, 129, 255, 256, 1000, 524_288, 536_633, 10**9, (1 << 47) + 1, SIGMA_LIMIT]


def exponential(exponent: Fraction, digits: int = 120) -> Fraction:
    """exp(-exponent), its relative error below 10^-(digits - 10)."""
    with localcontext() as context:
        context.prec = digits
        return Fraction((-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp())


def given_words(words: Iterable[bytes]) -> Entropy:
    """A source that answers each call with the next of these."""
    left = iter(words)
    return lambda _: next(left)


@given(st.integers(0, 1 << 70), st.integers(1, 1 << 70), st.integers(1, 200))
def test_bounds_hold_the_exponential_and_are_three_units_apart(numerator: int, denominator: int, bits: int) -> None:
    exponent = min(Fraction(numerator, denominator), Fraction(10_000))
    low, high = exp_bounds(exponent.numerator, exponent.denominator, bits)
    assert 0 <= low <= exponential(exponent) * 2**bits <= high <= low + 3


def test_bounds_hold_the_exponential_of_zero_and_at_many_bits() -> None:
    for bits in (1, 64, 128, 4096):
        low, high = exp_bounds(0, 1, bits)
        assert low <= 1 << bits <= high
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


sigmas = st.integers(1, 300) | st.integers(1, SIGMA_LIMIT) | st.integers(6, 48).map(lambda bits: 1 << bits)


def curve(law: Histogram, x: int) -> Fraction:
    """peak exp(-x^2 / (2 sigma^2)), its relative error below 1e-70."""
    with localcontext() as context:
        context.prec = 80
        return law.peak * Fraction((-Decimal(x**2) / Decimal(2 * law.sigma**2)).exp())


def scripted(*words: int) -> Entropy:
    """A source that gives these words, in whatever portions they are asked for, and then no more."""
    stored = b"".join(word.to_bytes(8, "little") for word in words)
    place = 0

    def entropy(size: int) -> bytes:
        nonlocal place
        assert place + size <= len(stored), "no more bytes are needed"
        place += size
        return stored[place - size : place]

    return entropy


def by_bar(law: Histogram) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
    """The start of each bar, its sure entries and the levels of its doubtful ones."""
    starts, doubtful = law.starts[: law.sure], law.starts[law.sure : law.tail_entry]
    levels = law.levels[: law.tail_entry - law.sure]
    for start in range(-law.tail, law.tail, law.width):
        yield start, int((starts == start).sum()), levels[doubtful == start]


@pytest.mark.parametrize("sigma", SIGMAS)
def test_sure_entries_lie_below_the_curve_and_doubtful_ones_reach_it(sigma: int) -> None:
    law = histogram(sigma)
    total = 0
    for start, sure, levels in by_bar(law):
        ends = curve(law, start), curve(law, start + law.width - 1)
        assert sure <= min(ends)
        assert sure + len(levels) >= max(ends)
        assert levels.tolist() == list(range(sure, sure + len(levels)))
        total += sure + len(levels)
    assert total == law.tail_entry < ENTRIES
    assert law.levels[law.tail_entry - law.sure :].min() > law.peak + 1, "what is left over is never kept"


@given(sigmas)
def test_bars_are_narrow_and_the_tail_begins_five_sigmas_out(sigma: int) -> None:
    law = histogram(sigma)
    assert law.width & (law.width - 1) == 0
    assert law.width == 1 or 64 * law.width <= sigma < 128 * law.width
    assert law.width < 1 << 43, "places and entries are different bits of a word"
    assert law.tail >= 5 * sigma
    assert law.tail % law.width == 0


@given(sigmas)
def test_candidates_of_the_tail_are_kept_with_a_probability_below_one(sigma: int) -> None:
    law = histogram(sigma)
    spread = 1 << sigma.bit_length()
    for step in range(4):
        assert curve(law, law.tail + step * spread) * (spread // law.width) * 2 ** (step + 2) < 1


@given(sigmas, st.lists(st.floats(-1, 1, exclude_max=True), min_size=1, max_size=20))
def test_height_is_off_by_less_than_the_proof_says(sigma: int, places: list[float]) -> None:
    law = histogram(sigma)
    x = np.array([-law.tail, law.tail - 1, *(int(place * law.tail) for place in places)])
    limit = Fraction(1, 1 << (40 if law.width > 1 else 37))
    for estimate, value in zip(law.height(x), x.tolist(), strict=True):
        assert abs(Fraction(float(estimate)) - curve(law, value)) < limit < law.margin / 8


@pytest.mark.parametrize("sigma", SIGMAS)
def test_decisions_in_integers_are_those_by_estimates(sigma: int) -> None:
    """Under an infinite margin each comparison is the exact one; the same bytes then give the same draws."""
    law, count = histogram(sigma), 20_000
    usual = sample(law, count, np.random.default_rng(sigma).bytes)
    exact = sample(replace(law, margin=inf), count, np.random.default_rng(sigma).bytes)
    assert np.array_equal(usual, exact)


def doubtful_candidates(law: Histogram) -> Iterator[tuple[int, int, int]]:
    """Of some doubtful entries: the entry, a place whose curve passes through it, and 64 bits of where it does."""
    for entry in range(law.sure, law.tail_entry, max((law.tail_entry - law.sure) // 16, 1)):
        level = int(law.levels[entry - law.sure])
        for place in range(0, law.width, max(law.width // 8, 1)):
            passes = curve(law, int(law.starts[entry]) + place) - level
            if 2**-20 < passes < 1 - 2**-20:
                yield entry, place, int(passes * 2**64)


@pytest.mark.parametrize("sigma", [40, 128, 524_287, SIGMA_LIMIT - 1])
def test_what_no_estimate_can_decide_is_decided_rightly(sigma: int) -> None:
    """The uniform agrees with the curve in its first 50 bits and more; one candidate is kept, the other is not."""
    law, sure = histogram(sigma), 0  # the next candidate, if this one is not kept, is of an entry that always is
    assert len(list(doubtful_candidates(law))) > 3
    for entry, place, passes in doubtful_candidates(law):
        x = int(law.starts[entry]) + place
        candidate = entry << 48 | place
        assert sample(law, 1, scripted(candidate, passes - 8)).tolist() == [x]
        assert sample(law, 1, scripted(candidate, passes + 8, sure)).tolist() == [int(law.starts[0])]


@pytest.mark.parametrize("sigma", [2, 128, 1 << 20])
def test_uniform_that_64_bits_do_not_decide_is_continued(sigma: int) -> None:
    law = histogram(sigma)
    for entry, place, passes in doubtful_candidates(law):
        candidate, x = entry << 48 | place, int(law.starts[entry]) + place
        assert sample(law, 1, scripted(candidate, passes, 0)).tolist() == [x]
        assert sample(law, 1, scripted(candidate, passes, 2**64 - 1, 0)).tolist() == [int(law.starts[0])]


def test_all_entries_once_give_each_value_its_share() -> None:
    """At sigma 2 a bar is one value; of candidates, one for each entry, floor or ceil of the curve are kept."""
    law, draw = histogram(2), np.random.default_rng(5)
    candidates = iter([(np.arange(ENTRIES, dtype="<u8") << np.uint64(48)).tobytes()])
    kept = kept_candidates(law, ENTRIES, lambda size: next(candidates, None) or draw.bytes(size))
    for x in range(-law.tail, law.tail):
        assert int((kept == x).sum()) in {floor(curve(law, x)), ceil(curve(law, x))}


@pytest.mark.parametrize("sigma", [1, 300, SIGMA_LIMIT])
@pytest.mark.parametrize("n", [0, 1])
def test_candidate_of_the_tail_is_kept_below_its_probability_and_not_above(sigma: int, n: int) -> None:
    law, spread = histogram(sigma), 1 << sigma.bit_length()
    for word, x in ((0, law.tail + n * spread), (1 << 63, -law.tail - n * spread - 1)):
        passes = int(curve(law, x) * (spread // law.width) * 2 ** (n + 2) * 2**64)
        for uniform, kept in ((passes - 8, True), (passes + 8, False)):
            given = given_words([word.to_bytes(8), *[b"\x01"] * n, b"\x00", uniform.to_bytes(8)])
            assert tail_candidate(law, given) == (x, kept)


def test_noise_beyond_64_bits_is_reduced_modulo_2_to_the_64() -> None:
    """More than 2^15 coins in a row, which no run of the sampler will see."""
    law, steps = histogram(SIGMA_LIMIT), (1 << 15) + 3
    x, kept = tail_candidate(law, given_words([(123).to_bytes(8), *[b"\x01"] * steps, b"\x00", b"\xff" * 8]))
    assert not kept
    assert -(2**63) <= x < 2**63
    assert (x - (law.tail + steps * 2**49 + 123)) % 2**64 == 0
