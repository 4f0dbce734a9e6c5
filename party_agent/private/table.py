"""A registered table read as encoded batches, and whether its subjects are still those that were registered.

Registration refuses a table that does not fit its schema. From then on nothing here depends on a cell but the integers
it becomes (docs/threat-model.md#no-decision-depends-on-cells): what can be refused later is the list of subjects.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from commingle.party_agent.errors import DataError, SubjectsChangedError
from commingle.party_agent.private.digest import TableDigest
from commingle.party_agent.private.rows import EncodedBatch, RawBatch, RawReader
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.subject_ids import IdCounts, SubjectKey
from commingle.shared.encoding import Cells, encode_attribute, encode_conforming, subject_ids

Progress = Callable[[int], None]
"""Is told how many rows have been read so far."""


@dataclass(frozen=True, slots=True)
class TableScan:
    """What a full reading found: counts for the party's own eyes, and the digest."""

    n: int
    ids: IdCounts
    clipped: Mapping[str, int]
    missing: Mapping[str, int]
    digest: TableDigest = field(repr=False)


@dataclass(frozen=True, slots=True)
class PrivateTable:
    """How to read a registered table."""

    read: RawReader
    key: SubjectKey
    attributes: Sequence[Attribute]

    def scan(self, progress: Progress = lambda _: None, *, strict: bool = True) -> TableScan:
        """Read everything once: validate where `strict`, count, digest.

        Raises:
            DataError: the table cannot be released under this schema. Unless `strict`, that does not depend on cells.
        """
        subjects, ids = _Subjects(self.key), list[bytes]()
        clipped, missing = ({a.name: 0 for a in self.attributes} for _ in range(2))
        for batch in self._read():
            ids += subjects.add(batch)
            for attribute in self.attributes:
                encode = encode_conforming if strict else encode_attribute
                encoded = encode(attribute, batch.columns[attribute.name])
                clipped[attribute.name] += encoded.clipped
                missing[attribute.name] += encoded.missing + encoded.not_finite + encoded.unreadable
            progress(len(ids))
        if not ids:
            raise DataError("the table has no rows", remedy="Check the file or the query.")
        counts = subjects.counts(ids)
        if counts.problems:
            raise DataError(
                f"column {self.key}: {', '.join(counts.problems)}",
                remedy="Keep one row per subject, and give every row an id as its rule wants it.",
            )
        return TableScan(len(ids), counts, clipped, missing, subjects.digest())

    def count_ids(self, expected: TableDigest) -> tuple[IdCounts, bool]:
        """What the subject ids are like now, and whether they are those that `expected` describes; refuses none."""
        subjects, ids = _Subjects(self.key), list[bytes]()
        for batch in self.read(list(self.key.columns)):
            ids += subjects.add(batch)
        return subjects.counts(ids), subjects.digest() == expected

    def subjects(self, expected: TableDigest, progress: Progress = lambda _: None) -> list[bytes]:
        """The canonical ids in the order of the source; no other column is read.

        Raises:
            SubjectsChangedError: they are not those that `expected` describes.
        """
        subjects, ids = _Subjects(self.key), list[bytes]()
        for batch in self.read(list(self.key.columns)):
            ids += subjects.add_registered(batch)
            progress(len(ids))
        subjects.require(expected)
        return ids

    def ranks(self, expected: TableDigest, progress: Progress = lambda _: None) -> "Ranks":
        """Sort the subjects. Memory: the ids and two integers for each. Raises SubjectsChangedError."""
        return Ranks.of(self.subjects(expected, progress))

    def batches(self, expected: TableDigest, progress: Progress = lambda _: None) -> Iterator[EncodedBatch]:
        """Encoded batches in the order of the source.

        Raises:
            SubjectsChangedError: after the last batch, if the subjects are not those that `expected` describes. Whoever
                consumes the batches must not use them before the iteration has ended.
        """
        subjects, seen = _Subjects(self.key), 0
        for batch in self._read():
            ids = subjects.add_registered(batch)
            yield EncodedBatch(
                ids, {a.name: encode_attribute(a, batch.columns[a.name]).columns for a in self.attributes}
            )
            seen += batch.size
            progress(seen)
        subjects.require(expected)

    def _read(self) -> Iterator[RawBatch]:
        return self.read([*self.key.columns, *(a.name for a in self.attributes)])


@dataclass(frozen=True, slots=True)
class Ranks:
    """The order of subjects.

    Attributes:
        by_row: n ranks, of the source's rows in their order.
        sorted_ids: the canonical ids by rank.
    """

    by_row: NDArray[np.int64] = field(repr=False)
    sorted_ids: Cells = field(repr=False)

    @classmethod
    def of(cls, ids: list[bytes]) -> Self:
        """Of canonical ids in the order of the source."""
        array = pa.array(ids, pa.large_binary())
        order = pc.array_sort_indices(array)
        ranks = np.empty(len(ids), np.int64)
        ranks[order.to_numpy()] = np.arange(len(ids))
        return cls(ranks, array.take(order))

    def ids(self) -> Iterator[bytes]:
        """The canonical ids by rank."""
        return (value.as_py() for value in self.sorted_ids)

    def duplicates(self) -> int:
        """How many ids stand behind another that is the same."""
        same = pc.equal(self.sorted_ids[1:], self.sorted_ids[:-1])
        return int(np.count_nonzero(same.to_numpy(zero_copy_only=False)))


class _Subjects:
    """The subject ids of one reading, as far as it has come, and their digest."""

    def __init__(self, key: SubjectKey) -> None:
        self._key = key
        self._digest = sha256()
        self._counts = IdCounts()

    def add(self, batch: RawBatch) -> list[bytes]:
        """The canonical ids of the next rows, empty where there is none. Raises DataError: a column has no text."""
        found = subject_ids(self._key, batch.columns)
        self._digest.update(b"".join(len(i).to_bytes(4, "big") + i for i in found.ids))
        self._counts += found.counts
        return found.ids

    def add_registered(self, batch: RawBatch) -> list[bytes]:
        """The same of a table whose columns had text. Raises SubjectsChangedError."""
        try:
            return self.add(batch)
        except DataError:
            raise _changed() from None

    def counts(self, ids: list[bytes]) -> IdCounts:
        """What has been read, duplicates among all its ids counted."""
        return replace(self._counts, duplicates=Ranks.of([i for i in ids if i]).duplicates())

    def digest(self) -> TableDigest:
        return TableDigest(self._digest.hexdigest())

    def require(self, expected: TableDigest) -> None:
        if self.digest() != expected:
            raise _changed()


def _changed() -> SubjectsChangedError:
    return SubjectsChangedError(
        "the table's subjects, or their order, are not those that were registered",
        remedy="Register the changed table again.",
    )
