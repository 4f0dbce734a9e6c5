"""Second moments of a release: all that fits need, computed once (estimation.md, second moments)."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from shared.protocol.documents import Count, Digest, WireModel
from shared.protocol.mechanisms import mechanism_of
from shared.protocol.plan import plan_blocks
from shared.protocol.spec import MechanismName, ReleaseSpec


class SecondMoments(WireModel):
    """An estimate G of S = A^T A of the n encoded rows, in encoded units, and what noise is in it.

    E[G] = S + rows * diag(noise_variance). For rmgm and dgm G = P^T P of the published matrix P (rows x p); for moments
    it is S plus noise.

    Attributes:
        columns: p names, the intercept first.
        gram: p x p, symmetric.
        noise_variance: p variances of one entry's noise in P, 0 for the intercept; all 0 for moments.
        rows: k for rmgm, n for dgm and moments.
        n: subjects.
        entry_variance: p x p variances of the noise of the entries of G, 0 for exact ones; None for rmgm and dgm.
    """

    type: Literal["commingle/moments"] = "commingle/moments"
    version: Literal[1] = 1
    release: Digest
    mechanism: MechanismName
    columns: tuple[str, ...]
    gram: tuple[tuple[float, ...], ...]
    noise_variance: tuple[Annotated[float, Field(ge=0)], ...]
    rows: Count
    n: Count
    entry_variance: tuple[tuple[Annotated[float, Field(ge=0)], ...], ...] | None = None


def second_moments(spec: ReleaseSpec, release: str, matrix: NDArray[np.int64]) -> SecondMoments:
    """The moments of an assembled matrix (integers, the intercept first).

    Raises:
        VerificationError: no honest blocks make such a matrix.
    """
    found = mechanism_of(spec).moments(spec, [plan.sigma for plan in plan_blocks(spec)], matrix)
    return SecondMoments(
        release=release,
        mechanism=spec.mechanism,
        columns=tuple(column.name for column in spec.columns),
        gram=_rows(found.gram),
        noise_variance=found.noise_variance,
        rows=found.rows,
        n=spec.n,
        entry_variance=None if found.entry_variance is None else _rows(found.entry_variance),
    )


def _rows(matrix: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())
