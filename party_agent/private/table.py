"""A registered table read as encoded batches, and whether its subjects are still those that were registered.

Registration refuses a table that does not fit its schema. From then on nothing here depends on a cell but the integers
it becomes (docs/threat-model.md#no-decision-depends-on-cells): what can be refused later is the list of subjects.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from hashlib import sha256
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from commingle.party_agent.errors import DataError, SubjectsChangedError
from commingle.party_agent.private.digest import TableDigest
from commingle.party_agent.private.engine import IN_PROCESS, Engine, Progress
from commingle.party_agent.private.rows import EncodedBatch, RawBatch, RawReader
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.subject_ids import IdCounts, SubjectKey
from commingle.shared.encoding import Cells, encode_attribute, encode_conforming, subject_ids


@dataclass(frozen=True, slots=True)
class ReadSubjects:
    """The subjects of one reading of a table, or of one partition of it.

    Attributes:
        ids: canonical, in the order of the source.
        found: without duplicates.
        digest: of the ids in that order.
    """

    ids: Cells = field(repr=False)
    found: IdCounts
    digest: TableDigest = field(repr=False)

    def counts(self) -> IdCounts:
        """What has been read, duplicates counted."""
        present = self.ids.filter(pc.not_equal(self.ids, pa.scalar(b"", pa.large_binary())))
        return replace(self.found, duplicates=Ranks.of(present).duplicates())


@dataclass(frozen=True, slots=True)
class ReadCells:
    """What registration counts in a table, or in one partition of it."""

    subjects: ReadSubjects
    clipped: Mapping[str, int]
    missing: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TableScan:
    """What a full reading found: counts for the party's own eyes, and the digest."""

    n: int
    ids: IdCounts
    clipped: Mapping[str, int]
    missing: Mapping[str, int]
    digest: TableDigest = field(repr=False)

    @classmethod
    def of(cls, subjects: ReadSubjects, cells: Iterable[ReadCells], key: SubjectKey) -> Self:
        """Of the whole table's subjects, and of what was counted in its partitions.

        Raises:
            DataError: no rows, rows without an id, or ids that stand twice.
        """
        if not len(subjects.ids):
            raise DataError("the table has no rows", remedy="Check the file or the query.")
        counts = subjects.counts()
        if counts.problems:
            raise DataError(
                f"column {key}: {', '.join(counts.problems)}",
                remedy="Keep one row per subject, and give every row an id as its rule wants it.",
            )
        parts = list(cells)
        clipped, missing = reduce(_added, (p.clipped for p in parts)), reduce(_added, (p.missing for p in parts))
        return cls(len(subjects.ids), counts, clipped, missing, subjects.digest)


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    return {name: count + other[name] for name, count in one.items()}


@dataclass(frozen=True, slots=True)
class PrivateTable:
    """How to read a registered table, or one partition of it."""

    read: RawReader
    key: SubjectKey
    attributes: Sequence[Attribute]
    engine: ClassVar[Engine] = IN_PROCESS

    def scan(self, progress: Progress = lambda _: None, *, strict: bool = True) -> TableScan:
        """Read everything once: validate where `strict`, count, digest.

        Raises:
            DataError: the table cannot be released under this schema. Unless `strict`, that does not depend on cells.
        """
        found = self.read_cells(progress, strict=strict)
        return TableScan.of(found.subjects, [found], self.key)

    def read_cells(self, progress: Progress, *, strict: bool) -> ReadCells:
        """Read everything once and count. Raises DataError: cells do not fit the schema, where `strict`."""
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
        return ReadCells(subjects.read(ids), clipped, missing)

    def read_subjects(self, progress: Progress) -> ReadSubjects:
        """Read the subject ids, whatever they are like now, and no other column. Raises SubjectsChangedError."""
        subjects, ids = _Subjects(self.key), list[bytes]()
        for batch in self.read(list(self.key.columns)):
            ids += subjects.add_registered(batch)
            progress(len(ids))
        return subjects.read(ids)

    def count_ids(self, expected: TableDigest) -> tuple[IdCounts, bool]:
        """What the subject ids are like now, and whether they are those that `expected` describes; refuses none."""
        found = self.read_subjects(lambda _: None)
        return found.counts(), found.digest == expected

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

    def ranked(self, expected: TableDigest, progress: Progress = lambda _: None) -> "Sequence[RankedPartition]":
        """What `engine` reads, with everybody's rank: the whole table. Raises SubjectsChangedError."""
        return [RankedPartition(self, expected, self.ranks(expected, progress).by_row)]

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

    def present(
        self, progress: Progress = lambda _: None, *, before: set[bytes] | None = None
    ) -> Iterator[EncodedBatch]:
        """Encoded batches of whoever is there now and was not `before`: the first row of each id that is one.

        Privacy: nothing is refused and nothing compared with what was registered, as it would tell who was added or
        removed (docs/proofs/keyed-subjects.md, 1.2). Memory: the ids, which `before` has afterwards.
        """
        met, seen = set[bytes]() if before is None else before, 0
        for batch in self._read():
            ids = _Subjects(self.key).add_registered(batch)
            new = np.zeros(batch.size, bool)
            for row, identifier in enumerate(ids):
                if identifier and identifier not in met:
                    met.add(identifier)
                    new[row] = True
            yield EncodedBatch(
                [identifier for identifier, first in zip(ids, new, strict=True) if first],
                {a.name: encode_attribute(a, batch.columns[a.name]).columns[new] for a in self.attributes},
            )
            seen += batch.size
            progress(seen)

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
    def of(cls, ids: "list[bytes] | Cells") -> Self:
        """Of canonical ids in the order of the source."""
        array = pa.array(ids, pa.large_binary()) if isinstance(ids, list) else ids
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


@dataclass(frozen=True, slots=True)
class RankedPartition:
    """A partition, whose subjects it has and their ranks in the whole table (m): what a worker is given.

    Attributes:
        digest: of its subjects in its order. Another reading that finds others is refused.
    """

    table: PrivateTable
    digest: TableDigest
    ranks: NDArray[np.int64] = field(repr=False)

    def rows(self, progress: Progress) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Ranks (b) and encoded rows (b x d) of each batch.

        Raises:
            SubjectsChangedError: after the last batch at the latest, if the subjects are not those that were ranked.
        """
        start = 0
        for batch in self.table.batches(self.digest, progress):
            end = start + len(batch.subjects)
            if end > len(self.ranks):
                raise SubjectsChangedError(
                    "the number of subjects has changed", remedy="Register the changed table again."
                )
            yield self.ranks[start:end], np.hstack([batch.attributes[a.name] for a in self.table.attributes])
            start = end


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
            raise subjects_changed() from None

    def read(self, ids: list[bytes]) -> ReadSubjects:
        """All of it, of which these are the ids."""
        return ReadSubjects(pa.array(ids, pa.large_binary()), self._counts, self.digest())

    def digest(self) -> TableDigest:
        return TableDigest(self._digest.hexdigest())

    def require(self, expected: TableDigest) -> None:
        if self.digest() != expected:
            raise subjects_changed()


def subjects_changed() -> SubjectsChangedError:
    """The refusal of other subjects than those that were registered."""
    return SubjectsChangedError(
        "the table's subjects, or their order, are not those that were registered",
        remedy="Register the changed table again.",
    )
