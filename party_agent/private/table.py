"""A registered table read as encoded batches, and whether its subjects are still those that were registered.

Registration refuses a table that does not fit its schema. From then on nothing here depends on a cell but the integers
it becomes (docs/threat-model.md#no-decision-depends-on-cells): what can be refused later is the list of subjects.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from commingle.party_agent.errors import DataError, SubjectsChangedError
from commingle.party_agent.private.digest import TableDigest
from commingle.party_agent.private.engine import IN_PROCESS, Engine, Progress
from commingle.party_agent.private.ranks import IdSorter, RankList, Ranks
from commingle.party_agent.private.rows import EncodedBatch, RawBatch, RawReader
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.subject_ids import IdCounts, SubjectKey
from commingle.shared.encoding import (
    Cells,
    SubjectIds,
    encode_attribute,
    encode_conforming,
    id_lengths,
    length_prefixed,
    subject_ids,
)

_NOTHING_READ = TableDigest(sha256(b"").hexdigest())


@dataclass(frozen=True, slots=True)
class ReadSubjects:
    """The subjects of some rows of one reading.

    Attributes:
        ids: canonical, in the order of the source.
        found: without duplicates.
        digest: of the ids of this reading, or of this partition, so far, in that order.
    """

    ids: Cells = field(repr=False)
    found: IdCounts
    digest: TableDigest = field(repr=False)


@dataclass(frozen=True, slots=True)
class ReadCells:
    """What registration counts in some rows."""

    subjects: ReadSubjects
    clipped: Mapping[str, int]
    missing: Mapping[str, int]


class Counted:
    """All that a reading has found so far, in bounded memory, of one partition after the other.

    Attributes:
        ids: of all rows.
        found: in them, without duplicates.
        digest: of the partition that was read last.
    """

    def __init__(self) -> None:
        self.ids, self.found, self.digest = IdSorter(), IdCounts(), _NOTHING_READ
        self.clipped, self.missing = Counter[str](), Counter[str]()

    def add(self, read: ReadSubjects | ReadCells) -> None:
        """What was found in the next rows."""
        if isinstance(read, ReadCells):
            self.clipped.update(read.clipped)
            self.missing.update(read.missing)
            read = read.subjects
        self.ids.add(read.ids)
        self.found += read.found
        self.digest = read.digest


@dataclass(frozen=True, slots=True)
class TableScan:
    """What a full reading found: counts for the party's own eyes, and the digest."""

    n: int
    ids: IdCounts
    clipped: Mapping[str, int]
    missing: Mapping[str, int]
    digest: TableDigest = field(repr=False)

    @classmethod
    def of(cls, counted: Counted, ranks: Ranks, digest: TableDigest, key: SubjectKey) -> Self:
        """Of a whole table.

        Raises:
            DataError: no rows, rows without an id, or ids that stand twice.
        """
        if not counted.ids.rows:
            raise DataError("the table has no rows", remedy="Check the file or the query.")
        counts = replace(counted.found, duplicates=ranks.duplicates)
        if counts.problems:
            raise DataError(
                f"column {key}: {', '.join(counts.problems)}",
                remedy="Keep one row per subject, and give every row an id as its rule wants it.",
            )
        return cls(counted.ids.rows, counts, dict(counted.clipped), dict(counted.missing), digest)


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
        counted = Counted()
        for read in self.read_cells(progress, strict=strict):
            counted.add(read)
        return TableScan.of(counted, counted.ids.ranks(), counted.digest, self.key)

    def read_cells(self, progress: Progress, *, strict: bool) -> Iterator[ReadCells]:
        """Read everything once and count, some rows at a time.

        Raises:
            DataError: cells do not fit the schema, where `strict`.
        """
        subjects = _Subjects(self.key)
        for batch in self._read():
            found = subjects.add(batch)
            clipped, missing = dict[str, int](), dict[str, int]()
            for attribute in self.attributes:
                encode = encode_conforming if strict else encode_attribute
                encoded = encode(attribute, batch.columns[attribute.name])
                clipped[attribute.name] = encoded.clipped
                missing[attribute.name] = encoded.missing + encoded.not_finite + encoded.unreadable
            progress(subjects.rows)
            yield ReadCells(subjects.read(found), clipped, missing)

    def read_subjects(self, progress: Progress) -> Iterator[ReadSubjects]:
        """Read the subject ids, whatever they are like now, and no other column. Raises SubjectsChangedError."""
        subjects = _Subjects(self.key)
        for batch in self.read(list(self.key.columns)):
            found = subjects.add_registered(batch)
            progress(subjects.rows)
            yield subjects.read(found)

    def count_ids(self, expected: TableDigest) -> tuple[IdCounts, bool]:
        """What the subject ids are like now, and whether they are those that `expected` describes; refuses none."""
        counted = self._subjects(lambda _: None)
        return replace(counted.found, duplicates=counted.ids.ranks().duplicates), counted.digest == expected

    def ranks(self, expected: TableDigest, progress: Progress = lambda _: None) -> Ranks:
        """Sort the subjects. Raises SubjectsChangedError: they are not those that `expected` describes."""
        counted = self._subjects(progress)
        if counted.digest != expected:
            raise subjects_changed()
        return counted.ids.ranks()

    def _subjects(self, progress: Progress) -> Counted:
        counted = Counted()
        for read in self.read_subjects(progress):
            counted.add(read)
        return counted

    def ranked(self, expected: TableDigest, progress: Progress = lambda _: None) -> "Sequence[RankedPartition]":
        """What `engine` reads, with everybody's rank: the whole table. Raises SubjectsChangedError."""
        return [RankedPartition(self, expected, self.ranks(expected, progress).by_row)]

    def batches(self, expected: TableDigest, progress: Progress = lambda _: None) -> Iterator[EncodedBatch]:
        """Encoded batches in the order of the source.

        Raises:
            SubjectsChangedError: after the last batch, if the subjects are not those that `expected` describes. Whoever
                consumes the batches must not use them before the iteration has ended.
        """
        subjects = _Subjects(self.key)
        for batch in self._read():
            ids = subjects.add_registered(batch).ids
            yield EncodedBatch(
                ids, {a.name: encode_attribute(a, batch.columns[a.name]).columns for a in self.attributes}
            )
            progress(subjects.rows)
        if subjects.digest() != expected:
            raise subjects_changed()

    def present(self, progress: Progress = lambda _: None) -> Iterator[EncodedBatch]:
        """Encoded batches of whoever is there now: every row with an id."""
        seen = 0
        for batch in self._read():
            ids = _Subjects(self.key).add_registered(batch).ids
            named = id_lengths(ids) > 0
            yield EncodedBatch(
                ids.filter(pa.array(named)),
                {a.name: encode_attribute(a, batch.columns[a.name]).columns[named] for a in self.attributes},
            )
            seen += batch.size
            progress(seen)

    def _read(self) -> Iterator[RawBatch]:
        return self.read([*self.key.columns, *(a.name for a in self.attributes)])


