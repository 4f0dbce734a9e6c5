"""Polynomials of degree below N as residues modulo each prime, and as values in slots.

Arrays are (primes, ..., N), uint32, contiguous, each residue below its prime. Slot k holds the value at
psi^(2 bitreversed(k) + 1), where psi is g^((p - 1) / 2N) for the least g that makes it a primitive 2N-th root of unity.
In slots, a product modulo x^N + 1 is the product of each slot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from commingle.shared import loops as library
from commingle.shared.errors import KernelsError

Residues: TypeAlias = NDArray[np.uint32]


@cache
def kernels() -> library.Loops:
    """The loops of `kernels.c`, loaded on the first computation. Raises KernelsError: there are none."""
    return loops("ring")


def loops(room: str) -> library.Loops:
    """The loops of any room. Raises KernelsError: the package was built without loops."""
    if not library.available():
        raise KernelsError("compiled arithmetic is not available", remedy=library.REMEDY)
    return library.loops(room)


@dataclass(frozen=True, slots=True)
class Roots:
    """Powers of psi in the order that the kernels read them, with floor(power 2^32 / prime)."""

    forward: tuple[Residues, Residues]
    backward: tuple[Residues, Residues]


@cache
def roots(degree: int, prime: int) -> Roots:
    """The roots of one ring and prime; a power of two, and a prime that is 1 modulo its double."""
    exponent = (prime - 1) // (2 * degree)
    psi = next(root for g in range(2, prime) if pow(root := pow(g, exponent, prime), degree, prime) == prime - 1)
    return Roots(root_powers(psi, degree, prime), root_powers(pow(psi, -1, prime), degree, prime))


def root_powers(base: int, degree: int, prime: int) -> tuple[Residues, Residues]:
    reversed_bits, powers = np.zeros(1, np.intp), np.ones(1, np.uint64)
    while (held := len(powers)) < degree:
        reversed_bits = np.concatenate([2 * reversed_bits, 2 * reversed_bits + 1])
        powers = np.concatenate([powers, powers * np.uint64(pow(base, held, prime)) % np.uint64(prime)])
    ordered = powers[reversed_bits]
    return ordered.astype(np.uint32), ((ordered << np.uint64(32)) // np.uint64(prime)).astype(np.uint32)


def forward(rows: Residues, prime: int, *, copies: int = 1, roots_of: int = 0) -> None:
    """Each row's values at the odd powers of psi, in its place: (m, N), see `kernels.forward`.

    A row holds `copies` of its coefficients, a power of two. `roots_of` is the degree of a longer ring: the values are
    those at its first N slots.
    """
    kernels().forward(rows, *_roots(rows, prime, roots_of).forward, _scratch(rows), prime, copies)


def backward(rows: Residues, prime: int, *, roots_of: int = 0) -> None:
    """The inverse of `forward` but for a factor of N, in place."""
    kernels().backward(rows, *_roots(rows, prime, roots_of).backward, _scratch(rows), prime)


def _roots(rows: Residues, prime: int, longer: int) -> Roots:
    return roots(max(rows.shape[1], longer), prime)  # a shorter table would be read beyond its end


def _scratch(rows: Residues) -> Residues:
    return np.empty((8, rows.shape[1] // 8), np.uint32)


def to_slots(coefficients: Residues, primes: Sequence[int]) -> Residues:
    """Polynomials in slots; the argument is overwritten."""
    degree = coefficients.shape[-1]
    for rows, prime in zip(coefficients, primes, strict=True):
        forward(rows.reshape(-1, degree), prime)
    return coefficients


def to_coefficients(slots: Residues, primes: Sequence[int]) -> Residues:
    """Polynomials by their coefficients; the argument is overwritten."""
    degree = slots.shape[-1]
    for rows, prime in zip(slots, primes, strict=True):
        backward(rows.reshape(-1, degree), prime)
        rows[...] = rows.astype(np.uint64) * pow(degree, -1, prime) % prime
    return slots


def residues(integers: NDArray[np.integer], primes: Sequence[int]) -> Residues:
    """Integers modulo each prime: (...) to (primes, ...)."""
    return np.stack([(integers % prime).astype(np.uint32) for prime in primes])


def products(left: Residues, right: Residues, primes: Sequence[int]) -> Residues:
    """Slot by slot, or number by number."""
    return np.stack([product(*each) for each in zip(left, right, primes, strict=True)])


def product(left: Residues, right: Residues, prime: int) -> Residues:
    return remainders(left.astype(np.uint64) * right, prime)


def remainders(numbers: NDArray[np.uint64], prime: int) -> Residues:
    """Numbers below prime 2^32 modulo an odd prime: any shape."""
    left = np.empty(numbers.shape, np.uint32)
    flat = np.require(numbers, requirements=["C", "W"]).reshape(-1)
    kernels().remainders(left.reshape(-1), flat, prime, *_reducing(prime))
    return left


@cache
def _reducing(prime: int) -> tuple[int, int, int]:
    factor = (1 << 32) % prime
    return -pow(prime, -1, 1 << 32) % (1 << 32), factor, (factor << 32) // prime


def sums(left: Residues, right: Residues, primes: Sequence[int]) -> Residues:
    """Sums of polynomials in one form."""
    return np.stack([total(*each) for each in zip(left, right, primes, strict=True)])


def total(left: Residues, right: Residues, prime: int) -> Residues:
    both = left + right
    found: Residues = np.minimum(both, both - np.uint32(prime))  # below zero wraps around
    return found


def integers(numbers: Residues, primes: Sequence[int]) -> list[int]:
    """The integers in [0, q) that have these residues (Chinese remainders): (primes, count)."""
    modulus = prod(primes)
    weights = [modulus // prime * pow(modulus // prime, -1, prime) for prime in primes]
    return [sum(map(int.__mul__, weights, column)) % modulus for column in numbers.T.tolist()]


def divide(coefficients: Residues, primes: Sequence[int], kept: int) -> Residues:
    """Coefficients over P rounded to the nearest integer, modulo the primes that are kept; P the product of the others.

    One prime after the other: c - r is a multiple of p for the r nearest to zero, and all r together make up the
    remainder of P that is nearest to zero, as primes are odd.
    """
    left = coefficients.astype(np.int64)
    for last in range(len(primes) - 1, kept - 1, -1):
        prime = primes[last]
        nearest = np.where(left[last] > prime // 2, left[last] - prime, left[last])
        for k in range(last):
            left[k] = (left[k] - nearest) % primes[k] * pow(prime, -1, primes[k]) % primes[k]
    return left[:kept].astype(np.uint32)
