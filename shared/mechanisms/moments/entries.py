"""Where the entries of published moments stand, their noise, and its variances (docs/proofs/moments.md).

The matrix M is p x p in steps of 4^-f; a party's columns and rows are next to each other, in their order. A
party's columns hold its linear terms in row 0, its own block, and in the rows of every party after it their cross
block; the rows of parties before it are 0. So S_hat[i, j] = M[i, j] + M[j, i]^T. The intercept, encoded 2^f, is a party
of its own with nothing but n 4^f in row 0.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.terms import PartyTerms, Terms
from commingle.shared.dp.noise import Sampler
from commingle.shared.mechanisms.moments.allocation import scales


def width(terms: Terms) -> int:
    """The published columns, p."""
    return first_place(terms) + sum(terms.widths.values())


def step(terms: Terms) -> float:
    """The published value is integer * step: 4^-f."""
    return 0.25**terms.fraction_bits


def first_place(terms: Terms) -> int:
    """Where the parties' columns begin: after the intercept, which keyed subjects have none of."""
    return 0 if terms.keyed else 1


def places(terms: Terms) -> dict[str, slice]:
    """Where each party's columns stand among all p, and its rows too."""
    found, start = {}, first_place(terms)
    for name, d in terms.widths.items():
        found[name] = slice(start, start := start + d)
    return found


def block_noise(
    terms: Terms, party: PartyTerms, *, sigma: int, draw: Sampler, others: Collection[str]
) -> NDArray[np.int64]:
    """A party's noise (p x d), every entry at its scale: linear terms, own block (symmetric), rows of the others.

    The rest is 0. `draw` is asked for each of them in turn.
    """
    scale, at, d = scales(terms, party, sigma), places(terms), terms.widths[party.name]
    block = np.zeros((width(terms), d), np.int64)
    for name in others:
        block[at[name]] = cross_noise(terms, party, at[name].stop - at[name].start, sigma=sigma, draw=draw)
    for row in block[: first_place(terms)]:
        row[:] = draw(scale.linear, d)
    symmetric = np.diag(draw(scale.diagonal, d))
    upper = np.triu_indices(d, 1)
    symmetric[upper] = draw(scale.off_diagonal, len(upper[0]))
    symmetric.T[upper] = symmetric[upper]
    block[at[party.name]] = symmetric
    return block


def cross_noise(terms: Terms, party: PartyTerms, rows: int, *, sigma: int, draw: Sampler) -> NDArray[np.int64]:
    """The noise of a party for its cross block with another that has so many columns: (rows x d)."""
    d = terms.widths[party.name]
    return draw(scales(terms, party, sigma).cross, rows * d).reshape(rows, d)


def open_matrix(terms: Terms, matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """S_hat in steps (p x p) from M, mod 2^64 and read as signed."""
    words = matrix.astype(np.uint64)
    opened = words + words.T
    for own in (slice(0, first_place(terms)), *places(terms).values()):
        opened[own, own] = words[own, own]
    return opened.astype(np.int64)


def entry_variances(terms: Terms, sigmas: Sequence[int]) -> NDArray[np.float64]:
    """Variances (p x p) of the noise of S_hat, in encoded units: a cross entry carries both parties' noise."""
    shares = np.zeros((width(terms), width(terms)))
    own_blocks = np.zeros_like(shares)
    for party, sigma in zip(terms.parties, sigmas, strict=True):
        scale, own = scales(terms, party, sigma), places(terms)[party.name]
        shares[:, own] = float(scale.cross) ** 2
        shares[: first_place(terms), own] = float(scale.linear) ** 2
        shares[own, own] = 0
        own_blocks[own, own] = float(scale.off_diagonal) ** 2
        np.fill_diagonal(own_blocks[own, own], float(scale.diagonal) ** 2)
    variances: NDArray[np.float64] = (shares + shares.T + own_blocks) * step(terms) ** 2
    return variances
