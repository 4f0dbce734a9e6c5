"""Linear encryption in Python integers, by definition: polynomials are lists, products are schoolbook, q is one number.

It follows docs/proofs/linear-encryption.md. With the product it shares how random halves are hashed, and the order in
which entropy is read. Protections of a reply can be left out, for attacks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import e, log2, pi, prod, sqrt

import numpy as np
from numpy.typing import NDArray

from commingle.shared.ring.encryption import Entropy, errors, floods, keystream, public_slots, ternary
from commingle.shared.ring.parameters import ENTRY_LIMIT, STANDARD, Layout, Parameters

Polynomial = list[int]


def ring_primes(degree: int) -> Iterable[int]:
    """Primes below 2^31 that are 1 modulo 2N, the largest first, by trial division."""
    for candidate in range((1 << 31) - 2 * degree + 1, 2, -2 * degree):
        if all(candidate % divisor for divisor in range(3, 46341, 2)):
            yield candidate


@cache
def toy(degree: int = 64) -> Parameters:
    """The standard's sizes in a ring that is too small to hide anything, in which attacks take milliseconds."""
    primes = tuple(islice(ring_primes(degree), len(STANDARD.primes)))
    return Parameters(
        degree=degree, primes=primes, kept=STANDARD.kept, scale_bits=STANDARD.scale_bits, flood_bits=STANDARD.flood_bits
    )


def seeded(number: int) -> Entropy:
    return keystream(number.to_bytes(32, "big"))


def product(left: Sequence[int], right: Sequence[int], modulus: int) -> Polynomial:
    """Modulo x^N + 1 and the modulus."""
    degree, found = len(left), [0] * len(left)
    for i, x in enumerate(left):
        for j, y in enumerate(right):
            found[(i + j) % degree] += x * y if i + j < degree else -x * y
    return [x % modulus for x in found]


def reversed_bits(k: int, degree: int) -> int:
    return int(format(k, f"0{degree.bit_length() - 1}b")[::-1], 2)


