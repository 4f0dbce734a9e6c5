"""What every sum of mixed rows Y = S Q has in common: shapes, and the range in which it is exact."""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from commingle.shared.errors import MixingError
from commingle.shared.mechanisms.rows.signs import name_words

MAX_ABS_ENTRY = 2**15
MAX_SUBJECTS = 2**53 // MAX_ABS_ENTRY
_BATCH = 2**16  # subjects per call in ones_projection


class MixedRows(ABC):
    """Accumulates Y = S Q, (k, d), over batches of rows of Q; memory does not grow with the number of rows.

    Y is a function of the (name, row) pairs alone (docs/proofs/projection.md, 2). Each name must occur once, for which
    the caller vouches. One caller at a time.

    Args:
        k: rows of S, >= 1.
        d: columns of Q, >= 1.

    Raises:
        MixingError: an argument is out of range.
    """

    def __init__(self, k: int, d: int) -> None:
        if k < 1 or d < 1:
            raise MixingError(f"a projection has k >= 1 rows and d >= 1 columns, got k={k} and d={d}")
        self._k = k
        self._d = d
        self._subjects = 0

    def add(self, names: NDArray[np.integer], q: NDArray[np.integer]) -> None:
        """Add m rows: `q` is (m, d) with |q| <= 2^15, row i belongs to the subject of that rank or pseudonym.

        Raises:
            MixingError: shapes, types or ranges are wrong; nothing was added.
        """
        name_words(names)  # what it refuses, before anything is added
        self._check(q, len(names))
        self._subjects += len(names)
        self._add(names, q)

    @abstractmethod
    def total(self) -> NDArray[np.int64]:
        """Y of everything added so far, (k, d)."""

    @abstractmethod
    def _add(self, names: NDArray[np.integer], q: NDArray[np.integer]) -> None:
        """Add rows that have been checked."""

    def _check(self, q: NDArray[np.integer], subjects: int) -> None:
        expected = (subjects, self._d)
        if q.shape != expected or not np.issubdtype(q.dtype, np.integer):
            raise MixingError(f"expected integers of shape {expected}, got {q.dtype} of shape {q.shape}")
        if q.size and (int(q.min()) < -MAX_ABS_ENTRY or int(q.max()) > MAX_ABS_ENTRY):
            raise MixingError(f"an entry exceeds {MAX_ABS_ENTRY} in magnitude; the projection would not be exact")
        if self._subjects + subjects > MAX_SUBJECTS:
            raise MixingError(f"more than {MAX_SUBJECTS} rows; the projection would not be exact")


def ones_projection(projection: MixedRows, n: int) -> NDArray[np.int64]:
    """S 1 over ranks 0..n-1, (k,): the public intercept column of docs/design/encoding.md#intercept, free of noise.

    Args:
        projection: an empty one, of one column.
        n: subjects.
    """
    if n < 0:
        raise MixingError(f"there cannot be {n} subjects")
    for start in range(0, n, _BATCH):
        ranks = np.arange(start, min(start + _BATCH, n), dtype=np.int64)
        projection.add(ranks, np.ones((len(ranks), 1), dtype=np.int64))
    return projection.total()[:, 0]
