"""Rows as polynomials modulo one prime, and as words of a Reed-Solomon code (docs/proofs/proved-bounds.md, 3).

A row is l values at the roots of x^l + 1 and a tail of t coefficients: the polynomial is m(x) + (x^l + 1) tail(x), m of
degree below l with these values. Its word is its values at the roots of x^4l + 1, in the order of `residues.to_slots`.
All of it is linear, so that combinations of rows are computed on rows, and are rows.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from commingle.shared.loops import Loops
from commingle.shared.proving.parameters import Sizes
from commingle.shared.ring import residues as ring
from commingle.shared.ring.residues import Residues

product, total = ring.product, ring.total
_PIECE = 512  # columns whose squares stay in a core's cache
_COPIED = 64  # rows


@cache
def kernels() -> Loops:
    """The loops of `kernels.c`, loaded on the first computation. Raises KernelsError: there are none."""
    return ring.loops("proving")


def add(sums: NDArray[np.uint64], weights: Residues, rows: Residues, prime: int) -> None:
    """Add rows with weights, (a, m) and (m, n), to sums, (a, n), which stay below prime 2^32."""
    kernels().add_combinations(sums, np.ascontiguousarray(weights), np.ascontiguousarray(rows), prime)


def combinations(weights: Residues, rows: Residues, prime: int) -> Residues:
    """Sums of rows with weights: (a, m) and (m, n) to (a, n)."""
    sums = np.zeros((len(weights), rows.shape[1]), np.uint64)
    add(sums, weights, rows, prime)
    return reduced(sums, prime)


def chosen(weights: Residues, rows: Residues, lines: NDArray[np.intp], prime: int) -> Residues:
    """Sums with weights of the rows that each line numbers, some copied at a time: (a, m), (s, m) to (s, a, n)."""
    (count, members), width = lines.shape, rows.shape[1]
    sums, size = np.zeros((len(weights), count * width), np.uint64), -(-_COPIED // count)
    for start in range(0, members, size):
        part = slice(start, start + size)
        add(sums, weights[:, part], rows[lines[:, part].T].reshape(-1, count * width), prime)
    return reduced(sums, prime).reshape(-1, count, width).transpose(1, 0, 2)


def squares(weights: Residues, rows: Residues, prime: int) -> Residues:
    """Sums of squares of rows with weights: (a, m) and (m, n) to (a, n)."""
    sums = np.zeros((len(weights), rows.shape[1]), np.uint64)
    raised = (weights.astype(np.uint64) << np.uint64(32)) % prime  # Montgomery's square lacks a factor of 2^32
    inverse = -pow(prime, -1, 1 << 32) % (1 << 32)
    squared = np.empty(_PIECE, np.uint32)
    kernels().add_squares(sums, raised.astype(np.uint32), np.ascontiguousarray(rows), squared, prime, inverse)
    return reduced(sums, prime)


def products(left: Residues, right: Residues, prime: int) -> Residues:
    """Sums of products: (s, a, n) and (s, a or 1, n) to (a, n)."""
    sums = np.zeros(left.shape[1:], np.uint64)
    kernels().add_products(sums, np.ascontiguousarray(left), np.ascontiguousarray(right), prime)
    return reduced(sums, prime)


def reduced(numbers: NDArray[np.unsignedinteger], prime: int) -> Residues:
    return ring.remainders(numbers.astype(np.uint64, copy=False), prime)


def difference(left: Residues, right: Residues, prime: int) -> Residues:
    found: Residues = np.minimum(left - right, left - right + np.uint32(prime))  # below zero wraps around
    return found


def values(coefficients: Residues, count: int, prime: int, *, roots_of: int = 0) -> Residues:
    """Polynomials at the roots of x^count + 1, or at the first of a longer word: (m, at most count) to (m, count)."""
    size = max(coefficients.shape[1], 8)
    copies = 1 << (count // size).bit_length() - 1
    found = np.empty((len(coefficients), copies, count // copies), np.uint32)
    found[:, :, : coefficients.shape[1]] = coefficients[:, None]
    found[:, :, coefficients.shape[1] :] = 0
    ring.forward(flat := found.reshape(-1, count), prime, copies=copies, roots_of=roots_of)
    return np.asarray(flat)


def interpolated(points: Residues, prime: int, *, roots_of: int = 0) -> Residues:
    """The polynomials of degree below n that have these values at n such roots: (m, n)."""
    degree, found = points.shape[1], np.array(points, np.uint32, order="C")
    ring.backward(found, prime, roots_of=roots_of)
    factor = pow(degree, -1, prime)
    kernels().scale(found, factor, (factor << 32) // prime, prime)
    return found


def polynomials(rows: Residues, sizes: Sizes, prime: int) -> Residues:
    """Rows, l values and a tail each, as coefficients: (m, k)."""
    message, tail = sizes.message, rows[:, sizes.message :]
    found = np.empty(rows.shape, np.uint32)
    found[:, :message] = interpolated(rows[:, :message], prime)
    found[:, : sizes.opened] = total(found[:, : sizes.opened], tail, prime)
    found[:, message:] = tail
    return found


def rows_of(coefficients: Residues, sizes: Sizes, prime: int) -> Residues:
    """The inverse of `polynomials`."""
    message, tail = sizes.message, coefficients[:, sizes.message :]
    low = coefficients[:, :message].copy()
    low[:, : sizes.opened] = difference(low[:, : sizes.opened], tail, prime)
    return np.hstack([values(low, message, prime), tail])


def words(rows: Residues, sizes: Sizes, prime: int) -> Residues:
    """Rows as words of the code: (m, k) to (m, 4 l)."""
    return values(polynomials(rows, sizes, prime), sizes.places, prime)


@cache
def powers(exponent: int, count: int, prime: int) -> Residues:
    """x^exponent at the roots of x^count + 1, for an exponent below count."""
    monomial = np.zeros((1, exponent + 1), np.uint32)
    monomial[0, -1] = 1
    return np.asarray(values(monomial, count, prime)[0])


def vanishing(sizes: Sizes, prime: int) -> Residues:
    """x^l + 1 at all places: nowhere zero, as none is a root of it."""
    return total(powers(sizes.message, sizes.places, prime), np.ones(1, np.uint32), prime)


def inverse_vanishing(sizes: Sizes, prime: int) -> Residues:
    """The inverses of these few numbers."""
    different, where = np.unique(vanishing(sizes, prime), return_inverse=True)
    return np.array([pow(int(number), -1, prime) for number in different], np.uint32)[where]
