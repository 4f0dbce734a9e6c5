"""A registered table read as encoded batches, with digests that show whether it is still the same table."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from commingle.party_agent.errors import DataChangedError, DataError
from commingle.party_agent.private.digest import TableDigest
from commingle.party_agent.private.rows import EncodedBatch, RawReader
from commingle.shared.documents.schema import Attribute
from commingle.shared.encoding import Cells, canonical_ids, encode_attribute

Progress = Callable[[int], None]
"""Is told how many rows have been read so far."""


@dataclass(frozen=True, slots=True)
class TableScan:
    """What a full reading found: counts for the party's own eyes, and the digest."""

    n: int
    clipped: Mapping[str, int]
    missing: Mapping[str, int]
    digest: TableDigest = field(repr=False)


@dataclass(frozen=True, slots=True)
class PrivateTable:
    """How to read a registered table."""

    read: RawReader
    subject_id: str
    attributes: Sequence[Attribute]

    def scan(self, progress: Progress = lambda _: None) -> TableScan:
        """Read everything once: validate, count, digest.

        Raises:
            DataError: the table cannot be released under this schema.
        """
        reading = _Reading(self, progress)
        n = sum(len(batch.subjects) for batch in reading.batches())
        if n == 0:
            raise DataError("the table has no rows", remedy="Check the file or the query.")
        self.ranks()
        return TableScan(n, reading.clipped, reading.missing, reading.digest())

    def require_unchanged(self, expected: TableDigest, progress: Progress = lambda _: None) -> None:
        """Read everything and compare. Raises DataChangedError."""
        for _ in self.batches(expected, progress):
            pass

    def ranks(self) -> "Ranks":
        """Sort the subjects. Memory: the ids and two integers for each.

        Raises:
            DataError: a missing, empty or duplicate subject id.
        """
        ids: list[bytes] = []
        for batch in self.read([self.subject_id]):
            ids += canonical_ids(self.subject_id, batch.columns[self.subject_id])
        array = pa.array(ids, pa.large_binary())
        order = pc.array_sort_indices(array)
        in_order = array.take(order)
        if len(in_order) > 1:
            duplicates = int(np.count_nonzero(pc.equal(in_order[1:], in_order[:-1]).to_numpy(zero_copy_only=False)))
            if duplicates:
                raise DataError(
                    f"column {self.subject_id}: {duplicates} duplicate subject ids",
                    remedy="Keep one row per subject.",
                )
        ranks = np.empty(len(ids), np.int64)
        ranks[order.to_numpy()] = np.arange(len(ids))
        return Ranks(ranks, in_order)

    def batches(self, expected: TableDigest, progress: Progress = lambda _: None) -> Iterator[EncodedBatch]:
        """Encoded batches in the order of the source.

        Raises:
            DataChangedError: after the last batch, if what was read is not what `expected` describes. Whoever
                consumes the batches must not use them before the iteration has ended.
        """
        reading = _Reading(self, progress)
        yield from reading.batches()
        if not expected.covers(reading.digest()):
            raise DataChangedError(
                "the table is not the one that was registered", remedy="Register the changed table again."
            )


@dataclass(frozen=True, slots=True)
class Ranks:
    """The order of subjects.

    Attributes:
        by_row: n ranks, of the source's rows in their order.
        sorted_ids: the canonical ids by rank.
    """

    by_row: NDArray[np.int64] = field(repr=False)
    sorted_ids: Cells = field(repr=False)

    def ids(self) -> Iterator[bytes]:
        """The canonical ids by rank."""
        return (value.as_py() for value in self.sorted_ids)


class _Reading:
    """One pass over a table, with the digests of what went by."""

    def __init__(self, table: PrivateTable, progress: Progress) -> None:
        self._table = table
        self._progress = progress
        self._subjects = sha256()
        self._attributes = {a.name: sha256() for a in table.attributes}
        self.clipped = {a.name: 0 for a in table.attributes}
        self.missing = {a.name: 0 for a in table.attributes}

    def batches(self) -> Iterator[EncodedBatch]:
        seen = 0
        table = self._table
        for raw in table.read([table.subject_id, *(a.name for a in table.attributes)]):
            subjects = canonical_ids(table.subject_id, raw.columns[table.subject_id])
            self._subjects.update(b"".join(len(i).to_bytes(4, "big") + i for i in subjects))
            encoded = {a.name: self._encode(a, raw.columns[a.name]) for a in table.attributes}
            yield EncodedBatch(subjects, encoded)
            seen += raw.size
            self._progress(seen)

    def digest(self) -> TableDigest:
        return TableDigest(
            self._subjects.hexdigest(), {name: digest.hexdigest() for name, digest in self._attributes.items()}
        )

    def _encode(self, attribute: Attribute, values: Cells) -> NDArray[np.int64]:
        encoded = encode_attribute(attribute, values)
        self.clipped[attribute.name] += encoded.clipped
        self.missing[attribute.name] += encoded.missing
        columns = encoded.columns
        self._attributes[attribute.name].update(np.ascontiguousarray(columns, "<i8").tobytes())
        return columns
