"""Matrices of 64-bit words, row block by row block: the arithmetic of secure inner products is mod 2^64.

NumPy's unsigned integers wrap around without a word, which is the arithmetic wanted; signed integers become words by
two's complement, so sums and products of both agree mod 2^64.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint64]
Rows: TypeAlias = Callable[[int, int], Words]
"""Rows start..stop of an n x d matrix. Asked for `row_blocks` only, so a reader may count on their boundaries."""

BLOCK_ROWS = 4096


def row_blocks(n: int) -> Iterator[tuple[int, int]]:
    """The (start, stop) of all row blocks of n rows, each of BLOCK_ROWS but the last."""
    return ((start, min(start + BLOCK_ROWS, n)) for start in range(0, n, BLOCK_ROWS))


def rows_of(matrix: NDArray[np.integer]) -> Rows:
    """The rows of a matrix in memory, as words."""
    return lambda start, stop: matrix[start:stop].astype(np.uint64)


def added(left: Rows, right: Rows) -> Rows:
    """L + R, both n x d."""
    return lambda start, stop: left(start, stop) + right(start, stop)


def subtracted(left: Rows, right: Rows) -> Rows:
    """L - R, both n x d."""
    return lambda start, stop: left(start, stop) - right(start, stop)


def side_by_side(parts: Sequence[Rows]) -> Rows:
    """(P_1 | P_2 | ...), all with n rows."""
    return lambda start, stop: np.hstack([part(start, stop) for part in parts])


def inner(left: Rows, right: Rows, n: int) -> Words:
    """L^T R mod 2^64 (a x b) of n x a and n x b, n >= 1, one row block in memory at a time."""
    total: Words = np.zeros((), np.uint64)
    for start, stop in row_blocks(n):
        total = total + left(start, stop).T @ right(start, stop)
    return total
