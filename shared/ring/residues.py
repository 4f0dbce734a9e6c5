"""Polynomials of degree below N as residues modulo each prime, and as values in slots.

Arrays are (primes, ..., N), uint32, contiguous, each residue below its prime. Slot k holds the value at
psi^(2 bitreversed(k) + 1), where psi is g^((p - 1) / 2N) for the least g that makes it a primitive 2N-th root of unity.
In slots, a product modulo x^N + 1 is the product of each slot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from commingle.shared.ring.errors import KernelsError

Residues: TypeAlias = NDArray[np.uint32]


@cache
def kernels() -> Any:  # noqa: ANN401 - each loop has arguments of its own
    """Those of `kernels.py`, compiled, loaded when something is first computed; KernelsError where there are none."""
    return loops("commingle.shared.ring.kernels")


def loops(module: str) -> Any:  # noqa: ANN401 - as above
    """Those of any module.

    Raises:
        KernelsError: numba is not installed, or compiles nothing here.
    """
    try:
        return import_module("commingle.shared.machine_code").loops(module)
    except Exception as error:  # numba, LLVM and processes raise what they like
        raise KernelsError(
            f"compiled arithmetic is not available: {type(error).__name__}",
            remedy="Install numba for this Python and processor: pip install numba",
        ) from error


@dataclass(frozen=True, slots=True)
class Roots:
    """Powers of psi in the order that the kernels read them, with floor(power 2^32 / prime)."""

    forward: tuple[Residues, Residues]
    backward: tuple[Residues, Residues]


@cache
def roots(degree: int, prime: int) -> Roots:
    """Those of one ring and prime; a power of two, and a prime that is 1 modulo its double."""
    exponent = (prime - 1) // (2 * degree)
    psi = next(root for g in range(2, prime) if pow(root := pow(g, exponent, prime), degree, prime) == prime - 1)
    return Roots(_powers(psi, degree, prime), _powers(pow(psi, -1, prime), degree, prime))


def _powers(base: int, degree: int, prime: int) -> tuple[Residues, Residues]:
    reversed_bits = [0]
    while len(reversed_bits) < degree:
        reversed_bits = [*(2 * k for k in reversed_bits), *(2 * k + 1 for k in reversed_bits)]
    powers = [1]
    while len(powers) < degree:
        powers.append(powers[-1] * base % prime)
    ordered = [powers[k] for k in reversed_bits]
    return np.array(ordered, np.uint32), np.array([(power << 32) // prime for power in ordered], np.uint32)


def forward(rows: Residues, prime: int, *, copies: int = 1) -> None:
    """Each row's values at the odd powers of psi, in its place: (m, N), see `kernels.forward`."""
    kernels().forward(rows, *roots(rows.shape[1], prime).forward, _scratch(rows), prime, copies)


def backward(rows: Residues, prime: int) -> None:
    """The inverse of `forward` but for a factor of N, in place."""
    kernels().backward(rows, *roots(rows.shape[1], prime).backward, _scratch(rows), prime)


def _scratch(rows: Residues) -> Residues:
    return np.empty((8, rows.shape[1] // 8), np.uint32)


def to_slots(coefficients: Residues, primes: Sequence[int]) -> Residues:
    """The same polynomials in slots; the argument is overwritten."""
    degree = coefficients.shape[-1]
    for rows, prime in zip(coefficients, primes, strict=True):
        forward(rows.reshape(-1, degree), prime)
    return coefficients


def to_coefficients(slots: Residues, primes: Sequence[int]) -> Residues:
    """The same polynomials by their coefficients; the argument is overwritten."""
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
    pairs = zip(left, right, primes, strict=True)
    return np.stack([(x.astype(np.uint64) * y % prime).astype(np.uint32) for x, y, prime in pairs])


def sums(left: Residues, right: Residues, primes: Sequence[int]) -> Residues:
    """Of polynomials in one form."""
    pairs = zip(left, right, primes, strict=True)
    return np.stack([((x.astype(np.uint64) + y) % prime).astype(np.uint32) for x, y, prime in pairs])


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
