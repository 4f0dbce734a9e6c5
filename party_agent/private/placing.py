"""Rows of a party put in order in bounded memory: in windows, on disk under a key."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.private.scratch import SealedScratch
from commingle.shared.mechanisms.interface import Accumulator, Names

_WINDOW_ROWS = 1 << 17
_ENTRY = np.dtype("<i4")


class _Windows:
    """Named rows, each in a window."""

    def __init__(self) -> None:
        self._scratch, self._pieces = SealedScratch(), defaultdict[int, list[tuple[int, int]]](list)
        self._nobody: Names = np.empty(0, np.int64)

    def add(self, windows: NDArray[np.integer], names: Names, rows: NDArray[np.integer]) -> None:
        """Rows (m x d), entries of 32 bits, of the subjects with these names (m) and in these windows (m)."""
        self._nobody = names[:0]
        for window in np.unique(windows).tolist():
            chosen = windows == window
            number = self._scratch.append(names[chosen].tobytes() + rows[chosen].astype(_ENTRY).tobytes())
            self._pieces[window].append((number, names[chosen].nbytes))

    def of(self, window: int) -> Iterator[tuple[Names, NDArray[np.int32]]]:
        """What is in one, in the order in which it came."""
        for number, named in self._pieces[window]:
            held = memoryview(self._scratch.read(number))
            names = np.frombuffer(held[:named], self._nobody.dtype).reshape(-1, *self._nobody.shape[1:])
            rows = np.frombuffer(held[named:], _ENTRY).reshape(len(names), -1)
            yield cast("Names", names), rows


class PlacedRows:
    """Takes a party's rows in any order and gives what an `Accumulator` makes of all of them, some places at a time.

    Args:
        count: of all places.
        places: where rows of these names belong, as `Mechanism.places`.
        window: takes those of some places, as `Mechanism.window`.
    """

    def __init__(
        self, count: int, places: Callable[[Names], NDArray[np.int64]], window: Callable[[range], Accumulator]
    ) -> None:
        self._count, self._places, self._window, self._windows = count, places, window, _Windows()

    def add(self, names: Names, rows: NDArray[np.integer]) -> None:
        """Rows (m x d) of the subjects with these names (m), entries of 32 bits."""
        self._windows.add(self._places(names) // _WINDOW_ROWS, names, rows)

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """All places, 2^17 at a time; zeros where there was no row."""
        for window, start in enumerate(range(0, self._count, _WINDOW_ROWS)):
            placed = self._window(range(start, min(start + _WINDOW_ROWS, self._count)))
            for names, rows in self._windows.of(window):
                placed.add(names, rows.astype(np.int64))
            yield placed.total()
