"""Records put in the order of their subjects, one of each, in bounded memory: sorted runs, kept in a file and merged.

Of several records of one subject the least encoded row counts. Which one that is follows from these records alone, so
neither the order of the source nor another subject's record can change it (docs/proofs/records.md, 2.3). What waits on
the disk is there under a key that only memory has.
"""

from bisect import bisect_right
from collections.abc import Iterator
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from commingle.party_agent.private.scratch import SealedScratch
from commingle.shared.encoding import Cells, id_lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ENTRY = np.dtype("<i4")
Records = tuple[Cells, NDArray[np.int32]]
"""Canonical ids (m) and encoded rows (m x d)."""

_RUN_RECORDS = 1 << 17
_PIECE_RECORDS = 1 << 11
_ID: "Callable[[Any], bytes]" = methodcaller("as_py")
_ORDER: "Sequence[tuple[str, Literal['ascending']]]" = (("id", "ascending"), ("row", "ascending"))


def packed(ids: Cells, rows: NDArray[np.integer]) -> pa.RecordBatch:
    """Ids (m) and rows (m x d, entries of 32 bits) as Arrow has them in a file."""
    entries = np.ascontiguousarray(rows, ENTRY)
    width = entries.shape[1] * ENTRY.itemsize
    cells = pa.Array.from_buffers(pa.binary(width), len(entries), [None, pa.py_buffer(entries.tobytes())])
    return pa.record_batch({"id": ids.cast(pa.large_binary()), "row": cells})


def unpacked(batch: pa.RecordBatch) -> Records:
    """The ids and rows that were packed; the rows cannot be written to."""
    ids, cells = batch.columns
    width = cast("pa.FixedSizeBinaryType", cells.type).byte_width // ENTRY.itemsize
    held = cells.buffers()[1]
    rows = np.empty((0, width), ENTRY) if held is None else np.frombuffer(memoryview(held), ENTRY).reshape(-1, width)
    return ids, rows[cells.offset : cells.offset + len(cells)]


class SealedRecords:
    """Records in a file, a piece at a time, under a key in memory."""

    def __init__(self, file: SealedScratch) -> None:
        self._file, self._numbers, self._schema = file, list[int](), pa.schema([])

    def append(self, batch: pa.RecordBatch) -> None:
        """Packed records."""
        self._schema = batch.schema
        for start in range(0, batch.num_rows, _PIECE_RECORDS):
            piece = batch.slice(start, _PIECE_RECORDS)
            self._numbers.append(self._file.append(piece.serialize().to_pybytes()))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The pieces as they were appended."""
        for number in self._numbers:
            yield pa.ipc.read_record_batch(pa.py_buffer(self._file.read(number)), self._schema)


class RecordSorter:
    """Takes the records of a table in any order. Those without an id are passed over.

    Attributes:
        records: that were taken, with an id or without.
        duplicates: that stood beside a lesser one of the same subject; known once all have been given.
    """

    def __init__(self) -> None:
        self._waiting, self._runs, self._file = list[pa.RecordBatch](), list[SealedRecords](), SealedScratch()
        self.records = self.duplicates = 0

    def add(self, ids: Cells, rows: NDArray[np.integer]) -> None:
        """The canonical ids (m), empty where there is none, and encoded rows (m x d) of the next records."""
        self.records += len(ids)
        named = id_lengths(ids) > 0
        self._waiting.append(packed(ids.filter(pa.array(named)), rows[named]))
        if sum(batch.num_rows for batch in self._waiting) >= _RUN_RECORDS:
            self._sort_run()

    def __iter__(self) -> Iterator[Records]:
        """One record of each subject in the order of ids, some at a time. Once."""
        self._sort_run()
        last: bytes | None = None
        for batch in _merge([_Head(iter(run)) for run in self._runs]):
            ids = batch.column(0)
            found: Any = pc.equal(ids[1:], ids[:-1])
            new = np.array([_ID(ids[0]) != last, *np.invert(found.to_numpy(zero_copy_only=False))])
            last = _ID(ids[-1])
            self.duplicates += int(np.count_nonzero(~new))
            if new.any():
                yield unpacked(batch if new.all() else batch.filter(pa.array(new)))

    def _sort_run(self) -> None:
        waiting, self._waiting = [batch for batch in self._waiting if batch.num_rows], []
        if waiting:
            whole = _joined(waiting)
            run = SealedRecords(self._file)
            run.append(whole.take(pc.sort_indices(whole, _ORDER)))
            self._runs.append(run)


class _Head:
    """How far a run has been merged."""

    def __init__(self, pieces: Iterator[pa.RecordBatch]) -> None:
        self._pieces = pieces
        self._piece: pa.RecordBatch | None = None

    def fill(self) -> bool:
        """Whether there is something left."""
        if self._piece is None or not self._piece.num_rows:
            self._piece = next(self._pieces, None)
        return self._piece is not None

    @property
    def last(self) -> bytes:
        """The last id of what is in memory."""
        return _ID(self._held.column(0)[-1])

    def take(self, upper: bytes) -> pa.RecordBatch:
        """The records up to that id."""
        held = self._held
        end = bisect_right(held.column(0), upper, key=_ID)
        self._piece = held.slice(end)
        return held.slice(0, end)

    @property
    def _held(self) -> pa.RecordBatch:
        if self._piece is None:
            raise ValueError("nothing is left of this run")
        return self._piece


def _merge(heads: list[_Head]) -> Iterator[pa.RecordBatch]:
    """All records in order, some at a time.

    No run has an id up to `upper` beyond what is in memory of it, but for records that are equal to it and not less:
    so the least record of each subject comes first.
    """
    while heads := [head for head in heads if head.fill()]:
        upper = min(head.last for head in heads)
        batch = _joined([head.take(upper) for head in heads])
        yield batch.take(pc.sort_indices(batch, _ORDER)) if len(heads) > 1 else batch


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Records side by side; there are some."""
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
