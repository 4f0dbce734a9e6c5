"""The matrices S that rows can be mixed with: dense signs, or one signed entry a column (docs/design/encoding.md).

A spec names one by its `projection`. Privacy needs nothing of S but the norm of its columns
(docs/proofs/projection.md, 1).
"""

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.terms import Projection as ProjectionName
from commingle.shared.loops import available, loops
from commingle.shared.mechanisms.rows.mixed_rows import MixedRows
from commingle.shared.mechanisms.rows.projection import Projection
from commingle.shared.mechanisms.rows.signs import BLOCK_BITS, BLOCK_BYTES, SignStream
from commingle.shared.mechanisms.rows.sparse import SparseProjection

LANES = 8  # columns that one instruction adds
TABLES = 4  # looked up together: 32 KB, which stay in a core's nearest cache
_SUBJECTS = 512  # whose signs are made at a time
_BLOCKS = 64  # of them: 8192 rows, half a megabyte
_THREADS = 2
_TOGETHER = 8 * TABLES  # subjects


class CompiledProjection(MixedRows):
    """Accumulates Y = S Q; arguments as of `projection.Projection`. `add` uses two threads, each for its own rows."""

    def __init__(self, seed: bytes, k: int, d: int) -> None:
        super().__init__(k, d)
        blocks = -(-k // BLOCK_BITS)
        self._sums = np.zeros((-(-d // LANES), 8, blocks * BLOCK_BYTES * LANES), np.int64)
        ends = [blocks * i // _THREADS for i in range(_THREADS + 1)]
        self._lanes = [(SignStream(seed), first, last) for first, last in pairwise(ends)]

    def total(self) -> NDArray[np.int64]:
        """Y of everything added so far, (k, d)."""
        panels = self._sums.reshape(len(self._sums), 8, -1, LANES)
        rows = panels[:, ::-1].transpose(2, 1, 0, 3)  # (k / 8, 8, panels, LANES)
        return np.ascontiguousarray(rows.reshape(8 * len(rows), LANES * len(self._sums))[: self._k, : self._d])

    def _add(self, names: NDArray[np.integer], q: NDArray[np.integer]) -> None:
        padded = np.zeros((-(-len(names) // _TOGETHER) * _TOGETHER, len(self._sums) * LANES), np.int32)
        padded[: len(names), : self._d] = q
        rows = np.ascontiguousarray(padded.reshape(len(padded), len(self._sums), LANES).transpose(1, 0, 2))
        with ThreadPoolExecutor(len(self._lanes)) as pool:
            list(pool.map(lambda lane: self._add_lane(lane, names, rows), self._lanes))

    def _add_lane(self, lane: tuple[SignStream, int, int], names: NDArray[np.integer], rows: NDArray[np.int32]) -> None:
        """The rows of S from AES block `first` to before `last`; subjects that are not there have rows of zeros."""
        stream, first, last = lane
        table = np.empty(TABLES * 256 * LANES, np.int32)
        for start in range(0, len(names), _SUBJECTS):
            own = np.ascontiguousarray(rows[:, start : start + _SUBJECTS])
            for block in range(first, last, _BLOCKS):
                blocks = min(_BLOCKS, last - block)
                signs = np.zeros((own.shape[1], blocks * BLOCK_BYTES), np.uint8)
                packed = stream.packed(names[start : start + _SUBJECTS], blocks * BLOCK_BITS, first_block=block)
                signs[: len(packed)] = packed
                bits, words = np.empty((TABLES, 8, 2 * blocks), np.uint64), signs.view(np.uint64)
                place = block * BLOCK_BYTES
                loops("rows").add_block(words.reshape(-1, 8, 2 * blocks), own, self._sums, bits, table, place)


class Sketch(ABC):
    """One kind of S, (k, n), whose columns all have one norm."""

    @abstractmethod
    def squared_norm(self, k: int) -> int:
        """||S e_i||^2 of every column: what one row counts for in a block's squared sensitivity."""

    @abstractmethod
    def mixed_rows(self, seed: bytes, *, k: int, d: int) -> MixedRows:
        """An empty sum of d columns.

        Raises:
            MixingError: an argument is out of range.
        """


class DenseSketch(Sketch):
    """Entries +-1, the paper's (Wu et al. 2022)."""

    def squared_norm(self, k: int) -> int:
        """One for each of k entries."""
        return k

    def mixed_rows(self, seed: bytes, *, k: int, d: int) -> MixedRows:
        """By loops where the package was built with them; the integers are the same."""
        return CompiledProjection(seed, k, d) if available() else Projection(seed, k, d)


class SparseSketch(Sketch):
    """One entry +-1 in each column."""

    def squared_norm(self, k: int) -> int:  # noqa: ARG002 - the same question is put to every sketch
        """One."""
        return 1

    def mixed_rows(self, seed: bytes, *, k: int, d: int) -> MixedRows:
        """Without a matrix."""
        return SparseProjection(seed, k, d)


SKETCHES: dict[ProjectionName | None, Sketch] = {None: DenseSketch(), "sparse": SparseSketch()}
