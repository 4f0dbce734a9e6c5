"""The exact dense projection, compiled: the same integers as `projection.Projection`, several times as fast.

Importing numba and loading the loops takes about a second, so it is for large tables.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from commingle.shared.mechanisms.rows.kernels import LANES, SUBJECTS, add_block
from commingle.shared.mechanisms.rows.mixed_rows import MixedRows
from commingle.shared.mechanisms.rows.signs import BLOCK_BITS, BLOCK_BYTES, SignStream

_SUBJECTS = 512  # whose signs are made at a time
_BLOCKS = 64  # of them: 8192 rows, half a megabyte
_THREADS = 2


class CompiledProjection(MixedRows):
    """Accumulates Y = S Q; arguments as of `projection.Projection`. `add` uses two threads, each for its own rows."""

    def __init__(self, seed: bytes, k: int, d: int) -> None:
        super().__init__(k, d)
        blocks = -(-k // BLOCK_BITS)
        self._sums = np.zeros((-(-d // LANES), 8, blocks * BLOCK_BYTES, LANES), np.int64)
        ends = [blocks * i // _THREADS for i in range(_THREADS + 1)]
        self._lanes = [(SignStream(seed), first, last) for first, last in pairwise(ends)]

    def total(self) -> NDArray[np.int64]:
        """Y of everything added so far, (k, d)."""
        rows = self._sums[:, ::-1].transpose(2, 1, 0, 3)  # (k / 8, 8, panels, LANES)
        return np.ascontiguousarray(rows.reshape(8 * len(rows), LANES * len(self._sums))[: self._k, : self._d])

    def _add(self, names: NDArray[np.integer], q: NDArray[np.integer]) -> None:
        padded = np.zeros((-(-len(names) // SUBJECTS) * SUBJECTS, len(self._sums) * LANES), np.int32)
        padded[: len(names), : self._d] = q
        rows = np.ascontiguousarray(padded.reshape(len(padded), len(self._sums), LANES).transpose(1, 0, 2))
        with ThreadPoolExecutor(len(self._lanes)) as pool:
            list(pool.map(lambda lane: self._add_lane(lane, names, rows), self._lanes))

    def _add_lane(self, lane: tuple[SignStream, int, int], names: NDArray[np.integer], rows: NDArray[np.int32]) -> None:
        """The rows of S from AES block `first` to before `last`; subjects that are not there have rows of zeros."""
        stream, first, last = lane
        for start in range(0, len(names), _SUBJECTS):
            own = np.ascontiguousarray(rows[:, start : start + _SUBJECTS])
            for block in range(first, last, _BLOCKS):
                blocks = min(_BLOCKS, last - block)
                signs = np.zeros((own.shape[1], blocks * BLOCK_BYTES), np.uint8)
                packed = stream.packed(names[start : start + _SUBJECTS], blocks * BLOCK_BITS, first_block=block)
                signs[: len(packed)] = packed
                add_block(signs.view(np.uint64).reshape(-1, 8, 2 * blocks), own, self._sums, block * BLOCK_BYTES)
