"""Loops over residues, compiled by numba: what NumPy has no fast words for.

Residues are 32-bit words below a prime below 2^31. Only what compiles this module imports it: its loops are called
through `residues.kernels`.
"""

import numpy as np
from numba import uint32, uint64
from numpy.typing import NDArray

from commingle.shared.compiling import compiled

Residues = NDArray[np.uint32]

TAIL = 4  # pairs at this distance and closer are handled in eight rows


@compiled("u4(u4, u4, u4, u4)")
def scaled(x: np.uint32, root: np.uint32, quotient: np.uint32, prime: np.uint32) -> np.uint32:
    """The product of x and a root, below the prime; quotient = floor(root 2^32 / prime) (Shoup)."""
    product = uint32(uint32(x * root) - uint32(uint32((uint64(x) * uint64(quotient)) >> uint64(32)) * prime))
    return min(product, uint32(product - prime))  # a negative difference wraps around, and is no minimum


@compiled("void(u4[::1], u4[::1], u4[::1], u4[:,::1], u4)")
def forward_tail(row: Residues, roots: Residues, quotients: Residues, turned: Residues, prime: np.uint32) -> None:
    """The last three stages, on eight rows of N/8, `turned`: neighbours do the same there, many at a time."""
    eighth, half = row.size >> 3, TAIL
    for j in range(eighth):
        for k in range(8):
            turned[k, j] = row[8 * j + k]
    while half:
        each = TAIL // half
        for i in range(each):
            first = eighth * each + i
            own, own_quotients = roots[first : 2 * eighth * each : each], quotients[first : 2 * eighth * each : each]
            for k in range(2 * i * half, 2 * i * half + half):
                low, high = turned[k], turned[k + half]
                for j in range(eighth):
                    x = scaled(high[j], own[j], own_quotients[j], prime)
                    above, below = uint32(low[j] + x), uint32(low[j] - x)
                    low[j] = min(above, uint32(above - prime))
                    high[j] = min(below, uint32(below + prime))
        half >>= 1
    for j in range(eighth):
        for k in range(8):
            row[8 * j + k] = turned[k, j]


@compiled("void(u4[:,::1], u4[::1], u4[::1], u4[:,::1], u4, i8)")
def forward(
    rows: Residues, roots: Residues, quotients: Residues, turned: Residues, prime: np.uint32, copies: int
) -> None:
    """Each row's values at the odd powers of psi, in bit-reversed order, in its place (Cooley, Tukey), N >= 8.

    (x, y) to (x + root y, x - root y), roots[k] = psi^bitreversed(k), quotients = floor(roots 2^32 / prime). What has
    N / copies coefficients, a power of two and at least 8, is given that often: the first stages would only repeat it.
    `turned`, (8, N / 8), is overwritten.
    """
    for r in range(rows.shape[0]):
        row, groups, half = rows[r], copies, rows.shape[1] // (2 * copies)
        while half > TAIL:
            for i in range(groups):
                root, quotient, k = roots[groups + i], quotients[groups + i], 2 * i * half
                low, high = row[k : k + half], row[k + half : k + 2 * half]
                for j in range(half):
                    x = scaled(high[j], root, quotient, prime)
                    above, below = uint32(low[j] + x), uint32(low[j] - x)
                    low[j] = min(above, uint32(above - prime))
                    high[j] = min(below, uint32(below + prime))
            groups, half = 2 * groups, half >> 1
        forward_tail(row, roots, quotients, turned, prime)


@compiled("void(u4[::1], u4[::1], u4[::1], u4[:,::1], u4)")
def backward_head(row: Residues, roots: Residues, quotients: Residues, turned: Residues, prime: np.uint32) -> None:
    """The first three stages, as `forward_tail`."""
    eighth, half = row.size >> 3, 1
    for j in range(eighth):
        for k in range(8):
            turned[k, j] = row[8 * j + k]
    while half <= TAIL:
        each = TAIL // half
        for i in range(each):
            first = eighth * each + i
            own, own_quotients = roots[first : 2 * eighth * each : each], quotients[first : 2 * eighth * each : each]
            for k in range(2 * i * half, 2 * i * half + half):
                low, high = turned[k], turned[k + half]
                for j in range(eighth):
                    above, below = uint32(low[j] + high[j]), uint32(low[j] - high[j])
                    low[j] = min(above, uint32(above - prime))
                    high[j] = scaled(min(below, uint32(below + prime)), own[j], own_quotients[j], prime)
        half *= 2
    for j in range(eighth):
        for k in range(8):
            row[8 * j + k] = turned[k, j]


@compiled("void(u4[:,::1], u4[::1], u4[::1], u4[:,::1], u4)")
def backward(rows: Residues, roots: Residues, quotients: Residues, turned: Residues, prime: np.uint32) -> None:
    """The inverse of `forward` but for a factor of N, in place (Gentleman, Sande).

    (x, y) to (x + y, root (x - y)), roots[k] = psi^-bitreversed(k).
    """
    for r in range(rows.shape[0]):
        row, groups, half = rows[r], rows.shape[1] >> 4, 2 * TAIL
        backward_head(row, roots, quotients, turned, prime)
        while groups:
            for i in range(groups):
                root, quotient, k = roots[groups + i], quotients[groups + i], 2 * i * half
                low, high = row[k : k + half], row[k + half : k + 2 * half]
                for j in range(half):
                    above, below = uint32(low[j] + high[j]), uint32(low[j] - high[j])
                    low[j] = min(above, uint32(above - prime))
                    high[j] = scaled(min(below, uint32(below + prime)), root, quotient, prime)
            groups, half = groups >> 1, 2 * half


@compiled("void(u8[:,:,::1], u4[:,:,::1], u4[:,:,::1], u4)")
def add_products(sums: NDArray[np.uint64], left: Residues, right: Residues, prime: np.uint32) -> None:
    """sums[a, b] += sum over s of left[s, a] right[s, b], slot by slot; sums stay below prime 2^32.

    left is (s, a, N), right (s, b, N). In pieces of 256 slots, which stay in a core's cache.
    """
    full = uint64(prime) << uint64(32)
    stripes, slots = left.shape[0], left.shape[2]
    for start in range(0, slots, 256):
        stop = min(start + 256, slots)
        for a in range(left.shape[1]):
            for b in range(right.shape[1]):
                total = sums[a, b, start:stop]
                for s in range(stripes):
                    x, y = left[s, a, start:stop], right[s, b, start:stop]
                    for k in range(stop - start):
                        word = total[k] + uint64(x[k]) * uint64(y[k])
                        total[k] = min(word, word - full)


@compiled("void(i8[:,::1], i4[:,:,::1], i4[:,:,::1], i8, i8)")
def add_windows(
    sums: NDArray[np.int64], words: NDArray[np.int32], rows: NDArray[np.int32], width: int, prime: int
) -> None:
    """sums[a, b] += sum over s, t of word t of window a of stripe s times rows[s, b, t], modulo the prime.

    words is (s, groups, N), rows (s, b, L), small; window a begins at L (a modulo width) of group a / width.
    """
    length = rows.shape[2]
    for s in range(words.shape[0]):
        for a in range(sums.shape[0]):
            first = length * (a % width)
            window = words[s, a // width, first : first + length]
            for b in range(sums.shape[1]):
                row, total = rows[s, b], np.int64(0)
                for t in range(length):
                    total += np.int64(window[t]) * np.int64(row[t])
                sums[a, b] = (sums[a, b] + total) % prime
