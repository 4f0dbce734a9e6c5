"""What a party uploads after the exchange (p x d): its own block, and its cross blocks with the parties after it.

A cross block is in the columns of the party that comes first, with the noise of both; the rows of parties before it are
zero in a party's columns. So M + M^T is the release, and nothing needs to be unmasked.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from commingle.shared.dp.noise import Sampler
from commingle.shared.mechanisms.moments.entries import block_noise, first_place, places
from commingle.shared.mechanisms.moments.exchange.products import Rows
from commingle.shared.mechanisms.moments.exchange.terms import Exchange

_ROWS = 1 << 14  # 2^14 products of 2^28 at most: exact in floating point


def own_moments(exchange: Exchange, *, party: str, rows: Rows) -> NDArray[np.int64]:
    """Linear terms 2^f 1^T X, where there is an intercept, then X^T X: exact and without noise. Secret."""
    spec = exchange.spec.document
    d = exchange.columns(party)
    linear, own = np.zeros(d, np.int64), np.zeros((d, d), np.int64)
    for start in range(0, spec.table_rows, _ROWS):
        block = rows(start, min(start + _ROWS, spec.table_rows)).astype(np.float64)
        own += (block.T @ block).astype(np.int64)
        linear += block.sum(axis=0).astype(np.int64)
    return own if spec.keyed else np.vstack([linear << spec.fraction_bits, own])


def submission(
    exchange: Exchange,
    *,
    party: str,
    moments: NDArray[np.int64],
    opened: Mapping[str, NDArray[np.int64]],
    sigma: int,
    draw: Sampler,
) -> NDArray[np.int64]:
    """The block that is signed and uploaded, noise added to every entry of it. Made once, and stored.

    Args:
        exchange: spec and approvals.
        party: whose block it is.
        moments: its `own_moments`.
        opened: by party after it, what `products.open_part` found.
        sigma: of the block.
        draw: sampler of Gaussian noise on a lattice, seeded by the operating system, after the debit.
    """
    spec = exchange.spec.document
    later = exchange.evaluators(party)
    block = block_noise(spec, spec.party(party), sigma=sigma, draw=draw, others=later)
    at = places(spec)
    first = first_place(spec)
    block[:first] += moments[:first]
    block[at[party]] += moments[first:]
    for name in later:
        block[at[name]] += opened[name].T
    return block
