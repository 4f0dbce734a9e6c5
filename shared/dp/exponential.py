"""exp(-x) between two integers, and decisions by it that are exact (docs/proofs/sampling.md, 2 and 4).

Integers of any size only: nothing here rounds in a way that is not bounded, and nothing is decided by an estimate.
"""

from collections.abc import Callable

Entropy = Callable[[int], bytes]
"""That many independent, uniformly random bytes."""

WORD_BITS = 64
GRID_BITS = 128
GRID_ERROR = 1 << 20
"""`gaussian_grid` is too small by less than this many units of 2^-128."""


def exp_bounds(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Integers with low <= 2^bits exp(-numerator / denominator) <= high and high - low <= 3 (the proof's 2.1).

    exp(-x) = exp(-y)^(2^m) for y = x / 2^m < 2^-8, and exp(-y) = 1 - y + y^2/2! - y^3/3! + ...

    Args:
        numerator: not negative.
        denominator: positive.
        bits: of the result.
    """
    halvings = (numerator // denominator).bit_length() + 8
    excess = halvings + halvings.bit_length() + bits.bit_length() + 4
    point = bits + excess
    y = (numerator << (point - halvings)) // denominator
    term = total = 1 << point
    order = 0
    while term:
        order += 1
        term = (term * y >> point) // order
        total += -term if order % 2 else term
    for _ in range(halvings):
        total = total * total >> point
    low = total >> excess
    return max(low - 1, 0), low + 2


def gaussian_grid(width: int, sigma: int, count: int) -> list[int]:
    """2^128 exp(-(k width)^2 / (2 sigma^2)) for k = 0..count, too small by less than `GRID_ERROR` (the proof's 2.2).

    The factor from k to k + 1 is exp(-(2k + 1) a), a = width^2 / (2 sigma^2); it shrinks by exp(-2a) each time.
    """
    factor, _ = exp_bounds(width**2, 2 * sigma**2, GRID_BITS)
    shrink, _ = exp_bounds(width**2, sigma**2, GRID_BITS)
    grid = [1 << GRID_BITS]
    for _ in range(count):
        grid.append(grid[-1] * factor >> GRID_BITS)
        factor = factor * shrink >> GRID_BITS
    return grid


def lies_below(word: int, level: int, *, peak: int, x: int, sigma: int, entropy: Entropy) -> bool:
    """Whether level + V < peak exp(-x^2 / (2 sigma^2)), V uniform in [0, 1): a coin of exactly that probability.

    The first 64 bits of V are `word`. While both answers are possible, V is continued by another word and the
    exponential evaluated as much more precisely, so the answer is never that of an approximation (the proof's 4).
    """
    bits, scale = WORD_BITS, peak.bit_length()
    while True:
        low, high = (peak * bound for bound in exp_bounds(x**2, 2 * sigma**2, bits + scale))
        seen = (level << bits) + word
        if (seen + 1) << scale <= low:
            return True
        if seen << scale >= high:
            return False
        word = word << WORD_BITS | int.from_bytes(entropy(WORD_BITS // 8))
        bits += WORD_BITS