@dataclass(frozen=True, slots=True)
class RankedPartition:
    """A partition, whose subjects it has and their ranks in the whole table (m): what a worker is given.

    Attributes:
        digest: of its subjects in its order. Another reading that finds others is refused.
    """

    table: PrivateTable
    digest: TableDigest
    ranks: RankList = field(repr=False)

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
        self._key, self._digest, self.rows = key, sha256(), 0

    def add(self, batch: RawBatch) -> SubjectIds:
        """The canonical ids of the next rows, empty where there is none. Raises DataError: a column has no text."""
        found = subject_ids(self._key, batch.columns)
        self._digest.update(length_prefixed(found.ids))
        self.rows += batch.size
        return found

    def add_registered(self, batch: RawBatch) -> SubjectIds:
        """The same of a table whose columns had text. Raises SubjectsChangedError."""
        try:
            return self.add(batch)
        except DataError:
            raise subjects_changed() from None

    def read(self, found: SubjectIds) -> ReadSubjects:
        """The rows that were added last."""
        return ReadSubjects(found.ids, found.counts, self.digest())

    def digest(self) -> TableDigest:
        return TableDigest(self._digest.hexdigest())


def subjects_changed() -> SubjectsChangedError:
    """The refusal of other subjects than those that were registered."""
    return SubjectsChangedError(
        "the table's subjects, or their order, are not those that were registered",
        remedy="Register the changed table again.",
    )
