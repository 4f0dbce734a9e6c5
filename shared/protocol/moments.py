"""Second moments of a release: all that fits need, computed once (estimation.md, second moments)."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from shared.protocol.documents import Count, Digest, WireModel
from shared.protocol.mechanisms import mechanism_of
from shared.protocol.plan import plan_blocks
from shared.protocol.spec import ReleaseSpec

_ROWS_AT_ONCE = 1 << 16


class SecondMoments(WireModel):
    """G = P^T P of the published matrix P (rows x p), in encoded units, and what noise is in it.

    E[G] = S + rows * diag(noise_variance), where S = A^T A of the n encoded rows.

    Attributes:
        columns: p names, the intercept first.
        gram: p x p, symmetric.
        noise_variance: p variances of one entry's noise, 0 for the intercept.
        rows: k for rmgm, n for dgm.
        n: subjects.
    """

    type: Literal["commingle/moments"] = "commingle/moments"
    version: Literal[1] = 1
    release: Digest
    mechanism: Literal["rmgm", "dgm"]
    columns: tuple[str, ...]
    gram: tuple[tuple[float, ...], ...]
    noise_variance: tuple[Annotated[float, Field(ge=0)], ...]
    rows: Count
    n: Count


def gram(matrix: NDArray[np.int64], step: float) -> NDArray[np.float64]:
    """(step M)^T (step M) for integers M (rows x p), a block of rows at a time."""
    total = np.zeros((matrix.shape[1], matrix.shape[1]))
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        part = matrix[start : start + _ROWS_AT_ONCE] * step
        total += part.T @ part
    return total


def second_moments(spec: ReleaseSpec, release: str, matrix: NDArray[np.int64]) -> SecondMoments:
    """The moments of an assembled matrix (rows x p integers, the intercept first)."""
    step = mechanism_of(spec).step(spec)
    noise = [0.0]
    for plan in plan_blocks(spec):
        noise += [(plan.sigma * step) ** 2] * len(plan.columns)
    return SecondMoments(
        release=release,
        mechanism=spec.mechanism,
        columns=tuple(column.name for column in spec.columns),
        gram=tuple(tuple(row) for row in gram(matrix, step).tolist()),
        noise_variance=tuple(noise),
        rows=len(matrix),
        n=spec.n,
    )