@cache
def root(degree: int, prime: int) -> int:
    """The psi of slots: g^((p - 1) / 2N) of the least g for which it has order 2N."""
    powers = (pow(g, (prime - 1) // (2 * degree), prime) for g in range(2, prime))
    return next(psi for psi in powers if pow(psi, degree, prime) == prime - 1)


def remainders(numbers: Sequence[int], primes: Sequence[int]) -> int:
    """The number below the product of the primes with these remainders."""
    modulus = prod(primes)
    return sum(x * (modulus // p) * pow(modulus // p, -1, p) for x, p in zip(numbers, primes, strict=True)) % modulus


@cache
def public_half(layout: Layout, index: int) -> Polynomial:
    """A hashed polynomial by its coefficients modulo q."""
    ring, planes = layout.parameters, []
    for prime in ring.primes:
        slots, psi = public_slots(layout.label, [index], ring.degree, prime)[0].tolist(), root(ring.degree, prime)
        points = [pow(psi, -2 * reversed_bits(k, ring.degree) - 1, prime) for k in range(ring.degree)]
        planes.append(
            [
                sum(value * pow(point, i, prime) for value, point in zip(slots, points, strict=True))
                * pow(ring.degree, -1, prime)
                % prime
                for i in range(ring.degree)
            ]
        )
    return [remainders(column, ring.primes) for column in zip(*planes, strict=True)]


def secret(layout: Layout, seed: bytes) -> Polynomial:
    return [int(x) for x in ternary(layout.parameters.degree, keystream(seed))]


def in_stripes(layout: Layout, columns: NDArray[np.int64]) -> list[Polynomial]:
    """The owner's columns: polynomial after polynomial, groups of a stripe one after the other."""
    length, made = layout.stripe_rows, []
    for start in range(0, layout.rows, length):
        for group in range(layout.groups):
            polynomial = [0] * layout.parameters.degree
            for a in range(layout.width):
                column = group * layout.width + a
                if column < layout.columns:
                    values = columns[start : start + length, column].tolist()
                    polynomial[a * length : a * length + len(values)] = values
            made.append(polynomial)
    return made


def reversed_stripes(layout: Layout, column: NDArray[np.int64]) -> list[Polynomial]:
    """One column of the evaluator, a polynomial a stripe."""
    length, made = layout.stripe_rows, []
    for start in range(0, layout.rows, length):
        values = column[start : start + length].tolist()
        polynomial = [0] * layout.parameters.degree
        for t, value in enumerate(values):
            polynomial[length - 1 - t] = value
        made.append(polynomial)
    return made


@dataclass(frozen=True)
class Encrypted:
    """What an owner made, with what it knows: first halves and errors of its ciphertexts, and its key's half."""

    layout: Layout
    secret: Polynomial
    firsts: list[Polynomial]
    errors: list[Polynomial]
    key: Polynomial
    key_half: Polynomial


def encrypt(
    layout: Layout, columns: NDArray[np.int64], *, seed: bytes, entropy: Entropy, key_half: Polynomial | None = None
) -> Encrypted:
    """Public key, then all blocks. An owner that chooses the random half of its key itself gives it."""
    ring, s = layout.parameters, secret(layout, seed)
    half = public_half(layout, 0) if key_half is None else key_half
    key_error = errors((ring.degree,), ring.error_bound, entropy).tolist()
    key = [(x + y) % ring.modulus for x, y in zip(product(half, s, ring.modulus), key_error, strict=True)]
    drawn: list[Polynomial] = []
    for block in layout.blocks():
        shape = layout.block_shape(*block)[1:]
        drawn += errors(shape, ring.error_bound, entropy).reshape(-1, ring.degree).tolist()
    firsts = []
    for index, (message, error) in enumerate(zip(in_stripes(layout, columns), drawn, strict=True), start=1):
        mask = product(public_half(layout, index), s, ring.modulus)
        firsts.append([(x + e + ring.delta * m) % ring.modulus for x, e, m in zip(mask, error, message, strict=True)])
    return Encrypted(layout, s, firsts, drawn, key, half)


@dataclass(frozen=True)
class Reply:
    """For one column of the evaluator, before primes are dropped: whole first and second halves of each group."""

    firsts: list[Polynomial]
    seconds: list[Polynomial]


def evaluate(
    made: Encrypted,
    column: NDArray[np.int64],
    noise: Sequence[int],
    *,
    entropy: Entropy,
    fresh_zero: bool = True,
    flood: bool = True,
) -> Reply:
    """Product with one column, and what protects it, as asked. Noise is added at the places of inner products."""
    layout, ring = made.layout, made.layout.parameters
    blinds = ternary(layout.groups * ring.degree, entropy).reshape(layout.groups, ring.degree).tolist()
    drawn = errors((layout.groups, ring.degree), ring.error_bound, entropy).tolist()
    flooding = floods(layout.columns, ring.flood_bits, entropy)
    firsts, seconds = [], []
    for group in range(layout.groups):
        first, second = [0] * ring.degree, [0] * ring.degree
        pairs = [(made.firsts[k], public_half(layout, k + 1)) for k in range(group, len(made.firsts), layout.groups)]
        factors = reversed_stripes(layout, column)
        if fresh_zero:
            pairs, factors = [*pairs, (made.key, made.key_half)], [*factors, blinds[group]]
            second = list(drawn[group])
        for (own, public), factor in zip(pairs, factors, strict=True):
            first = [u + v for u, v in zip(first, product(own, factor, ring.modulus), strict=True)]
            second = [u + v for u, v in zip(second, product(public, factor, ring.modulus), strict=True)]
        for number in range(group * layout.width, min((group + 1) * layout.width, layout.columns)):
            place = layout.stripe_rows * (number % layout.width + 1) - 1
            first[place] += ring.delta * noise[number] + (flooding[number] if flood else 0)
        firsts.append([x % ring.modulus for x in first])
        seconds.append([x % ring.modulus for x in second])
    return Reply(firsts, seconds)


def sent(layout: Layout, reply: Reply) -> bytes:
    """What of a reply travels: primes dropped, second halves whole, first halves at places, as bytes."""
    ring = layout.parameters
    places = [layout.stripe_rows * (a + 1) - 1 for a in range(layout.width)]
    opened = [first[place] for first in reply.firsts for place in places][: layout.columns]
    words = [x for second in reply.seconds for x in second] + opened
    divided = [(2 * x + ring.dropped) // (2 * ring.dropped) for x in words]
    planes = [[x % prime for x in divided] for prime in ring.primes[: ring.kept]]
    return np.array(planes, "<u4").tobytes()


def phases(made: Encrypted, reply: Reply) -> list[Polynomial]:
    """First half less second half times the secret, nearest to zero: messages and noise, as the owner sees them."""
    modulus = made.layout.parameters.modulus
    found = []
    for first, second in zip(reply.firsts, reply.seconds, strict=True):
        masks = product(second, made.secret, modulus)
        found.append([(x - y + modulus // 2) % modulus - modulus // 2 for x, y in zip(first, masks, strict=True)])
    return found


def flood_distance(ring: Parameters, rows: int, openings: int) -> float:
    """Total variation between all openings of a release and openings whose noise tells nothing (4.2), at most."""
    deviation = sqrt(ring.error_bound / 2 * (rows * ENTRY_LIMIT**2 + 2 * ring.degree))
    return openings * deviation / 2.0 ** (ring.flood_bits + 1)


def security_bits(ring: Parameters) -> float:
    """The cost of the best known attack on the ring, in bits."""
    return primal_attack_bits(ring.degree, log2(ring.modulus), error_deviation=sqrt(ring.error_bound / 2))


def primal_attack_bits(degree: int, modulus_bits: float, *, error_deviation: float) -> float:
    """log2 of the operations that recover a ternary secret by lattice reduction, classically.

    The embedding of Bai and Galbraith with as many samples as suit it: BKZ of the least block size beta for which a
    projection of the secret is shorter than what the last block holds (Alkim, Ducas, Poeppelmann, Schwabe 2016),
    sqrt(beta) sigma <= root^(2 beta - d - 1) volume^(1 / d), costs 8 d 2^(0.292 beta + 16.4), as the Homomorphic
    Encryption Standard counts (Albrecht et al. 2018), whose table of ternary secrets the tests hold this against.
    """
    stretch = log2(error_deviation / sqrt(2 / 3))  # puts errors and secret on one scale

    def dimension(beta: int) -> float:
        return sqrt(degree * (modulus_bits - stretch) / _log_root(beta))

    def broken(beta: int) -> bool:
        d = max(dimension(beta), degree + 2.0)
        volume = ((d - degree - 1) * modulus_bits + degree * stretch) / d
        return log2(error_deviation) + log2(beta) / 2 <= (2 * beta - d - 1) * _log_root(beta) + volume

    beta = next(beta for beta in range(50, 16 * degree) if broken(beta))
    return 0.292 * beta + 16.4 + log2(8 * dimension(beta))


def _log_root(beta: int) -> float:
    """Chen's root Hermite factor of BKZ with block size beta, log2."""
    return log2((pi * beta) ** (1 / beta) * beta / (2 * pi * e)) / (2 * (beta - 1))
