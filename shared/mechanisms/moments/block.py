"""Moments: S + noise itself, S = A^T A of intercept and all attributes (docs/proofs/moments.md).

The matrix M is p x p in steps of 4^-f. A party's columns hold its linear terms in row 0, its own block, and in the rows
of every other party its masked share of their cross block; the share of one lies across the diagonal from the other's:
S_hat[i, j] = M[i, j] + M[j, i]^T mod 2^64. The intercept, encoded 2^f, is a party of its own whose shares are 0.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.errors import VerificationError
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.dp.accounting import SIGMA_LIMIT, Rho
from commingle.shared.dp.first_stage import MOMENTS_ARE_NOISY
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.mechanisms.interface import Mechanism, MomentsEstimate, Placement, PublicRelease
from commingle.shared.mechanisms.moments.allocation import block_sensitivity, scales
from commingle.shared.mechanisms.moments.outsiders import outsider_loss

TRUST_MOMENTS = (
    "Computational privacy: until the noise is in place, cryptography hides the rows. The coordinator together with "
    "any one party could recover every other party's raw table. A party that breaks the agreed bounds on its own rows, "
    "which nobody else can check, could read one exact row of every other party for each column it holds. Otherwise: "
    "curious parties, even all of them together, learn no more than the published noisy moments."
)
_TRUST_BEFORE = (
    "The coordinator together with any one party could recover every other party's raw table. Each party must also "
    "keep its own rows within the agreed bounds; nobody else can check that. Otherwise: curious parties, even all of "
    "them together, learn no more than the published noisy moments."
)
TAIL = 13
"""Standard deviations beyond which noise does not reach: probability below 2 exp(-13^2 / 2) < 1e-36 per entry."""
_WORD_LIMIT = 1 << 63


class NoisyMoments(Mechanism):
    """Published: second moments, put together from shares."""

    fraction_bits = 14
    interactive = True
    of_rows = False
    publishes = "noisy moments"
    trust = TRUST_MOMENTS
    share = 0.15
    least_signal = 1.0
    radius = MOMENTS_ARE_NOISY
    earlier_trust = (_TRUST_BEFORE,)
    fit_address = "commingle.shared.mechanisms.moments.fit:NOISY_MOMENTS"
    planner_address = "commingle.shared.mechanisms.moments.forecast:NOISY_MOMENTS"

    def problems(self, spec: ReleaseSpec) -> list[str]:
        """That an entry would not fit a word, besides."""
        found = super().problems(spec)
        if spec.n * 4**spec.fraction_bits + 2 * TAIL * SIGMA_LIMIT >= _WORD_LIMIT:
            found.append(f"{spec.n} subjects are too many for 64-bit second moments")
        return found

    def rows(self, spec: ReleaseSpec) -> int:
        """One per published column."""
        return _width(spec)

    def squared_sensitivity(self, spec: ReleaseSpec, party: PartySpec, adjacency: Adjacency) -> int:
        """That of own block, linear terms and cross blocks together, as weighted."""
        return block_sensitivity(spec, party, adjacency)

    def outsider_loss(self, spec: ReleaseSpec, sigmas: Sequence[int], adjacency: Adjacency) -> Rho:
        """Less than the sum: cross entries reach outsiders with the noise of two parties."""
        return min(super().outsider_loss(spec, sigmas, adjacency), outsider_loss(spec, sigmas, adjacency))

    def step(self, spec: ReleaseSpec) -> float:
        """4^-f."""
        return _step(spec)

    def intercept(self, spec: ReleaseSpec) -> NDArray[np.int64]:
        """In row 0 n 4^f, then nothing: the linear terms stand in the parties' columns."""
        column = np.zeros(_width(spec), np.int64)
        column[0] = spec.n * 4**spec.fraction_bits
        return column

    def accumulator(self, spec: ReleaseSpec, columns: int) -> Placement:
        """The rows X (n x d) themselves, which are masked and exchanged before there is a block."""
        return Placement(n=spec.n, d=columns)

    def noise(self, spec: ReleaseSpec, party: PartySpec, *, sigma: int, draw: Sampler) -> NDArray[np.int64]:
        """Of every entry at its scale; that of the own block is symmetric."""
        scale, own, d = scales(spec, party, sigma), places(spec)[party.name], len(party.columns)
        block = draw(scale.cross, _width(spec) * d).reshape(_width(spec), d)
        block[0] = draw(scale.linear, d)
        symmetric = np.diag(draw(scale.diagonal, d))
        upper = np.triu_indices(d, 1)
        symmetric[upper] = draw(scale.off_diagonal, len(upper[0]))
        symmetric.T[upper] = symmetric[upper]
        block[own] = symmetric
        return block

    def moments(self, spec: ReleaseSpec, sigmas: Sequence[int], matrix: NDArray[np.int64]) -> MomentsEstimate:
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
        return MomentsEstimate(
            gram=opened.astype(np.float64) * _step(spec),
            noise_variance=(0.0,) * len(opened),
            rows=spec.n,
            entry_variance=entry_variances(spec, sigmas),
        )


MOMENTS = NoisyMoments()


def _width(spec: PublicRelease) -> int:
    """The published columns, p."""
    return 1 + sum(len(party.columns) for party in spec.parties)


def _step(spec: PublicRelease) -> float:
    return 0.25**spec.fraction_bits


def places(spec: PublicRelease) -> dict[str, slice]:
    """Where each party's columns stand among all p, and its rows too."""
    found, start = {}, 1
    for party in spec.parties:
        found[party.name] = slice(start, start + len(party.columns))
        start += len(party.columns)
    return found


def open_matrix(spec: ReleaseSpec, matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """S_hat in steps (p x p) from the shares in M, mod 2^64 and read as signed."""
    words = matrix.astype(np.uint64)
    opened = words + words.T
    for own in (slice(0, 1), *places(spec).values()):
        opened[own, own] = words[own, own]
    return opened.astype(np.int64)


def entry_variances(spec: PublicRelease, sigmas: Sequence[int]) -> NDArray[np.float64]:
    """Of the noise of each entry of S_hat (p x p), in encoded units: a cross entry carries both parties' noise."""
    shares = np.zeros((_width(spec), _width(spec)))
    own_blocks = np.zeros_like(shares)
    for party, sigma in zip(spec.parties, sigmas, strict=True):
        scale, own = scales(spec, party, sigma), places(spec)[party.name]
        shares[:, own] = float(scale.cross) ** 2
        shares[0, own] = float(scale.linear) ** 2
        shares[own, own] = 0
        own_blocks[own, own] = float(scale.off_diagonal) ** 2
        np.fill_diagonal(own_blocks[own, own], float(scale.diagonal) ** 2)
    variances: NDArray[np.float64] = (shares + shares.T + own_blocks) * _step(spec) ** 2
    return variances
