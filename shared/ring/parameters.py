"""Parameters of the ring, their limits, and the places of columns in ciphertexts.

R_q = Z_q[x] / (x^N + 1), q a product of primes p = 1 mod 2N below 2^31; those of releases are 1 mod 8N, which proofs
need. An integer m is encrypted as m Delta plus errors, Delta = 2^scale_bits times the product of the primes that a
reply drops: there is no plaintext modulus, sums are integers. Bounds are proved in docs/proofs/linear-encryption.md,
sections 2 to 4.

The columns of one owner share polynomials: a stripe of L rows of w columns is one polynomial, column a at coefficients
a L to (a + 1) L, so that a product with the reversed rows of another column has their inner product at a L + L - 1
(coefficient packing; Huang, Lu, Hong, Ding 2022). Up to 16 columns share one; more make several groups of w. A reply
then has one polynomial for each group and column of the evaluator, whatever the number of rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from math import prod

import numpy as np

from commingle.shared.errors import CiphertextError, DomainError
from commingle.shared.ring.residues import Residues

ENTRY_LIMIT = 1 << 14  # |x| of an entry of a column, both sides
ROWS_LIMIT = 1 << 24
MESSAGE_LIMIT = 1 << 63  # of |m| that a reply opens to
FLOODED_BITS = 40  # floods hide the noise of all openings of a release up to a distance of 2^-40
PRIME_LIMIT = 1 << 31  # four products of residues fit 64 bits


@dataclass(frozen=True, slots=True)
class Parameters:
    """A ring, its primes and the sizes of what is added.

    Raises DomainError: some opening could be wrong (the proof's 3.2).
    """

    degree: int  # N, a power of two
    primes: tuple[int, ...]  # all, those that a reply keeps first
    kept: int  # how many a reply keeps
    scale_bits: int  # log2 of the scale of a message in a reply
    flood_bits: int  # floods are uniform in [-2^flood_bits, 2^flood_bits)
    error_bound: int = 21  # errors are centred binomial on [-error_bound, error_bound], of variance error_bound / 2

    def __post_init__(self) -> None:
        """Refuses a parameter set under which some reply could open to another integer."""
        if any(p >= PRIME_LIMIT or p % (2 * self.degree) != 1 for p in self.primes):
            raise DomainError(f"primes are 1 modulo {2 * self.degree} and below 2^31")
        if 2 * (self.largest_noise(ROWS_LIMIT) + (1 << self.flood_bits)) + self.dropped * (self.degree + 1) >= (
            self.dropped << self.scale_bits
        ):
            raise DomainError("errors and floods do not fit below half of the scale")
        if (2 * MESSAGE_LIMIT + 1) << self.scale_bits >= self.kept_modulus:
            raise DomainError("messages of 64 bits do not fit what a reply keeps")

    @property
    def modulus(self) -> int:
        return prod(self.primes)

    @property
    def kept_modulus(self) -> int:
        """The modulus of replies: q over the dropped primes."""
        return prod(self.primes[: self.kept])

    @property
    def dropped(self) -> int:
        return prod(self.primes[self.kept :])

    @property
    def delta(self) -> int:
        """The factor of a message in a ciphertext."""
        return self.dropped << self.scale_bits

    @property
    def digest(self) -> bytes:
        """Names the parameters in the hash of public randomness: 32 bytes."""
        facts = (self.degree, *self.primes, self.kept, self.scale_bits, self.flood_bits, self.error_bound)
        return sha256(",".join(map(str, facts)).encode()).digest()

    def largest_noise(self, rows: int) -> int:
        """A bound on the noise of a sum over `rows` rows before its flood, whatever was drawn (2.2)."""
        return self.error_bound * (rows * ENTRY_LIMIT + 2 * self.degree)

    def flood_delta(self, noise: int) -> Fraction:
        """The chance that a flood lies where it tells of a sum's noise, which is at most V: V / 2^flood_bits.

        Sums with a flood that stay V inside its range have one law, whatever the noise (docs/proofs/delta.md, 1.3).
        """
        return Fraction(noise, 1 << self.flood_bits)

    def most_openings(self, noise: int) -> int:
        """The most openings of one release that floods hide to 2^-40, if each has noise of at most V.

        C V / 2^(flood_bits + 1) <= 2^-40 (docs/proofs/proved-bounds.md, 7.1).
        """
        return (1 << self.flood_bits + 1 - FLOODED_BITS) // noise


STANDARD = Parameters(
    degree=8192,
    primes=(2147352577, 2146959361, 2146041857, 2145976321, 2144796673),  # the largest that are 1 modulo 8N: 155 bits
    kept=3,
    scale_bits=28,
    flood_bits=88,
)
"""What releases use: 187 bits (docs/proofs/linear-encryption.md, 6), where 128 allow a q of 218."""


_WIDTH_LIMIT = 16  # beyond it transforms of the evaluator's rows cost more than shorter replies save
BLOCK_STRIPES = 8
_WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """All that is public about the ciphertexts of one party in one release."""

    # names the release (digests of spec and approvals) and the owner: no two sets of ciphertexts share it
    context: bytes
    rows: int  # n, 1 to 2^24; DomainError otherwise, or without columns
    columns: int  # d, of the owner
    parameters: Parameters = STANDARD

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= ROWS_LIMIT or self.columns < 1:
            raise DomainError(f"{self.rows} rows of {self.columns} columns are not encrypted together")

    @property
    def groups(self) -> int:
        """How many polynomials a stripe takes."""
        return -(-self.columns // _WIDTH_LIMIT)

    @property
    def width(self) -> int:
        """The columns of one polynomial, w; the last group may hold fewer."""
        return -(-self.columns // self.groups)

    @property
    def stripe_rows(self) -> int:
        """The rows of one polynomial, L."""
        return self.parameters.degree // self.width

    @property
    def block_rows(self) -> int:
        """The rows of one block, except for the last one."""
        return BLOCK_STRIPES * self.stripe_rows

    @property
    def label(self) -> bytes:
        """Public polynomials are hashed from it: 32 bytes, different for every context, size and ring."""
        facts = self.rows.to_bytes(8, "little") + self.columns.to_bytes(8, "little") + self.context
        return sha256(b"commingle/ring/v1" + self.parameters.digest + facts).digest()

    def blocks(self) -> Iterator[tuple[int, int]]:
        """The (start, stop) of all blocks of rows, in order; one is encrypted, sent and evaluated at a time."""
        size = self.block_rows
        return ((start, min(start + size, self.rows)) for start in range(0, self.rows, size))

    def stripes(self, start: int, stop: int) -> int:
        return -(-(stop - start) // self.stripe_rows)

    def indices(self, start: int, stop: int) -> range:
        """The numbers of a block's public polynomials, stripe after stripe; the public key's is 0."""
        first = 1 + start // self.stripe_rows * self.groups
        return range(first, first + self.stripes(start, stop) * self.groups)

    def block_shape(self, start: int, stop: int) -> tuple[int, int, int, int]:
        """(primes, stripes, groups, N): the second halves of a block are public, these are the first ones."""
        return len(self.parameters.primes), self.stripes(start, stop), self.groups, self.parameters.degree

    @property
    def key_shape(self) -> tuple[int, int]:
        """(primes, N) of a public key."""
        return len(self.parameters.primes), self.parameters.degree

    @property
    def reply_shape(self) -> tuple[int, int]:
        """(kept primes, words) of a reply for one column of the evaluator: polynomials of the groups, then numbers."""
        return self.parameters.kept, self.groups * self.parameters.degree + self.columns

    @property
    def whole_reply_shape(self) -> tuple[int, int]:
        """(primes, words) of the same before primes are dropped."""
        return len(self.parameters.primes), self.groups * self.parameters.degree + self.columns

    @property
    def places(self) -> tuple[int, ...]:
        """The coefficients of a group's product that hold inner products, for each column of the group."""
        return tuple(self.stripe_rows * (a + 1) - 1 for a in range(self.width))


def byte_count(shape: Sequence[int]) -> int:
    """The length of residues of this shape in bytes."""
    return _WORD_BYTES * prod(shape)


def format_residues(residues: Residues) -> bytes:
    """Words of four bytes, little-endian, the last index fastest."""
    return residues.astype("<u4", copy=False).tobytes()


def parse_residues(received: bytes, shape: Sequence[int], primes: Sequence[int]) -> Residues:
    """The inverse of `format_residues`, for residues of the first primes of a ring.

    Raises CiphertextError: another length, or a residue that is not below its prime.
    """
    if len(received) != byte_count(shape):
        raise CiphertextError(
            f"{len(received)} bytes where ciphertexts have {byte_count(shape)}",
            remedy="The sender sends it again; if it is the same, it runs another version.",
        )
    words = np.frombuffer(received, "<u4").astype(np.uint32).reshape(shape)
    if any(bool((plane >= prime).any()) for plane, prime in zip(words, primes[: shape[0]], strict=True)):
        raise CiphertextError(
            "a residue is not below its prime", remedy="The sender runs another version, or made it wrongly."
        )
    return words
