"""RMGM: random mixing, then Gaussian noise (Wu et al. 2022; protocol.md sections 3, 4 and 8).

Released: S Q + N, k x d. Changing one subject moves one column's multiple of S, whose squared norm is k.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.mechanisms.answers import Moments
from commingle.shared.mechanisms.rows.projection import Projection, ones_projection
from commingle.shared.mechanisms.rows.rowwise import moments_of_rows, row_sensitivity, uniform_noise


def rows(spec: ReleaseSpec) -> int:
    """K."""
    return spec.k or 0


def squared_sensitivity(spec: ReleaseSpec, party: PartySpec, adjacency: Adjacency) -> int:
    """||S e_i||^2 = k times that of one row."""
    return rows(spec) * row_sensitivity(spec, party, adjacency)


def step(spec: ReleaseSpec) -> float:
    """1 / (sqrt(k) 2^f)."""
    return 1 / (sqrt(rows(spec)) * SCALE)


def intercept(spec: ReleaseSpec) -> NDArray[np.int64]:
    """B 1 in steps: 2^f S 1."""
    return ones_projection(bytes.fromhex(spec.seed), rows(spec), spec.n) * SCALE


def mixer(spec: ReleaseSpec, columns: int) -> Projection:
    """The seeded Bernoulli projection."""
    return Projection(seed=bytes.fromhex(spec.seed), k=rows(spec), d=columns)


def noise(spec: ReleaseSpec, party: PartySpec, *, sigma: int, draw: Sampler) -> NDArray[np.int64]:
    """Of one scale."""
    return uniform_noise(rows(spec), party, sigma=sigma, draw=draw)


def moments(spec: ReleaseSpec, sigmas: Sequence[int], matrix: NDArray[np.int64]) -> Moments:
    """Those of the published rows."""
    return moments_of_rows(spec, sigmas, matrix, step=step(spec))
