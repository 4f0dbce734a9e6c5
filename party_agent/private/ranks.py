"""The order of any number of subjects in bounded memory: runs of ids are sorted one by one, kept in a file and merged.

Ids are in it under a key that only memory has, as cells are elsewhere; ranks and orders name nobody.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import methodcaller
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from commingle.party_agent.private.scratch import Scratch, SealedScratch
from commingle.shared.encoding import Cells, length_prefixed

_RUN_IDS = 1 << 17
_PIECE_IDS = 1 << 11
_RANK, _ROW = np.dtype("<i8"), np.dtype("<u4")
_SCHEMA = pa.schema([("id", pa.large_binary())])
_NOBODY = pa.scalar(b"", pa.large_binary())
_ID: Callable[[Any], bytes] = methodcaller("as_py")


class RankList:
    """Ranks of some rows in their order, read from a file as they are asked for; pickled as an array of them."""

    def __init__(self, file: Scratch, start: int, count: int) -> None:
        self._file, self._start, self._count = file, start, count

    def __len__(self) -> int:
        """How many rows."""
        return self._count

    def __getitem__(self, rows: slice) -> NDArray[np.int64]:
        """The ranks of neighbouring rows."""
        start, stop, _ = rows.indices(self._count)
        place, size = ((self._start + start) * _RANK.itemsize, max(0, stop - start) * _RANK.itemsize)
        return np.frombuffer(self._file.read(place, size), _RANK)

    def __reduce__(self) -> tuple[Callable[..., NDArray[np.int64]], tuple[NDArray[np.int64]]]:
        """For workers, which have another disk."""
        return np.asarray, (self[:],)

    def part(self, start: int, count: int) -> Self:
        """Those of some of the rows."""
        return type(self)(self._file, self._start + start, count)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The order of subjects.

    Attributes:
        by_row: n ranks, of the source's rows in their order.
        duplicates: ids that stand behind another that is the same; rows without an id are none.
        pieces: the canonical ids by rank, some at a time.
    """

    by_row: RankList = field(repr=False)
    duplicates: int
    pieces: Iterable[Cells] = field(repr=False)

    def listed(self) -> Iterator[bytes]:
        """The canonical ids by rank, each behind its length, some at a time."""
        return map(length_prefixed, self.pieces)


class IdSorter:
    """Takes the canonical ids of rows, some at a time."""

    def __init__(self) -> None:
        self._waiting: list[Cells] = []
        self._runs: list[_Run] = []
        self._orders, self._ids = Scratch(), SealedScratch()
        self.rows = 0

    def add(self, ids: Cells) -> None:
        """The ids of the next rows."""
        self._waiting.append(ids)
        self.rows += len(ids)
        if sum(map(len, self._waiting)) >= _RUN_IDS:
            self._sort_run()

    def ranks(self) -> Ranks:
        """Of all of them. Once."""
        self._sort_run()
        ranks, merged, duplicates, last = Scratch(), _Pieces(SealedScratch()), 0, None
        for piece in _merge(self._runs, ranks):
            neighbours = piece if last is None else pa.concat_arrays([last, piece])
            again = pc.and_(pc.equal(neighbours[1:], neighbours[:-1]), pc.not_equal(neighbours[1:], _NOBODY))
            duplicates += again.true_count
            last = piece[-1:]
            merged.append(piece)
        for run in self._runs:
            order = np.frombuffer(self._orders.read(run.order, run.rows * _ROW.itemsize), _ROW)
            by_row = np.empty(run.rows, _RANK)
            by_row[order] = RankList(ranks, run.first, run.rows)[:]
            ranks.write(by_row.data, run.first * _RANK.itemsize)
        return Ranks(RankList(ranks, 0, self.rows), duplicates, merged)

    def _sort_run(self) -> None:
        if not self._waiting:
            return
        ids, self._waiting = pa.concat_arrays(self._waiting), []
        order = pc.array_sort_indices(ids)
        place = self._orders.write(order.to_numpy().astype(_ROW).data)
        run = _Run(self.rows - len(ids), len(ids), place, _Pieces(self._ids))
        run.pieces.append(ids.take(order))
        self._runs.append(run)


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring rows, sorted.

    Attributes:
        first: row.
        rows: how many.
        order: where in the file it stands which of them comes first, second, and so on.
        pieces: their ids by rank.
    """

    first: int
    rows: int
    order: int
    pieces: "_Pieces"


class _Pieces:
    """Ids in a file, encrypted."""

    def __init__(self, file: SealedScratch) -> None:
        self._file, self._numbers = file, list[int]()

    def append(self, ids: Cells) -> None:
        for start in range(0, len(ids), _PIECE_IDS):
            written = pa.record_batch([ids[start : start + _PIECE_IDS]], schema=_SCHEMA).serialize()
            self._numbers.append(self._file.append(written.to_pybytes()))

    def __iter__(self) -> Iterator[Cells]:
        for number in self._numbers:
            yield pa.ipc.read_record_batch(pa.py_buffer(self._file.read(number)), _SCHEMA).column(0)


class _Head:
    """How far a run has been merged."""

    def __init__(self, run: _Run) -> None:
        self.row, self._pieces = run.first, iter(run.pieces)
        self._piece: Cells = pa.array([], pa.large_binary())

    def fill(self) -> bool:
        """Whether there is something left."""
        if not len(self._piece):
            self._piece = next(self._pieces, self._piece)
        return len(self._piece) > 0

    @property
    def last(self) -> bytes:
        """Of what is in memory."""
        return _ID(self._piece[-1])

    def take(self, upper: bytes) -> Cells:
        """The ids up to that one."""
        end = bisect_right(self._piece, upper, key=_ID)
        taken, self._piece = self._piece[:end], self._piece[end:]
        return taken


def _merge(runs: Sequence[_Run], ranks: Scratch) -> Iterator[Cells]:
    """All ids in order, some at a time; the ranks of each run's, in its order, are written where its rows have theirs.

    What no run has beyond what is in memory of it can be put in order.
    """
    heads, rank = [_Head(run) for run in runs], 0
    while heads := [head for head in heads if head.fill()]:
        upper = min(head.last for head in heads)
        parts = [head.take(upper) for head in heads]
        ids = pa.concat_arrays(parts)
        order = pc.array_sort_indices(ids)
        found = np.empty(len(ids), _RANK)
        found[order.to_numpy()] = np.arange(rank, rank + len(ids))
        ends = np.cumsum([0, *map(len, parts)])
        for head, (start, stop) in zip(heads, pairwise(ends), strict=True):
            ranks.write(found[start:stop].data, head.row * _RANK.itemsize)
            head.row += int(stop - start)
        yield ids.take(order)
        rank += len(ids)
