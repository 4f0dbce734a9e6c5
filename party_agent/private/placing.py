"""Rows of a party in the order of their places, in bounded memory: in windows of places, on disk under a key."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.private.scratch import SealedScratch
from commingle.shared.mechanisms.interface import Names
from commingle.shared.mechanisms.moments.keyed import Buckets, buckets_of

_WINDOW_ROWS = 1 << 17
_ENTRY = np.dtype("<i4")
_NAME = 8
"""Entries of a pseudonym."""


class _Windows:
    """Rows of entries of 32 bits, by the window that their place is in."""

    def __init__(self, places: int) -> None:
        self._places, self._scratch = places, SealedScratch()
        self._pieces = defaultdict[int, list[int]](list)

    def put(self, places: NDArray[np.integer], entries: NDArray[np.integer]) -> None:
        """Rows (m x w) of these places (m)."""
        windows = places // _WINDOW_ROWS
        for window in np.unique(windows).tolist():
            piece = np.ascontiguousarray(entries[windows == window], _ENTRY)
            self._pieces[window].append(self._scratch.append(piece.tobytes()))

    def each(self, width: int) -> Iterator[tuple[range, Iterator[NDArray[np.int32]]]]:
        """Every window, and what is in it as it was put there, (m x width)."""
        for window, start in enumerate(range(0, self._places, _WINDOW_ROWS)):
            pieces = (np.frombuffer(self._scratch.read(number), _ENTRY) for number in self._pieces[window])
            own = range(start, min(start + _WINDOW_ROWS, self._places))
            yield own, (piece.reshape(-1, width) for piece in pieces)


class PlacedRows:
    """Takes rows with their ranks in any order, each rank once, and gives them back by rank.

    Args:
        n: rows.
        d: columns.
    """

    def __init__(self, *, n: int, d: int) -> None:
        self._d, self._windows = d, _Windows(n)

    def add(self, names: Names, rows: NDArray[np.integer]) -> None:
        """Rows (m x d) of these ranks (m), entries of 32 bits."""
        self._windows.put(names, np.column_stack([names, rows]))

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """All n rows, 2^17 at a time; zeros where there was none."""
        for window, pieces in self._windows.each(1 + self._d):
            placed = np.zeros((len(window), self._d), np.int64)
            for piece in pieces:
                placed[piece[:, 0] - window.start] = piece[:, 1:]
            yield placed


class PlacedBuckets:
    """Takes rows of keyed subjects in any order, and gives what is in their buckets, as `Buckets` does.

    Args:
        count: of buckets.
        d: columns.
    """

    def __init__(self, *, count: int, d: int) -> None:
        self._count, self._d, self._windows = count, d, _Windows(count)

    def add(self, names: Names, rows: NDArray[np.integer]) -> None:
        """Rows (m x d) of the subjects with these pseudonyms (m, 32), entries of 32 bits."""
        whole = np.ascontiguousarray(names, np.uint8)
        entries = np.column_stack([whole.view(_ENTRY).reshape(-1, _NAME), rows])
        self._windows.put(buckets_of(whole, self._count), entries)

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """All buckets, 2^17 at a time."""
        for window, pieces in self._windows.each(_NAME + self._d):
            buckets = Buckets(count=self._count, d=self._d, window=window)
            for piece in pieces:
                names = np.ascontiguousarray(piece[:, :_NAME]).view(np.uint8).reshape(-1, 4 * _NAME)
                buckets.add(names, piece[:, _NAME:].astype(np.int64))
            yield buckets.total()
