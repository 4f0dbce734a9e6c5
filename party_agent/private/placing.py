"""Rows of a party in the order of their ranks, in bounded memory: sorted into windows of ranks, on disk under a key."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.private.scratch import SealedScratch

_WINDOW_ROWS = 1 << 17
_ENTRY = np.dtype("<i4")


class PlacedRows:
    """Takes rows with their ranks in any order, each rank once, and gives them back by rank.

    Args:
        n: rows.
        d: columns.
    """

    def __init__(self, *, n: int, d: int) -> None:
        self._n, self._d, self._scratch = n, d, SealedScratch()
        self._pieces = defaultdict[int, list[int]](list)

    def add(self, ranks: NDArray[np.integer], rows: NDArray[np.integer]) -> None:
        """Rows (m x d) of these ranks (m), entries of 32 bits."""
        windows = ranks // _WINDOW_ROWS
        for window in np.unique(windows).tolist():
            own = windows == window
            piece = np.column_stack([ranks[own] - window * _WINDOW_ROWS, rows[own]]).astype(_ENTRY)
            self._pieces[window].append(self._scratch.append(piece.tobytes()))

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """All n rows, 2^17 at a time; zeros where there was none."""
        for window, start in enumerate(range(0, self._n, _WINDOW_ROWS)):
            placed = np.zeros((min(_WINDOW_ROWS, self._n - start), self._d), np.int64)
            for number in self._pieces[window]:
                piece = np.frombuffer(self._scratch.read(number), _ENTRY).reshape(-1, 1 + self._d)
                placed[piece[:, 0]] = piece[:, 1:]
            yield placed
