"""Gaussian noise on a lattice (docs/design/privacy.md#noise, proved in docs/proofs/sampling.md).

Releases have `rounded_gaussian` noise: an exact discrete Gaussian on so fine a lattice that no event's probability
differs from a rounded continuous Gaussian's by more than the accounting allows for.

This is the only module of the privacy kernel that is not pure: every draw reads its random bytes from the operating
system, so noise can neither be predicted from a release seed nor repeat after a fork or a restart. Callers receive it
as a `Sampler`, which keeps tests of everything around it deterministic.

A candidate is an entry of a histogram of bars about the Gaussian, picked among 2^16, and a place in the entry's bar.
Nearly all entries lie below the curve all along their bar: such a candidate is a draw. Of the others, about one in 30,
those above it are dropped. A histogram is a function of sigma alone, its heights bounded by integers. Estimates from
them in floating point use additions, products and quotients only, which IEEE 754 rounds to the nearest. No estimate
decides: exp(-x) lies between two integers, of any size, and every rounding is bounded.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from commingle.shared.dp.accounting import SIGMA_LIMIT
from commingle.shared.errors import ParameterError

Entropy = Callable[[int], bytes]  # from a count to so many independent, uniformly random bytes

WORD_BITS = 64
GRID_BITS = 128
GRID_ERROR = 1 << 20  # `gaussian_grid` is too small by less than this many units of 2^-128
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
ENTRIES = 1 << 16
_REACH = 5  # sigmas: less than one entry lies beyond
_CLOSE = 2.0**-32
"""More than the error of `Histogram.height` less a level and a uniform number (docs/proofs/sampling.md, 3.3)."""
Sampler = Callable[[int, int], NDArray[np.int64]]  # from sigma and count to so many independent draws
_CHUNK = 1 << 14  # candidates at a time: they and the histogram stay in a core's cache


def exp_bounds(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Integers with low <= 2^bits exp(-numerator / denominator) <= high and high - low <= 3 (the proof's 2.1).

    exp(-x) = exp(-y)^(2^m) for y = x / 2^m < 2^-8, and exp(-y) = 1 - y + y^2/2! - y^3/3! + ... Precondition: the
    numerator is not negative, and the denominator positive.
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

    The first 64 bits of V are `word`. While both answers are possible, V gets another word and the exponential more
    precision, so an approximation never decides (the proof's 4).
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


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Bars of 2^16 entries altogether that cover peak exp(-x^2 / (2 sigma^2)) for -tail <= x < tail."""

    sigma: int
    peak: int  # the curve's height at 0, in entries
    width: int  # of a bar, a power of two; it holds the integers from its start to start + width - 1
    starts: Integers  # start of each entry's bar (2^16). Entries are ordered: sure, doubtful, one for the tail, void.
    sure: int  # number of the entries that lie below the curve all along their bar
    levels: Floats  # of the entries from `sure` on, how many of the same bar lie below it; void lies above the curve
    tail_entry: int  # index of the one entry for the tail
    tail: int  # least magnitude there; its mirror is -tail - 1
    heights: Floats  # peak exp(-(k width)^2 / (2 sigma^2)) for k = 0..tail / width, to the nearest float
    margin: float = _CLOSE  # a comparison closer than this is made in integers

    def height(self, x: Integers) -> Floats:
        """The curve at -tail <= x < tail, nearly: that at k width times exp(-delta), where |x| = k width + t.

        delta = t (2 k width + t) / (2 sigma^2) < 0.08,  exp(-delta) = 1 - delta (1 - delta/2 (1 - ... (1 - delta/8)))
        """
        size = np.abs(x)
        offset = size & (self.width - 1)
        delta = offset.astype(np.float64) * (2 * size - offset) / float(2 * self.sigma**2)
        series = np.ones_like(delta)
        for order in range(8, 0, -1):
            series = 1 - delta / order * series
        height: Floats = self.heights[size // self.width] * series
        return height


@lru_cache(maxsize=8)  # half a megabyte each; a release has at most four scales at a time
def histogram(sigma: int) -> Histogram:
    """The histogram of a sigma from 1 to 2^48 (the proof's 1.2 and 1.3)."""
    width = 1 << max(sigma.bit_length() - 7, 0)
    bars = -(-sigma // width) * _REACH
    starts, grid = np.arange(-bars, bars) * width, gaussian_grid(width, sigma, bars)
    peak, least, most = _bounds(starts, width, grid)
    doubtful = most - least
    sure, tail_entry = int(least.sum()), int(most.sum())
    first = np.cumsum(doubtful) - doubtful
    levels = np.arange(tail_entry - sure) + np.repeat(least - first, doubtful)
    rest = ENTRIES - tail_entry  # for the tail, and void
    return Histogram(
        sigma=sigma,
        peak=peak,
        width=width,
        starts=np.concatenate([np.repeat(starts, least), np.repeat(starts, doubtful), np.zeros(rest, np.int64)]),
        sure=sure,
        levels=np.concatenate([levels.astype(np.float64), np.full(rest, 2.0 * ENTRIES)]),
        tail_entry=tail_entry,
        tail=bars * width,
        heights=np.array([peak * height / (1 << GRID_BITS) for height in grid]),
    )


def _bounds(starts: Integers, width: int, grid: Sequence[int]) -> tuple[int, Integers, Integers]:
    """The peak, and of each bar the entries that lie below the curve and those that reach it everywhere.

    The curve falls with |x|, so both follow from the multiples of the width next to a bar's nearest and farthest |x|.
    The peak is the largest integer for which rounding up every bar leaves an entry for the tail.
    """
    ends = np.sort(np.abs([starts, starts + width - 1]), axis=0)
    nearest, farthest = ends[0] // width, -(-ends[1] // width)
    area = sum(grid[k] + GRID_ERROR for k in nearest.tolist())
    peak = ((ENTRIES - 1 - len(starts)) << GRID_BITS) // area
    least = np.array([peak * height >> GRID_BITS for height in grid])
    most = np.array([-(-peak * (height + GRID_ERROR) >> GRID_BITS) for height in grid])
    return peak, least[farthest], most[nearest]


def rounded_gaussian(sigma: int, count: int, *, entropy: Entropy = os.urandom) -> NDArray[np.int64]:
    """`count` independent draws of N(0, sigma^2) rounded to integers, up to 2^-32 of any epsilon and delta.

    A `discrete_gaussian` of 2^s sigma, from 2^47 to 2^48, divided by 2^s and rounded
    (docs/proofs/noise-and-accounting.md, 1.5).
    """
    fine = max(SIGMA_LIMIT.bit_length() - 1 - sigma.bit_length(), 0)
    draws = discrete_gaussian(sigma << fine, count, entropy=entropy)
    if fine:
        draws += 1 << (fine - 1)
        draws >>= fine
    return draws


def discrete_gaussian(sigma: int, count: int, *, entropy: Entropy = os.urandom) -> NDArray[np.int64]:
    """`count` independent draws from N_Z(0, sigma^2), P(x) proportional to exp(-x^2 / (2 sigma^2)), exactly.

    Sensitivity, adjacency and the guarantee that follows are in docs/proofs/noise-and-accounting.md, 1. A draw beyond
    int64, of probability below exp(-2^27), is reduced modulo 2^64. `entropy` gives independent uniform bytes; only
    tests give others than the operating system's. Raises ParameterError: sigma below 1 or above 2^48, where sums could
    leave exact arithmetic.
    """
    if not 1 <= sigma <= SIGMA_LIMIT:
        raise ParameterError(f"a noise scale of {sigma} is out of range", remedy="Raise epsilon.")
    return sample(histogram(sigma), count, entropy)


def sample(law: Histogram, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """The first `count` candidates that are kept, in order."""
    draws, filled = np.empty(count, np.int64), 0
    while filled < count:
        kept = kept_candidates(law, min(_CHUNK, count - filled), entropy)
        draws[filled : filled + len(kept)] = kept
        filled += len(kept)
    return draws


def kept_candidates(law: Histogram, candidates: int, entropy: Entropy) -> NDArray[np.int64]:
    """The kept ones of so many candidates: the upper 16 bits of a word are the entry, the lowest ones the place."""
    words = np.frombuffer(entropy(8 * candidates), "<u8")
    entries = words.view("<u2")[3::4]
    x = law.starts.take(entries)
    x += (words & np.uint64(law.width - 1)).view(np.int64)
    doubtful = np.flatnonzero(entries >= law.sure)
    x[doubtful], kept = _compared(law, entries[doubtful], x[doubtful], entropy)
    return np.delete(x, doubtful[~kept])


def _compared(
    law: Histogram, entries: NDArray[np.uint16], x: NDArray[np.int64], entropy: Entropy
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Candidates of entries that are not sure, the tail's put in their place, and which of them are kept.

    Kept are those with level + V < curve at x, V uniform in [0, 1).
    """
    words = np.frombuffer(entropy(8 * len(x)), "<u8")
    levels = law.levels[entries - law.sure]
    below = law.height(x) - levels - (words >> np.uint64(11)) * 2.0**-53
    kept = below > law.margin
    for i in np.flatnonzero(np.abs(below) <= law.margin):
        word, level = int(words[i]), int(levels[i])
        kept[i] = lies_below(word, level, peak=law.peak, x=int(x[i]), sigma=law.sigma, entropy=entropy)
    for i in np.flatnonzero(entries == law.tail_entry):
        x[i], kept[i] = tail_candidate(law, entropy)
    return x, kept


def tail_candidate(law: Histogram, entropy: Entropy) -> tuple[int, bool]:
    """A candidate beyond the bars, and whether it is kept (the proof's 1.4).

    A coin for the side, n with probability 2^-(n + 1), a place in [tail + n spread, tail + (n + 1) spread); kept with
    probability peak (spread / width) 2^(n + 2) exp(-x^2 / (2 sigma^2)) < 1.
    """
    spread, n, word = 1 << law.sigma.bit_length(), 0, int.from_bytes(entropy(8))
    while entropy(1)[0] & 1:
        n += 1
    x = law.tail + n * spread + word % spread
    x = ~x if word >> 63 else x
    peak = law.peak * (spread // law.width) << (n + 2)
    kept = lies_below(int.from_bytes(entropy(8)), 0, peak=peak, x=x, sigma=law.sigma, entropy=entropy)
    return (x + (1 << 63)) % (1 << 64) - (1 << 63), kept
