"""DGM: plain Gaussian noise on every row (protocol.md section 4). Released: Q + N, n x d."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.mechanisms.answers import Moments
from commingle.shared.mechanisms.rows.rowwise import moments_of_rows, row_sensitivity, uniform_noise


class Placement:
    """Rows put at their rank."""

    def __init__(self, *, n: int, d: int) -> None:
        self._block = np.zeros((n, d), np.int64)

    def add(self, ranks: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Take rows (m x d) of the subjects with these ranks (m)."""
        self._block[ranks] = rows

    def total(self) -> NDArray[np.int64]:
        """N x d."""
        return self._block


def rows(spec: ReleaseSpec) -> int:
    """One per subject."""
    return spec.n


def squared_sensitivity(spec: ReleaseSpec, party: PartySpec, adjacency: Adjacency) -> int:
    """A subject's row stands in the block once."""
    return row_sensitivity(spec, party, adjacency)


def step(spec: ReleaseSpec) -> float:  # noqa: ARG001 - the same question is put to every mechanism
    """1 / 2^f."""
    return 1 / SCALE


def intercept(spec: ReleaseSpec) -> NDArray[np.int64]:
    """Ones, in steps."""
    return np.full(spec.n, SCALE, np.int64)


def mixer(spec: ReleaseSpec, columns: int) -> Placement:
    """Nothing is mixed."""
    return Placement(n=spec.n, d=columns)


def noise(spec: ReleaseSpec, party: PartySpec, *, sigma: int, draw: Sampler) -> NDArray[np.int64]:
    """Of one scale."""
    return uniform_noise(spec.n, party, sigma=sigma, draw=draw)


def moments(spec: ReleaseSpec, sigmas: Sequence[int], matrix: NDArray[np.int64]) -> Moments:
    """Those of the published rows."""
    return moments_of_rows(spec, sigmas, matrix, step=step(spec))
