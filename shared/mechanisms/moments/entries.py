"""Where the entries of published moments stand, their noise, and its variances (docs/proofs/moments.md).

The matrix M is p x p in steps of 4^-f; a party's columns and rows are next to each other, in the order of the spec. A
party's columns hold its linear terms in row 0, its own block, and in the rows of every party after it their cross
block; the rows of parties before it are 0. So S_hat[i, j] = M[i, j] + M[j, i]^T. The intercept, encoded 2^f, is a party
of its own with nothing but n 4^f in row 0.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.spec import AnyParty, AnyRelease, ReleaseSpec
from commingle.shared.dp.noise import Sampler
from commingle.shared.mechanisms.moments.allocation import scales


def width(spec: AnyRelease) -> int:
    """The published columns, p."""
    return first_place(spec) + sum(len(party.columns) for party in spec.parties)


def step(spec: AnyRelease) -> float:
    """The published value is integer * step: 4^-f."""
    return 0.25**spec.fraction_bits


def first_place(spec: AnyRelease) -> int:
    """Where the parties' columns begin: after the intercept, which keyed subjects have none of."""
    return 0 if spec.keyed else 1


def places(spec: AnyRelease) -> dict[str, slice]:
    """Where each party's columns stand among all p, and its rows too."""
    found, start = {}, first_place(spec)
    for party in spec.parties:
        found[party.name] = slice(start, start + len(party.columns))
        start += len(party.columns)
    return found


def block_noise(
    spec: AnyRelease, party: AnyParty, *, sigma: int, draw: Sampler, others: Collection[str]
) -> NDArray[np.int64]:
    """A party's noise (p x d), every entry at its scale: linear terms, own block (symmetric), rows of the others.

    The rest is 0. `draw` is asked for each of them in turn.
    """
    scale, at, d = scales(spec, party, sigma), places(spec), len(party.columns)
    block = np.zeros((width(spec), d), np.int64)
    for name in others:
        block[at[name]] = cross_noise(spec, party, at[name].stop - at[name].start, sigma=sigma, draw=draw)
    for row in block[: first_place(spec)]:
        row[:] = draw(scale.linear, d)
    symmetric = np.diag(draw(scale.diagonal, d))
    upper = np.triu_indices(d, 1)
    symmetric[upper] = draw(scale.off_diagonal, len(upper[0]))
    symmetric.T[upper] = symmetric[upper]
    block[at[party.name]] = symmetric
    return block


def cross_noise(spec: AnyRelease, party: AnyParty, rows: int, *, sigma: int, draw: Sampler) -> NDArray[np.int64]:
    """The noise of a party for its cross block with another that has so many columns: (rows x d)."""
    d = len(party.columns)
    return draw(scales(spec, party, sigma).cross, rows * d).reshape(rows, d)


def open_matrix(spec: ReleaseSpec, matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """S_hat in steps (p x p) from M, mod 2^64 and read as signed."""
    words = matrix.astype(np.uint64)
    opened = words + words.T
    for own in (slice(0, first_place(spec)), *places(spec).values()):
        opened[own, own] = words[own, own]
    return opened.astype(np.int64)


def entry_variances(spec: AnyRelease, sigmas: Sequence[int]) -> NDArray[np.float64]:
    """Variances (p x p) of the noise of S_hat, in encoded units: a cross entry carries both parties' noise."""
    shares = np.zeros((width(spec), width(spec)))
    own_blocks = np.zeros_like(shares)
    parties: Sequence[AnyParty] = spec.parties
    for party, sigma in zip(parties, sigmas, strict=True):
        scale, own = scales(spec, party, sigma), places(spec)[party.name]
        shares[:, own] = float(scale.cross) ** 2
        shares[: first_place(spec), own] = float(scale.linear) ** 2
        shares[own, own] = 0
        own_blocks[own, own] = float(scale.off_diagonal) ** 2
        np.fill_diagonal(own_blocks[own, own], float(scale.diagonal) ** 2)
    variances: NDArray[np.float64] = (shares + shares.T + own_blocks) * step(spec) ** 2
    return variances
