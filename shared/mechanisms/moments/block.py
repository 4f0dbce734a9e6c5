"""Moments: S + noise itself, S = A^T A of intercept and all attributes (docs/proofs/moments.md).

The matrix M is p x p in steps of 4^-f. A party's columns hold its linear terms in row 0, its own block, and in the rows
of every other party its masked share of their cross block; the share of one lies across the diagonal from the other's:
S_hat[i, j] = M[i, j] + M[j, i]^T mod 2^64. The intercept, encoded 2^f, is a party of its own whose shares are 0.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.errors import VerificationError
from commingle.shared.documents.spec import TAIL, PartySpec, ReleaseSpec
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.mechanisms.answers import Moments
from commingle.shared.mechanisms.moments.allocation import block_sensitivity, scales
from commingle.shared.mechanisms.rows.dgm import Placement
from commingle.shared.mechanisms.rows.rowwise import PublicRelease


def rows(spec: PublicRelease) -> int:
    """One per published column."""
    return 1 + sum(len(party.columns) for party in spec.parties)


def squared_sensitivity(spec: ReleaseSpec, party: PartySpec, adjacency: Adjacency) -> int:
    """That of own block, linear terms and cross blocks together, as weighted."""
    return block_sensitivity(spec, party, adjacency)


def step(spec: PublicRelease) -> float:
    """4^-f."""
    return 0.25**spec.fraction_bits


def intercept(spec: ReleaseSpec) -> NDArray[np.int64]:
    """N 4^f, then nothing: the linear terms stand in the parties' columns."""
    column = np.zeros(rows(spec), np.int64)
    column[0] = spec.n * 4**spec.fraction_bits
    return column


def mixer(spec: ReleaseSpec, columns: int) -> Placement:
    """The rows X (n x d) themselves, which are masked and exchanged before there is a block."""
    return Placement(n=spec.n, d=columns)


def places(spec: PublicRelease) -> dict[str, slice]:
    """Where each party's columns stand among all p, and its rows too."""
    found, start = {}, 1
    for party in spec.parties:
        found[party.name] = slice(start, start + len(party.columns))
        start += len(party.columns)
    return found


def noise(spec: ReleaseSpec, party: PartySpec, *, sigma: int, draw: Sampler) -> NDArray[np.int64]:
    """Of every entry at its scale; that of the own block is symmetric."""
    scale, own, d = scales(spec, party, sigma), places(spec)[party.name], len(party.columns)
    block = draw(scale.cross, rows(spec) * d).reshape(rows(spec), d)
    block[0] = draw(scale.linear, d)
    symmetric = np.diag(draw(scale.diagonal, d))
    upper = np.triu_indices(d, 1)
    symmetric[upper] = draw(scale.off_diagonal, len(upper[0]))
    symmetric.T[upper] = symmetric[upper]
    block[own] = symmetric
    return block


def moments(spec: ReleaseSpec, sigmas: Sequence[int], matrix: NDArray[np.int64]) -> Moments:
    """S_hat and the variances of its noise.

    Raises:
        VerificationError: an own block is not symmetric, or an entry is farther out than data and noise can be.
    """
    opened = open_matrix(spec, matrix)
    reach = np.array([0, *np.repeat(np.array(sigmas, np.int64), [len(p.columns) for p in spec.parties])])
    limit = spec.n * 4**spec.fraction_bits + TAIL * (reach[:, None] + reach)
    if bool(np.any((opened > limit) | (opened < -limit))) or not np.array_equal(opened, opened.T):
        raise VerificationError(
            "the parties' shares do not add up to moments of such data",
            remedy="Do not use this release. The deal or a share was wrong; what was charged stays charged.",
        )
    return Moments(
        gram=opened.astype(np.float64) * step(spec),
        noise_variance=(0.0,) * len(opened),
        rows=spec.n,
        entry_variance=entry_variances(spec, sigmas),
    )


def open_matrix(spec: ReleaseSpec, matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """S_hat in steps (p x p) from the shares in M, mod 2^64 and read as signed."""
    words = matrix.astype(np.uint64)
    opened = words + words.T
    for own in (slice(0, 1), *places(spec).values()):
        opened[own, own] = words[own, own]
    return opened.astype(np.int64)


def entry_variances(spec: PublicRelease, sigmas: Sequence[int]) -> NDArray[np.float64]:
    """Of the noise of each entry of S_hat (p x p), in encoded units: a cross entry carries both parties' noise."""
    shares = np.zeros((rows(spec), rows(spec)))
    own_blocks = np.zeros_like(shares)
    for party, sigma in zip(spec.parties, sigmas, strict=True):
        scale, own = scales(spec, party, sigma), places(spec)[party.name]
        shares[:, own] = float(scale.cross) ** 2
        shares[0, own] = float(scale.linear) ** 2
        shares[own, own] = 0
        own_blocks[own, own] = float(scale.off_diagonal) ** 2
        np.fill_diagonal(own_blocks[own, own], float(scale.diagonal) ** 2)
    variances: NDArray[np.float64] = (shares + shares.T + own_blocks) * step(spec) ** 2
    return variances
