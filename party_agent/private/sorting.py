"""Rows put in order in bounded memory: records by their subjects, one of each; rows of a release by their places.

Of several records of one subject the least encoded row counts. That follows from these records alone, so neither the
order of the source nor a record of another subject can change it (docs/proofs/records.md, 2.3).

Adversary of what waits on the disk: who reads it. Its file has no name and ends with the process, and from the moment
it is made only this process can open it; small tables never reach the disk. Freed blocks of a disk that is not
encrypted may keep what they held, as with all that a database sorts. So cells, ids too, go there under a key that is
held in memory only.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller
from os import SEEK_END
from tempfile import SpooledTemporaryFile
from typing import Any, Literal, cast
from weakref import finalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from commingle.shared.mechanisms.interface import Accumulator, Names
from commingle.shared.values import Cells, id_lengths

ENTRY = np.dtype("<i4")
Records = tuple[Cells, NDArray[np.int32]]
"""Canonical ids (m) and encoded rows (m x d)."""

IN_MEMORY_BYTES = 1 << 22
WINDOW_ROWS = 1 << 17
RUN_RECORDS = 1 << 17
PIECE_RECORDS = 1 << 11
_ID: Callable[[Any], bytes] = methodcaller("as_py")
_ORDER: Sequence[tuple[str, Literal["ascending"]]] = (("id", "ascending"), ("row", "ascending"))


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


def nonce(number: int) -> bytes:
    """The nonce of the piece with this number, which is sealed once under its key."""
    return number.to_bytes(12, "big")


class SealedScratch:
    """Pieces in a file, in memory while they are few, each encrypted under a key that ends with this object."""

    def __init__(self) -> None:
        self._cipher, self._places = AESGCM(AESGCM.generate_key(256)), list[tuple[int, int]]()
        self._file = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115 - closed by what follows
        finalize(self, self._file.close)

    def append(self, plain: bytes) -> int:
        number = len(self._places)
        sealed = self._cipher.encrypt(nonce(number), plain, None)
        self._places.append((self._file.seek(0, SEEK_END), len(sealed)))
        self._file.write(sealed)
        return number

    def read(self, number: int) -> bytes:
        place, size = self._places[number]
        self._file.seek(place)
        return self._cipher.decrypt(nonce(number), self._file.read(size), None)


class RecordSorter:
    """Takes the records of a table in any order. Records without an id are passed over.

    Attributes:
        waiting: packed records that are in no run yet.
        duplicates: records beside a lesser one of the same subject; known once all have been given.
    """

    def __init__(self) -> None:
        self.waiting, self._runs, self._file = list[pa.RecordBatch](), list[list[int]](), SealedScratch()
        self.duplicates, self._schema = 0, pa.schema([])

    def add(self, ids: Cells, rows: NDArray[np.integer]) -> None:
        """The canonical ids (m), empty for a record without one, and encoded rows (m x d) of the next records."""
        named = id_lengths(ids) > 0
        self.waiting.append(packed(ids.filter(pa.array(named)), rows[named]))
        if sum(batch.num_rows for batch in self.waiting) >= RUN_RECORDS:
            self._sort_run()

    def __iter__(self) -> Iterator[Records]:
        """One record of each subject in the order of ids, some at a time. Once."""
        self._sort_run()
        last: bytes | None = None
        for batch in _merge([_Head(self._read(run)) for run in self._runs]):
            ids = batch.column(0)
            found: Any = pc.equal(ids[1:], ids[:-1])
            new = np.array([_ID(ids[0]) != last, *np.invert(found.to_numpy(zero_copy_only=False))])
            last = _ID(ids[-1])
            self.duplicates += int(np.count_nonzero(~new))
            if new.any():
                yield unpacked(batch if new.all() else batch.filter(pa.array(new)))

    def _sort_run(self) -> None:
        waiting, self.waiting = [batch for batch in self.waiting if batch.num_rows], []
        if waiting:
            whole = _joined(waiting)
            run, self._schema = whole.take(pc.sort_indices(whole, _ORDER)), whole.schema
            pieces = (run.slice(start, PIECE_RECORDS) for start in range(0, run.num_rows, PIECE_RECORDS))
            self._runs.append([self._file.append(piece.serialize().to_pybytes()) for piece in pieces])

    def _read(self, run: Sequence[int]) -> Iterator[pa.RecordBatch]:
        for number in run:
            yield pa.ipc.read_record_batch(pa.py_buffer(self._file.read(number)), self._schema)


class _Head:
    def __init__(self, pieces: Iterator[pa.RecordBatch]) -> None:
        self._pieces = pieces
        self._piece: pa.RecordBatch | None = None

    def fill(self) -> bool:
        if self._piece is None or not self._piece.num_rows:
            self._piece = next(self._pieces, None)
        return self._piece is not None

    @property
    def last(self) -> bytes:
        return _ID(self._held.column(0)[-1])

    def take(self, upper: bytes) -> pa.RecordBatch:
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

    No run has an id up to `upper` beyond what is in memory of it, but for records that are equal to it and not less: so
    the least record of each subject comes first.
    """
    while heads := [head for head in heads if head.fill()]:
        upper = min(head.last for head in heads)
        batch = _joined([head.take(upper) for head in heads])
        yield batch.take(pc.sort_indices(batch, _ORDER)) if len(heads) > 1 else batch


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


class PlacedRows:
    """Takes a party's rows in any order and gives what an `Accumulator` makes of all of them, some places at a time.

    Rows wait in windows of places, on disk under a key.

    Args:
        count: how many places there are.
        places: where rows of these names belong, as `Mechanism.places`.
        window: takes the rows of some places, as `Mechanism.window`.
    """

    def __init__(
        self, count: int, places: Callable[[Names], NDArray[np.int64]], window: Callable[[range], Accumulator]
    ) -> None:
        self._count, self._places, self._window = count, places, window
        self._scratch, self._pieces = SealedScratch(), defaultdict[int, list[tuple[int, int]]](list)
        self._nobody: Names = np.empty(0, np.int64)

    def add(self, names: Names, rows: NDArray[np.integer]) -> None:
        """Rows (m x d) of the subjects with these names (m), entries of 32 bits."""
        self._nobody, windows = names[:0], self._places(names) // WINDOW_ROWS
        for window in np.unique(windows).tolist():
            chosen = windows == window
            number = self._scratch.append(names[chosen].tobytes() + rows[chosen].astype(ENTRY).tobytes())
            self._pieces[window].append((number, names[chosen].nbytes))

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """All places, 2^17 at a time; zeros where there was no row."""
        for window, start in enumerate(range(0, self._count, WINDOW_ROWS)):
            placed = self._window(range(start, min(start + WINDOW_ROWS, self._count)))
            for names, rows in self._waiting(window):
                placed.add(names, rows.astype(np.int64))
            yield placed.total()

    def _waiting(self, window: int) -> Iterator[tuple[Names, NDArray[np.int32]]]:
        for number, named in self._pieces[window]:
            held = memoryview(self._scratch.read(number))
            names = np.frombuffer(held[:named], self._nobody.dtype).reshape(-1, *self._nobody.shape[1:])
            rows = np.frombuffer(held[named:], ENTRY).reshape(len(names), -1)
            yield cast("Names", names), rows
