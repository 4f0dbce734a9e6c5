"""What a party uploads after the exchange: its shares, its mask and its noise in one block (p x d).

For i before j, with A, C of the deal, U = X - A, E noise and M a mask that only the two know:
i submits A_i^T U_j + C_i + E_i + M (transposed, in its own columns), j submits U_i^T X_j + C_j + E_j - M.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from commingle.shared.mechanisms.moments.block import places
from commingle.shared.mechanisms.moments.exchange.agreement import Agreement
from commingle.shared.mechanisms.moments.exchange.deal import Hand
from commingle.shared.mechanisms.moments.exchange.ring import Pad, Rows, Words, added, inner, side_by_side
from commingle.shared.mechanisms.moments.exchange.sealing import RoundKey
from commingle.shared.mechanisms.moments.exchange.terms import Exchange


def share(exchange: Exchange, *, party: str, hand: Hand, masked: Mapping[str, Rows]) -> Words:
    """The block before noise and mask: linear terms, own block, share of every cross block. Secret.

    Args:
        exchange: spec and approvals.
        party: whose block it is.
        hand: what the deal gave it.
        masked: every party's U, its own too, commitments checked.
    """
    spec = exchange.spec.document
    place = exchange.parties.index(party)
    own = added(masked[party], hand.pad)
    before = [_constant(2**spec.fraction_bits), *(masked[name] for name in exchange.parties[:place]), own]
    after = [masked[name] for name in exchange.parties[place + 1 :]]
    # 2^f 1^T X_j, U_i^T X_j and X_j^T X_j, then U_i^T A_j
    block = inner(side_by_side(before), own, spec.n)
    if after:
        block = np.vstack([block, inner(side_by_side(after), hand.pad, spec.n)])
    for name, shared in hand.shares.items():
        block[places(spec)[name]] += shared
    return block


def mask(exchange: Exchange, *, party: str, key: RoundKey, agreement: Agreement) -> Words:
    """What hides the cross shares from the coordinator until both are added: p x d, zero elsewhere."""
    spec = exchange.spec.document
    block = np.zeros((len(spec.columns), exchange.columns(party)), np.uint64)
    place = exchange.parties.index(party)
    for index, name in enumerate(exchange.parties):
        if name == party:
            continue
        secret, rows = key.agree(exchange.round_key(name)), places(spec)[name]
        if index < place:
            block[rows] -= _pairwise(exchange, name, party, secret, agreement)
        else:
            block[rows] += _pairwise(exchange, party, name, secret, agreement).T
    return block


def submission(share: Words, mask: Words, noise: NDArray[np.int64]) -> NDArray[np.int64]:
    """The block that is signed and uploaded: the sum mod 2^64, read as signed. Stored before it is sent, made once."""
    return (share + mask + noise.astype(np.uint64)).astype(np.int64)


def _pairwise(exchange: Exchange, first: str, second: str, secret: bytes, agreement: Agreement) -> Words:
    """M of a pair, d_first x d_second."""
    info, salt = exchange.info("pairwise-mask", first, second), bytes.fromhex(agreement.transcript)
    pad = Pad(secret, info=info, columns=exchange.columns(second), salt=salt)
    return pad(0, exchange.columns(first))


def _constant(value: int) -> Rows:
    return lambda start, stop: np.full((stop - start, 1), value, np.uint64)
