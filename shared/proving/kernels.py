"""Loops over rows of residues, compiled by numba, as those of `shared/ring/kernels.py`.

Only what compiles this module imports it: its loops are called through `code.kernels`.
"""

import numpy as np
from numba import uint32, uint64
from numpy.typing import NDArray

from commingle.shared.compiling import compiled
from commingle.shared.ring.kernels import Residues, scaled

PIECE = 512  # columns that stay in a core's cache


@compiled("void(u4[:,::1], u4, u4, u4)")
def scale(rows: Residues, factor: np.uint32, quotient: np.uint32, prime: np.uint32) -> None:
    """Each number times a factor, in its place; quotient = floor(factor 2^32 / prime)."""
    for r in range(rows.shape[0]):
        row = rows[r]
        for j in range(row.size):
            row[j] = scaled(row[j], factor, quotient, prime)


@compiled("void(u4[:,::1], i8, u4[:,::1])")
def transpose(rows: Residues, first: int, columns: Residues) -> None:
    """columns[k] is column first + k of rows: (m, n), (count, m). Sixteen rows at a time stay in a core's cache."""
    for start in range(0, rows.shape[0], 16):
        stop = min(start + 16, rows.shape[0])
        for k in range(columns.shape[0]):
            for r in range(start, stop):
                columns[k, r] = rows[r, first + k]


@compiled("void(u8[:,::1], u4[:,::1], u4[:,::1], u4)")
def add_combinations(sums: NDArray[np.uint64], weights: Residues, rows: Residues, prime: np.uint32) -> None:
    """sums[a] += sum over i of weights[a, i] rows[i]; sums stay below prime 2^32."""
    full = uint64(prime) << uint64(32)
    for start in range(0, rows.shape[1], PIECE):
        stop = min(start + PIECE, rows.shape[1])
        for i in range(rows.shape[0]):
            row = rows[i, start:stop]
            for a in range(weights.shape[0]):
                weight, total = uint64(weights[a, i]), sums[a, start:stop]
                for j in range(stop - start):
                    word = total[j] + weight * uint64(row[j])
                    total[j] = min(word, word - full)


@compiled("void(u8[:,::1], u4[:,::1], u4[:,::1], u4[::1], u4, u4)")
def add_squares(
    sums: NDArray[np.uint64],
    weights: Residues,
    rows: Residues,
    squares: Residues,
    prime: np.uint32,
    inverse: np.uint32,
) -> None:
    """sums[a] += sum over i of weights[a, i] rows[i]^2 / 2^32; sums stay below prime 2^32.

    Squares are reduced after Montgomery, inverse = -1 / prime modulo 2^32: below 2 prime, and over 2^32. Their array is
    overwritten: as many columns as stay in a core's cache.
    """
    full = uint64(prime) << uint64(32)
    for start in range(0, rows.shape[1], squares.size):
        stop = min(start + squares.size, rows.shape[1])
        for i in range(rows.shape[0]):
            row = rows[i, start:stop]
            for j in range(stop - start):
                square = uint64(row[j]) * uint64(row[j])
                multiple = uint32(uint32(square) * inverse)
                squares[j] = uint32((square + uint64(multiple) * uint64(prime)) >> uint64(32))
            for a in range(weights.shape[0]):
                weight, total = uint64(weights[a, i]), sums[a, start:stop]
                for j in range(stop - start):
                    word = total[j] + weight * uint64(squares[j])
                    total[j] = min(word, word - full)


@compiled("void(u8[:,::1], u4[:,:,::1], u4[:,:,::1], u4)")
def add_products(sums: NDArray[np.uint64], left: Residues, right: Residues, prime: np.uint32) -> None:
    """sums[a] += sum over s of left[s, a] right[s, a], or right[s, 0] if there is one; sums stay below prime 2^32."""
    full = uint64(prime) << uint64(32)
    for s in range(left.shape[0]):
        for a in range(left.shape[1]):
            x, y, total = left[s, a], right[s, a % right.shape[1]], sums[a]
            for j in range(x.size):
                word = total[j] + uint64(x[j]) * uint64(y[j])
                total[j] = min(word, word - full)
