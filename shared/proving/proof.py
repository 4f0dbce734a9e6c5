"""A proof as bytes: the root, answers to the first challenge, and the columns that the second one opens.

Its size follows from the number of rows: 296 columns and paths, 20 bytes an entry, and 3.3 MB of answers for the ring
that releases use.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving.commitment import HASH_BYTES
from commingle.shared.proving.errors import ProofError
from commingle.shared.proving.parameters import FOLDS, MATRIX_LIMIT, OPENED, RANGE_BITS, RANGES, REPEATS, Sizes
from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.layout import format_residues
from commingle.shared.ring.residues import Residues


@dataclass(frozen=True, slots=True)
class Places:
    """The numbers of a matrix's rows: those of the witness come first.

    Attributes:
        witness: how many.

    Raises:
        DomainError: too many for the errors of the proof's section 5.
    """

    witness: int

    def __post_init__(self) -> None:
        """A matrix that is too tall is not folded safely."""
        if self.all > MATRIX_LIMIT:
            raise DomainError(f"a matrix of {self.all} rows is not proved")

    @property
    def masks(self) -> slice:
        """Of sums of random subsets."""
        return slice(self.witness, self.witness + RANGES)

    @property
    def linear(self) -> tuple[slice, slice]:
        """Of the linear combinations: low and high halves."""
        return self._halves(self.witness + RANGES)

    @property
    def quadratic(self) -> tuple[slice, slice]:
        """Of the quadratic combinations."""
        return self._halves(self.witness + RANGES + 2 * REPEATS)

    @property
    def folded(self) -> int:
        """All but the last ones, which hide combinations of all others."""
        return self.witness + RANGES + 4 * REPEATS

    @property
    def folds(self) -> slice:
        """Of those combinations."""
        return slice(self.folded, self.all)

    @property
    def all(self) -> int:
        """How many rows there are."""
        return self.folded + FOLDS

    @staticmethod
    def _halves(start: int) -> tuple[slice, slice]:
        return slice(start, start + REPEATS), slice(start + REPEATS, start + 2 * REPEATS)


@dataclass(frozen=True, slots=True)
class Answers:
    """To the first challenge. Residues modulo each prime, primes first.

    Attributes:
        sums: of random subsets of rows and a mask, as integers, (RANGES, l).
        tails: of the same sums, (primes, RANGES, t).
        folds: combinations of all rows, (primes, FOLDS, k).
        linear: coefficients, (primes, REPEATS, `Sizes.linear`).
        quotient: of the quadratic combinations over x^l + 1, (primes, REPEATS, `Sizes.quotient`).
    """

    sums: NDArray[np.uint64]
    tails: Residues
    folds: Residues
    linear: Residues
    quotient: Residues

    def to_bytes(self) -> bytes:
        """As they travel."""
        parts = (self.tails, self.folds, self.linear, self.quotient)
        return self.sums.astype("<u8", copy=False).tobytes() + b"".join(map(format_residues, parts))


@dataclass(frozen=True, slots=True)
class Proof:
    """What one party sends, read or to be sent.

    Attributes:
        root: of the tree.
        answers: to the first challenge.
        columns: opened, (primes, t, rows).
        salts: of their leaves, (t, 32).
        paths: to the root, (t, log2 N, 32).
    """

    root: bytes
    answers: Answers
    columns: Residues
    salts: NDArray[np.uint8]
    paths: NDArray[np.uint8]

    def to_bytes(self) -> bytes:
        """As it travels."""
        opened = format_residues(self.columns) + self.salts.tobytes() + self.paths.tobytes()
        return self.root + self.answers.to_bytes() + opened


def _shapes(sizes: Sizes, rows: int) -> Iterator[tuple[str, Sequence[int]]]:
    primes = len(sizes.ring.primes)
    yield "<u8", (RANGES, sizes.message)
    yield "<u4", (primes, RANGES, OPENED)
    yield "<u4", (primes, FOLDS, sizes.width)
    yield "<u4", (primes, REPEATS, sizes.linear)
    yield "<u4", (primes, REPEATS, sizes.quotient)
    yield "<u4", (primes, OPENED, rows)
    yield "u1", (OPENED, HASH_BYTES)
    yield "u1", (OPENED, sizes.places.bit_length() - 1, HASH_BYTES)


def proof_bytes(sizes: Sizes, rows: int) -> int:
    """How long a proof is, of a matrix of so many rows."""
    return HASH_BYTES + sum(np.dtype(kind).itemsize * prod(shape) for kind, shape in _shapes(sizes, rows))


def parse_proof(received: bytes, sizes: Sizes, rows: int) -> Proof:
    """The inverse of `Proof.to_bytes`.

    Raises:
        ProofError: another length, a residue that is not below its prime, or a sum that is not below its bound.
    """
    if len(received) != proof_bytes(sizes, rows):
        raise ProofError("size")
    parts, at = [], HASH_BYTES
    for kind, shape in _shapes(sizes, rows):
        parts.append(np.frombuffer(received, kind, prod(shape), at).reshape(shape))
        at += parts[-1].nbytes
    sums, tails, folds, linear, quotient, columns, salts, paths = parts
    if any(
        bool((plane >= prime).any())
        for part in (tails, folds, linear, quotient, columns)
        for plane, prime in zip(part, sizes.ring.primes, strict=True)
    ):
        raise ProofError("residues")
    if bool((sums >> RANGE_BITS).any()):
        raise ProofError("sums")
    return Proof(received[:HASH_BYTES], Answers(sums, tails, folds, linear, quotient), columns, salts, paths)
