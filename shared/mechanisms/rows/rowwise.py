"""What mechanisms share whose blocks are (mixed) rows plus independent noise of one scale."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.schema import EncodedColumn
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency, Geometry, squared_sensitivity
from commingle.shared.mechanisms.answers import Moments

_ROWS_AT_ONCE = 1 << 16


class PublicParty(Protocol):
    """What noise depends on of a party: a `PartySpec`, or the part of a release that is only being planned."""

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> tuple[EncodedColumn, ...]: ...
    @property
    def geometries(self) -> tuple[Geometry, ...] | None: ...
    @property
    def row_norm(self) -> float | None: ...


class PublicRelease(Protocol):
    """What noise depends on of a release besides sigma: a `ReleaseSpec`, or one that is only being planned."""

    @property
    def parties(self) -> Sequence[PublicParty]: ...
    @property
    def adjacency(self) -> Adjacency: ...
    @property
    def fraction_bits(self) -> int: ...


def row_sensitivity(spec: PublicRelease, party: PublicParty, adjacency: Adjacency) -> int:
    """Delta_q^2 of one integer row of that party (docs/proofs/sensitivity.md)."""
    return squared_sensitivity(
        party.geometries, row_norm=party.row_norm, adjacency=adjacency, fraction_bits=spec.fraction_bits
    )


def uniform_noise(rows: int, party: PartySpec, *, sigma: int, draw: Sampler) -> NDArray[np.int64]:
    """Independent noise of one scale (rows x d)."""
    columns = len(party.columns)
    return draw(sigma, rows * columns).reshape(rows, columns)


def gram(matrix: NDArray[np.int64], step: float) -> NDArray[np.float64]:
    """(step M)^T (step M) for integers M (rows x p), a block of rows at a time."""
    total = np.zeros((matrix.shape[1], matrix.shape[1]))
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        part = matrix[start : start + _ROWS_AT_ONCE] * step
        total += part.T @ part
    return total


def moments_of_rows(spec: ReleaseSpec, sigmas: Sequence[int], matrix: NDArray[np.int64], *, step: float) -> Moments:
    """G = P^T P of the published rows P = step M, the intercept first and without noise."""
    noise = [0.0]
    for party, sigma in zip(spec.parties, sigmas, strict=True):
        noise += [(sigma * step) ** 2] * len(party.columns)
    return Moments(gram=gram(matrix, step), noise_variance=tuple(noise), rows=len(matrix))
