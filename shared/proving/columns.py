"""An owner's statement: its ciphertexts hold rows within bounds (docs/proofs/proved-bounds.md, 1 and 2), and its proof.

The public key and the ciphertexts of a segment of rows are made of a ternary secret, of errors whose squares sum up to
no more than those of the largest that are drawn, and of rows x with ||x||^2 <= c. A proof is made once and stored; a
retry sends the stored one.

Four squares (Lagrange) fill up sums of squares to their bound, for many numbers at once. Let 4 not divide n. One of
floor(sqrt n) and the number before it, a, is even if n is 1 modulo 4 and odd otherwise; then n - a^2 is 1, 2, 3, 5 or 6
modulo 8, and so a sum of three squares (Legendre). We look for the least of these that leaves a sum of two squares. n -
a^2 is at most 4 sqrt n.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from itertools import count

import numpy as np
from numpy.typing import NDArray

from commingle.shared.errors import DomainError
from commingle.shared.proving import code
from commingle.shared.proving.ciphertexts import Ciphertexts
from commingle.shared.proving.lengths import column_shape
from commingle.shared.proving.parameters import BOUND_LIMIT, SQUARES, Sizes
from commingle.shared.proving.proof import verify_relations
from commingle.shared.proving.prover import prove_relations
from commingle.shared.proving.relation import Shape, Term
from commingle.shared.proving.transcript import Challenge
from commingle.shared.ring.encryption import Entropy, SecretKey, within_limits
from commingle.shared.ring.residues import Residues, to_coefficients

NUMBER_LIMIT = 1 << 38
_TABLE = 1 << 21  # n - a^2 is below it


def four_squares(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Roots of four squares that sum up to each number: (n,) to (4, n), none negative. DomainError: beyond 2^38."""
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < NUMBER_LIMIT:
        raise DomainError(f"numbers from 0 to {NUMBER_LIMIT - 1} are asked for")
    left, scale = numbers.copy(), np.ones_like(numbers)
    while (divisible := (left > 0) & (left % 4 == 0)).any():
        left[divisible] //= 4
        scale[divisible] *= 2
    first = np.sqrt(left.astype(np.float64)).astype(np.int64)
    wrong = (first % 2 == 1) == (left % 4 == 1)
    first = np.maximum(first - wrong, 0)
    return np.stack([first, *_three_squares(left - first**2)]) * scale


