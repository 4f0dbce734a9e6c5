"""The exact integer projection Y = S Q (docs/design/encoding.md#projection), streamed over rows.

Exactness. Row blocks hold at most 512 subjects and |q| <= 2^15, so every partial sum of a block, in whatever
order and with or without fused multiply-add, is an integer of magnitude <= 512 * 2^15 = 2^24, which float32
represents exactly. Block products are added up in float64, exact while n * 2^15 <= 2^53; more rows are
refused. Hence the result is a function of the (name, row) pairs alone: neither their order, nor the batches
they came in, nor the BLAS in use, nor the number of threads can change a bit of it.

Privacy needs nothing of S but its entries +-1: a change of one subject's row from q to q' changes Y by
exactly sqrt(k) * ||q - q'||, provided that each subject has one row. The caller vouches for that.

`compiled_projection` makes the same integers faster where the package was built with its loops.
"""

from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from commingle.shared.mechanisms.rows.mixed_rows import MixedRows
from commingle.shared.mechanisms.rows.signs import BLOCK_BITS, SignStream

_SUBJECTS = 512  # in one block: at most 2^24 / MAX_ABS_ENTRY
_ROWS = 8 * BLOCK_BITS  # of S at a time: a buffer of 512 x 1024 float32 is 2 MiB and stays in cache

# OpenBLAS multiplies on the calling thread up to 2^18 multiply-adds. Tiles of that size keep its own threads,
# which spin between calls, out of the way of ours: two thirds of the time at d = 10. From d = 33 on tiles
# would be too narrow to be efficient and the product dominates, so there BLAS does the threading.
_SERIAL_PRODUCT = 2**18
_TILED_COLUMNS = 32
_THREADS = 2

# byte -> its eight signs, most significant bit first
_SIGNS = 1 - 2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)


class Projection(MixedRows):
    """Accumulates Y = S Q, (k, d), for the dense S of a public seed. `add` itself uses two threads.

    Args:
        seed: the release seed, 32 bytes, public.
        k: rows of S, >= 1.
        d: columns of Q, >= 1.

    Raises:
        MixingError: an argument is out of range.
    """

    def __init__(self, seed: bytes, k: int, d: int) -> None:
        super().__init__(k, d)
        tiled = d <= _TILED_COLUMNS
        narrow = 2 ** ((_SERIAL_PRODUCT // _SUBJECTS // d).bit_length() - 1) if tiled else _ROWS
        step = min(narrow, BLOCK_BITS)  # a power of two, so that it divides every range of rows
        self._tile = step if tiled else _ROWS
        self._sum = np.zeros((d, -(-k // step) * step))
        self._lock = Lock()
        self._lanes = [_Lane(seed, min(_ROWS, self._sum.shape[1])) for _ in range(_THREADS if tiled else 1)]

    def total(self) -> NDArray[np.int64]:
        """Y of everything added so far, (k, d)."""
        return np.ascontiguousarray(self._sum[:, : self._k].T.astype(np.int64))

    def _add(self, names: NDArray[np.integer], q: NDArray[np.integer]) -> None:
        with ThreadPoolExecutor(len(self._lanes)) as pool:
            list(pool.map(lambda lane: self._add_lane(lane, names, q), range(len(self._lanes))))

    def _add_lane(self, lane: int, names: NDArray[np.integer], q: NDArray[np.integer]) -> None:
        """Every len(lanes)-th block of subjects, beginning with the lane's own."""
        for start in range(lane * _SUBJECTS, len(names), len(self._lanes) * _SUBJECTS):
            block = slice(start, start + _SUBJECTS)
            q_transposed = np.asarray(q[block].T, dtype=np.float32, order="C")
            for first in range(0, self._sum.shape[1], _ROWS):
                rows = min(_ROWS, self._sum.shape[1] - first)
                signs = self._lanes[lane].signs(names[block], first, rows)
                # Y^T += Q^T S^T over this block of subjects and rows
                product = _tiled_product(q_transposed, signs, min(self._tile, rows))
                with self._lock:
                    self._sum[:, first : first + rows] += product


class _Lane:
    """What one thread needs for itself: the stream and a buffer for expanded signs."""

    def __init__(self, seed: bytes, rows: int) -> None:
        self._stream = SignStream(seed)
        self._buffer = np.empty(_SUBJECTS * rows, dtype=np.float32)

    def signs(self, names: NDArray[np.integer], first: int, rows: int) -> NDArray[np.float32]:
        """Rows first .. first + rows - 1 of S for the given names, transposed: (m, rows) of +-1."""
        packed = self._stream.packed(names, rows, first_block=first // BLOCK_BITS)
        signs = self._buffer[: len(names) * rows].reshape(len(names), rows)
        # mode="clip" lets take() write into the buffer directly; no byte is out of range
        np.take(_SIGNS, packed, axis=0, out=signs.reshape(*packed.shape, 8), mode="clip")
        return signs


def _tiled_product(left: NDArray[np.float32], right: NDArray[np.float32], tile: int) -> NDArray[np.float32]:
    """(d, m) times (m, rows), one BLAS call per `tile` columns of the right factor; tile divides rows."""
    subjects, rows = right.shape
    tiles = left @ right.reshape(subjects, rows // tile, tile).transpose(1, 0, 2)
    return tiles.transpose(1, 0, 2).reshape(len(left), rows)
