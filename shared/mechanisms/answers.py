"""What a mechanism says about its published matrix."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Moments:
    """An estimate of S = A^T A of the n encoded rows, in encoded units: E[gram] = S + rows * diag(noise_variance).

    Attributes:
        gram: p x p, symmetric.
        noise_variance: p variances of the noise of one released row's entry.
        rows: of released rows that `gram` sums over.
        entry_variance: p x p variances of the noise of the entries of `gram`, where it was added to them.
    """

    gram: NDArray[np.float64]
    noise_variance: tuple[float, ...]
    rows: int
    entry_variance: NDArray[np.float64] | None = None