def _three_squares(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    table = _two_squares()
    found, todo = np.zeros((3, len(numbers)), np.int64), np.arange(len(numbers))
    for first in count():
        if not len(todo):
            return found
        rest = numbers[todo] - first**2
        fits = (rest >= 0) & (table[np.maximum(rest, 0)] >= 0)
        chosen, second = todo[fits], table[rest[fits]].astype(np.int64)
        third = np.sqrt((rest[fits] - second**2).astype(np.float64)).astype(np.int64)
        found[:, chosen] = np.stack([np.full_like(second, first), second, third])
        todo = todo[~fits]
    raise AssertionError("unreachable: the count does not end")


@cache
def _two_squares() -> NDArray[np.int32]:
    """One root of two squares that sum up to each number below the table's size, or -1."""
    table = np.full(_TABLE, -1, np.int32)
    roots = np.arange(int(_TABLE**0.5) + 1)
    for root in roots:
        sums = root**2 + roots**2
        table[sums[sums < _TABLE]] = root
    return table


def require_bound(bound: int) -> None:
    """Raises DomainError for a bound whose squares could leave what is proved."""
    if not 0 < bound < BOUND_LIMIT:
        raise DomainError("a bound on squared norms is positive and below 2^38")


@dataclass(frozen=True)
class Columns:
    """The statement about one segment; `bound`, c, is an integer one on squared norms.

    Raises DomainError: it is none.
    """

    ciphertexts: Ciphertexts
    bound: int

    def __post_init__(self) -> None:
        require_bound(self.bound)

    @property
    def sizes(self) -> Sizes:
        return self.ciphertexts.sizes

    @cached_property
    def digest(self) -> bytes:
        return sha256(b"columns" + self.bound.to_bytes(8, "little") + self.ciphertexts.digest).digest()

    @property
    def shape(self) -> Shape:
        return column_shape(self.ciphertexts.layout, self.sizes, self.ciphertexts.count, self.bound)

    @property
    def column_rows(self) -> NDArray[np.intp]:
        """Numbers of the rows of columns and of what fills them up: (groups, members)."""
        _, columns = self.shape.squares
        return self.shape.rows - columns.rows + np.arange(columns.rows).reshape(columns.groups, columns.members)

    def linear(self, challenge: Challenge, k: int) -> tuple[Iterable[Term], Sequence[int]]:
        return self.ciphertexts.linear(challenge, k, self.column_rows)


def prove_columns(statement: Columns, key: SecretKey, rows: NDArray[np.integer], entropy: Entropy) -> bytes:
    """A proof of the statement about the `rows` of the segment that this key encrypted; it tells nothing else.

    `entropy` is private; only tests give others than the operating system's. Raises DomainError: rows beyond 2^14 or
    the bound, or errors beyond what is drawn: the statement is false.
    """
    witness = column_witness(statement, key, rows)
    return prove_relations([statement], lambda _: witness, entropy)[0]


def verify_columns(statement: Columns, received: bytes) -> None:
    """Raises ProofError: the proof does not hold. Needs no secret."""
    verify_relations([statement], [received])


def column_witness(statement: Columns, key: SecretKey, rows: NDArray[np.integer]) -> NDArray[np.int32]:
    """The matrix that makes the statement true, (rows, l): secret's bits, errors, rows, fillings.

    Raises DomainError.
    """
    ciphertexts, length = statement.ciphertexts, statement.sizes.message
    secret, errors = opened_secrets(ciphertexts, key)
    members = errors.reshape(1, -1, length), rows_in_groups(ciphertexts, rows)
    pairs = zip(members, statement.shape.squares, strict=True)
    filled = (filled_up(own, each.bound).reshape(-1, length) for own, each in pairs)
    return np.concatenate([secret_bits(secret, length), *filled])


def opened_secrets(ciphertexts: Ciphertexts, key: SecretKey) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The secret, (N,), and all errors, the public key's first, (polynomials, N).

    Modulo the last prime a ciphertext holds no message, so its errors are the rest without its secret. Raises
    DomainError: errors are beyond what is drawn.
    """
    ring = ciphertexts.layout.parameters
    secret = _centred(to_coefficients(key.slots[-1:].copy(), ring.primes[-1:]), ring.primes[-1])[0]
    prime = ring.primes[-1]
    masks = code.interpolated(code.product(ciphertexts.second_halves(-1), key.slots[-1:], prime), prime)
    errors = _centred(code.difference(ciphertexts.first_halves(-1), masks, prime), prime)
    if max(int(errors.max()), -int(errors.min())) > ring.error_bound:
        raise DomainError("these ciphertexts are of another key, or have errors beyond what is drawn")
    return secret, errors


def secret_bits(secret: NDArray[np.int32], length: int) -> NDArray[np.int32]:
    """Two rows of bits for each l ternary numbers, which are their sum less 1."""
    parts = secret.reshape(-1, 1, length)
    return np.concatenate([parts >= 0, parts >= 1], axis=1).reshape(-1, length).astype(np.int32)


def rows_in_groups(ciphertexts: Ciphertexts, rows: NDArray[np.integer]) -> NDArray[np.int32]:
    """A segment's rows in the matrix, zeros elsewhere: (groups, columns, l).

    Raises DomainError: shape, or beyond 2^14.
    """
    return ciphertexts.in_groups(within_limits(rows, (ciphertexts.count, ciphertexts.layout.columns)).astype(np.int32))


def filled_up(members: NDArray[np.int32], bound: int) -> NDArray[np.int32]:
    """By group and member, with four numbers whose squares fill up the bound: (groups, members + 4, l).

    Raises DomainError.
    """
    missing = bound - np.einsum("gml,gml->gl", members, members, dtype=np.int64)
    if missing.min() < 0:
        raise DomainError("rows are beyond their bound")
    filling = four_squares(missing.ravel()).astype(np.int32).reshape(SQUARES, *missing.shape)
    return np.concatenate([members, filling.transpose(1, 0, 2)], axis=1)


def _centred(numbers: Residues, prime: int) -> NDArray[np.int32]:
    signed = numbers.astype(np.int32)  # primes are below 2^31
    signed[signed > prime // 2] -= np.int32(prime)
    return signed
