"""What rmgm and dgm share: blocks are (mixed) rows plus independent noise of one scale."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.dp.noise import Sampler
from commingle.shared.mechanisms.interface import Mechanism, MomentsEstimate

_ROWS_AT_ONCE = 1 << 16


class RowMechanism(Mechanism):
    """Publishes rows; how many, and what each is made of, is up to the subclass."""

    def noise(self, spec: ReleaseSpec, party: PartySpec, *, sigma: int, draw: Sampler) -> NDArray[np.int64]:
        """Independent noise of one scale (rows x d)."""
        rows, columns = self.rows(spec), len(party.columns)
        return draw(sigma, rows * columns).reshape(rows, columns)

    def moments(self, spec: ReleaseSpec, sigmas: Sequence[int], matrix: NDArray[np.int64]) -> MomentsEstimate:
        """G = P^T P of the published rows P = step M, the intercept first and without noise."""
        step = self.step(spec)
        noise = [0.0]
        for party, sigma in zip(spec.parties, sigmas, strict=True):
            noise += [(sigma * step) ** 2] * len(party.columns)
        return MomentsEstimate(gram=_gram(matrix, step), noise_variance=tuple(noise), rows=len(matrix))


def _gram(matrix: NDArray[np.int64], step: float) -> NDArray[np.float64]:
    """(step M)^T (step M) for integers M (rows x p), a block of rows at a time."""
    total = np.zeros((matrix.shape[1], matrix.shape[1]))
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        part = matrix[start : start + _ROWS_AT_ONCE] * step
        total += part.T @ part
    return total
