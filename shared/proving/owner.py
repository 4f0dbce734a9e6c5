"""What an owner proves, and what everybody verifies, of one segment of its ciphertexts (docs/proofs/proved-bounds.md).

A proof is made once and stored; a retry sends what was stored.
"""

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving import code
from commingle.shared.proving.ciphertexts import SQUARES, Ciphertexts
from commingle.shared.proving.columns import Columns
from commingle.shared.proving.prover import prove_relations
from commingle.shared.proving.squares import four_squares
from commingle.shared.proving.verifier import verify_relations
from commingle.shared.ring.encryption import SecretKey, within_limits
from commingle.shared.ring.errors import DomainError
from commingle.shared.ring.randomness import Entropy
from commingle.shared.ring.residues import Residues, to_coefficients


def prove_columns(statement: Columns, key: SecretKey, rows: NDArray[np.integer], entropy: Entropy) -> bytes:
    """A proof of the statement, which tells nothing else.

    Args:
        statement: about what this key encrypted.
        key: the owner's.
        rows: of the segment, (stop - start, d), as they were encrypted.
        entropy: private; only tests give others than the operating system's.

    Raises:
        DomainError: rows beyond 2^14 or the bound, or errors beyond what is drawn: the statement is false.
    """
    witness = column_witness(statement, key, rows)
    return prove_relations([statement], lambda _: witness, entropy)[0]


def verify_columns(statement: Columns, received: bytes) -> None:
    """Nothing, if the proof holds. It takes nobody's secrets.

    Raises:
        ProofError: it does not.
    """
    verify_relations([statement], [received])


def column_witness(statement: Columns, key: SecretKey, rows: NDArray[np.integer]) -> NDArray[np.int32]:
    """The matrix that makes the statement true, (rows, l): bits of the secret, errors, rows, and what fills them up.

    Raises:
        DomainError: there is none.
    """
    ciphertexts, length = statement.ciphertexts, statement.sizes.message
    secret, errors = opened_secrets(ciphertexts, key)
    return np.concatenate(
        [
            secret_bits(secret, length),
            *(
                filled_up(members, each.bound).reshape(-1, length).astype(np.int32)
                for members, each in zip(
                    (errors.reshape(1, -1, length), rows_in_groups(ciphertexts, rows)), statement.squares, strict=True
                )
            ),
        ]
    )


def opened_secrets(ciphertexts: Ciphertexts, key: SecretKey) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The secret, (N,), and all errors, the public key's first, (polynomials, N).

    Modulo the last prime a ciphertext holds no message, so that its errors are what its secret leaves of it.

    Raises:
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


def secret_bits(secret: NDArray[np.int64], length: int) -> NDArray[np.int32]:
    """Two rows of bits for each l ternary numbers, which are their sum less 1."""
    parts = secret.reshape(-1, 1, length)
    return np.concatenate([parts >= 0, parts >= 1], axis=1).reshape(-1, length).astype(np.int32)


def rows_in_groups(ciphertexts: Ciphertexts, rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """A segment's rows as the matrix has them, zeros where there are none: (groups, columns, l).

    Raises:
        DomainError: another shape, or entries beyond 2^14.
    """
    return ciphertexts.in_groups(within_limits(rows, (ciphertexts.count, ciphertexts.layout.columns)).astype(np.int64))


def filled_up(members: NDArray[np.int64], bound: int) -> NDArray[np.int64]:
    """By group and member, (groups, members, l), and behind them four numbers whose squares fill up the bound.

    Raises:
        DomainError: rows are beyond it.
    """
    missing = bound - (members**2).sum(axis=1)
    if missing.min() < 0:
        raise DomainError("rows are beyond their bound")
    filling = four_squares(missing.ravel()).reshape(SQUARES, *missing.shape)
    return np.concatenate([members, filling.transpose(1, 0, 2)], axis=1)


def _centred(numbers: Residues, prime: int) -> NDArray[np.int64]:
    signed = numbers.astype(np.int64)
    return np.where(signed > prime // 2, signed - prime, signed)
