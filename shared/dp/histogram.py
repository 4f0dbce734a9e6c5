"""Bars about a Gaussian, from which candidates for its draws are taken (docs/proofs/sampling.md, 1 and 3).

A histogram is a function of sigma alone. Its heights are bounded by integers (`exponential`), and the estimates made of
them in floating point use additions, products and quotients only, which IEEE 754 rounds to the nearest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from commingle.shared.dp.exponential import GRID_BITS, GRID_ERROR, gaussian_grid

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

ENTRIES = 1 << 16
_REACH = 5  # sigmas: less than one entry lies beyond
_MARGIN = 2.0**-32
"""More than what `Histogram.height`, less a level and a uniform number, is off (docs/proofs/sampling.md, 3.3)."""


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Bars of 2^16 entries altogether that cover peak exp(-x^2 / (2 sigma^2)) for -tail <= x < tail.

    Attributes:
        sigma: of the Gaussian.
        peak: the curve's height at 0, in entries.
        width: of a bar, a power of two; it holds the integers from its start to start + width - 1.
        starts: that of each entry's bar (2^16). Entries are ordered: sure, doubtful, one for the tail, void.
        sure: number of the entries that lie below the curve all along their bar.
        levels: of the entries from `sure` on, how many of the same bar lie below it; void lies above the curve.
        tail_entry: index of the one entry for the tail.
        tail: least magnitude there; its mirror is -tail - 1.
        heights: peak exp(-(k width)^2 / (2 sigma^2)) for k = 0..tail / width, to the nearest float.
        margin: a comparison closer than this is made in integers.
    """

    sigma: int
    peak: int
    width: int
    starts: Integers
    sure: int
    levels: Floats
    tail_entry: int
    tail: int
    heights: Floats
    margin: float = _MARGIN

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
