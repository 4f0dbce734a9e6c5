"""Where a party's columns lie in its ciphertexts, how long everything is, and the check of what was received.

The columns of one owner share polynomials: a stripe of L rows of w columns is one polynomial, column a at coefficients
a L to (a + 1) L, so that a product with the reversed rows of another column has their inner product at a L + L - 1
(coefficient packing; Huang, Lu, Hong, Ding 2022). Up to 16 columns share one; more make several groups of w.
A reply then has one polynomial for each group and column of the evaluator, whatever the number of rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import prod

import numpy as np

from commingle.shared.ring.errors import CiphertextError, DomainError
from commingle.shared.ring.parameters import ROWS_LIMIT, STANDARD, Parameters
from commingle.shared.ring.residues import Residues

_WIDTH_LIMIT = 16  # beyond it transforms of the evaluator's rows cost more than shorter replies save
BLOCK_STRIPES = 8
_WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """All that is public about the ciphertexts of one party in one release.

    Attributes:
        context: names the release (digests of spec and approvals) and the owner: no two sets of ciphertexts share it.
        rows: n, 1 to 2^24.
        columns: d, of the owner.
        parameters: the ring.

    Raises:
        DomainError: there are no rows, too many, or no columns.
    """

    context: bytes
    rows: int
    columns: int
    parameters: Parameters = STANDARD

    def __post_init__(self) -> None:
        """Sizes within what the noise bounds are proved for."""
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
        """The rows of one block, but for the last ones."""
        return BLOCK_STRIPES * self.stripe_rows

    @property
    def label(self) -> bytes:
        """What public polynomials are hashed from: 32 bytes, another for every context, size and ring."""
        facts = self.rows.to_bytes(8, "little") + self.columns.to_bytes(8, "little") + self.context
        return sha256(b"commingle/ring/v1" + self.parameters.digest + facts).digest()

    def blocks(self) -> Iterator[tuple[int, int]]:
        """The (start, stop) of all blocks of rows, in order: what is encrypted, sent and evaluated at a time."""
        size = self.block_rows
        return ((start, min(start + size, self.rows)) for start in range(0, self.rows, size))

    def stripes(self, start: int, stop: int) -> int:
        """How many stripes a block has."""
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
    """How long residues of this shape are when they travel."""
    return _WORD_BYTES * prod(shape)


def format_residues(residues: Residues) -> bytes:
    """Words of four bytes, little-endian, the last index fastest."""
    return residues.astype("<u4", copy=False).tobytes()


def parse_residues(received: bytes, shape: Sequence[int], primes: Sequence[int]) -> Residues:
    """The inverse of `format_residues`, for residues of the first primes of a ring.

    Raises:
        CiphertextError: another length, or a residue that is not below its prime.
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
