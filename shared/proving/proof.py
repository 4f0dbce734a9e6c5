"""A proof as bytes: the root, answers to the first challenge, and the columns that the second one opens.

Its size follows from the number of rows and l: t columns and paths, 20 bytes an entry, and 0.9 to 3.4 MB of answers for
the ring that releases use.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving.errors import ProofError
from commingle.shared.proving.parameters import MATRIX_LIMIT, RANGE_BITS, RANGES, REPEATS, Sizes
from commingle.shared.proving.transcript import CAP, HASH_BYTES
from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.parameters import format_residues
from commingle.shared.ring.residues import Residues


@dataclass(frozen=True, slots=True)
class Places:
    """The numbers of a matrix's rows: those of the witness come first.

    Raises DomainError: too many for the errors of the proof's section 5.
    """

    sizes: Sizes
    witness: int

    def __post_init__(self) -> None:
        if self.all > MATRIX_LIMIT:
            raise DomainError(f"a matrix of {self.all} rows is not proved")

    @property
    def masked(self) -> int:
        return self.witness + self.sizes.mask_rows

    @property
    def linear(self) -> tuple[slice, slice]:
        """Rows of the linear combinations: low and high halves."""
        return self._halves(self.masked)

    @property
    def quadratic(self) -> tuple[slice, slice]:
        """Rows of the quadratic combinations: low and high halves."""
        return self._halves(self.masked + 2 * REPEATS)

    @property
    def folded(self) -> int:
        """All but the last ones, which hide combinations of all others."""
        return self.masked + 4 * REPEATS

    @property
    def folds(self) -> slice:
        return slice(self.folded, self.all)

    @property
    def all(self) -> int:
        return self.witness + self.sizes.added

    @staticmethod
    def _halves(start: int) -> tuple[slice, slice]:
        return slice(start, start + REPEATS), slice(start + REPEATS, start + 2 * REPEATS)


@dataclass(frozen=True, slots=True)
class Answers:
    """To the second challenge. Residues modulo each prime, primes first.

    Attributes:
        folds: combinations of all rows, (primes, `Sizes.folds`, k).
        linear: coefficients, (primes, REPEATS, `Sizes.linear`).
        quotient: of the quadratic combinations over x^l + 1, (primes, REPEATS, `Sizes.quotient`).
    """

    folds: Residues
    linear: Residues
    quotient: Residues

    def to_bytes(self) -> bytes:
        return b"".join(map(format_residues, (self.folds, self.linear, self.quotient)))


@dataclass(frozen=True, slots=True)
class Proof:
    """What one party sends, read or to be sent.

    Attributes:
        root: of the tree.
        sums: over random subsets of rows and of positions, and masks, as integers, (RANGES, RANGES).
        answers: to the second challenge.
        columns: opened, (primes, t, rows).
        salts: of their leaves, (t, 32).
        paths: to the cap, (t, log2 (4 l / CAP), 32).
        cap: of the tree, (CAP, 32).
    """

    root: bytes
    sums: NDArray[np.uint64]
    answers: Answers
    columns: Residues
    salts: NDArray[np.uint8]
    paths: NDArray[np.uint8]
    cap: NDArray[np.uint8]

    def to_bytes(self) -> bytes:
        opened = format_residues(self.columns) + self.salts.tobytes() + self.paths.tobytes() + self.cap.tobytes()
        return self.root + shown_bytes(self.sums) + self.answers.to_bytes() + opened


def shown_bytes(sums: NDArray[np.integer]) -> bytes:
    return sums.astype("<u8", copy=False).tobytes()


def _shapes(sizes: Sizes, rows: int) -> Iterator[tuple[str, Sequence[int]]]:
    primes = len(sizes.ring.primes)
    yield "<u8", (RANGES, RANGES)
    yield "<u4", (primes, sizes.folds, sizes.width)
    yield "<u4", (primes, REPEATS, sizes.linear)
    yield "<u4", (primes, REPEATS, sizes.quotient)
    yield "<u4", (primes, sizes.opened, rows)
    yield "u1", (sizes.opened, HASH_BYTES)
    yield "u1", (sizes.opened, (sizes.places // CAP).bit_length() - 1, HASH_BYTES)
    yield "u1", (CAP, HASH_BYTES)


def parse_head(received: bytes) -> tuple[bytes, bytes]:
    """The root, and sums as they travel: what challenges are hashed from."""
    end = HASH_BYTES + np.dtype("<u8").itemsize * RANGES**2
    return received[:HASH_BYTES], received[HASH_BYTES:end]


def proof_bytes(sizes: Sizes, rows: int) -> int:
    """How long a proof is, of a matrix of so many rows."""
    return HASH_BYTES + sum(np.dtype(kind).itemsize * prod(shape) for kind, shape in _shapes(sizes, rows))


def parse_proof(received: bytes, sizes: Sizes, rows: int) -> Proof:
    """The inverse of `Proof.to_bytes`.

    Raises ProofError: another length, a residue that is not below its prime, or a sum that is not below its bound.
    """
    if len(received) != proof_bytes(sizes, rows):
        raise ProofError("size")
    parts, at = [], HASH_BYTES
    for kind, shape in _shapes(sizes, rows):
        parts.append(np.frombuffer(received, kind, prod(shape), at).reshape(shape))
        at += parts[-1].nbytes
    sums, folds, linear, quotient, columns, salts, paths, cap = parts
    if any(
        bool((plane >= prime).any())
        for part in (folds, linear, quotient, columns)
        for plane, prime in zip(part, sizes.ring.primes, strict=True)
    ):
        raise ProofError("residues")
    if bool((sums >> RANGE_BITS).any()):
        raise ProofError("sums")
    return Proof(received[:HASH_BYTES], sums, Answers(folds, linear, quotient), columns, salts, paths, cap)
