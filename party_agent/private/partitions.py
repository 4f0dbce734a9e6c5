"""A table in partitions, read by an engine: what comes back are ids, counts and exact integers.

Whose rows a table has does not depend on its partitions: its digest is of the sorted ids. The ids of all partitions are
brought to the agent and sorted there, so that every partition can be given the ranks of its rows; each is then read
under a digest of its own, which refuses rows that moved meanwhile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TypeVar

import numpy as np
import pyarrow as pa

from commingle.party_agent.private.digest import TableDigest
from commingle.party_agent.private.engine import Engine, Progress, Work
from commingle.party_agent.private.rows import EncodedBatch
from commingle.party_agent.private.table import (
    PrivateTable,
    RankedPartition,
    Ranks,
    ReadCells,
    ReadSubjects,
    TableScan,
    subjects_changed,
)
from commingle.shared.documents.subject_ids import IdCounts, SubjectKey
from commingle.shared.encoding import Cells

Made = TypeVar("Made")
_IDS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class PartitionedTable:
    """How to read a registered table that is in partitions."""

    partitions: Sequence[PrivateTable]
    key: SubjectKey
    engine: Engine = field(repr=False)

    def scan(self, progress: Progress = lambda _: None, *, strict: bool = True) -> TableScan:
        """As `PrivateTable.scan`."""
        cells = self._each(ReadingCells(strict=strict), progress)
        return TableScan.of(_joined([part.subjects for part in cells]), cells, self.key)

    def count_ids(self, expected: TableDigest) -> tuple[IdCounts, bool]:
        """As `PrivateTable.count_ids`."""
        found = _joined(self._each(reading_subjects, lambda _: None))
        return found.counts(), found.digest == expected

    def ranks(self, expected: TableDigest, progress: Progress = lambda _: None) -> Ranks:
        """As `PrivateTable.ranks`, the rows being those of one partition after the other."""
        return self._ranks(self._each(reading_subjects, progress), expected)

    def ranked(self, expected: TableDigest, progress: Progress = lambda _: None) -> Sequence[RankedPartition]:
        """The partitions that have rows, with the ranks of these. Raises SubjectsChangedError."""
        found = self._each(reading_subjects, progress)
        ends = np.cumsum([len(part.ids) for part in found])[:-1]
        ranks = np.split(self._ranks(found, expected).by_row, ends)
        parts = zip(self.partitions, found, ranks, strict=True)
        return [RankedPartition(table, one.digest, own) for table, one, own in parts if len(own)]

    def batches(self, expected: TableDigest, progress: Progress = lambda _: None) -> Iterator[EncodedBatch]:
        """As `PrivateTable.batches`, in the order of the partitions; all are read before the first is given."""
        made = list(self.engine.run(encoding, self.ranked(expected), progress))
        return (batch for _, batch in sorted(made, key=lambda one: one[0]))

    def present(self, progress: Progress = lambda _: None) -> Iterator[EncodedBatch]:
        """As `PrivateTable.present`, of one partition after the other, in this process: each subject has one row."""
        met, seen = set[bytes](), 0

        def told(rows: int) -> None:
            progress(seen + rows)

        for partition in self.partitions:
            rows = 0
            for batch in partition.present(told, before=met):
                rows += len(batch.subjects)
                yield batch
            seen += rows

    def _each(self, work: Work[PrivateTable, Made], progress: Progress) -> list[Made]:
        """The one thing that `work` makes of each partition, in the order of the partitions."""
        made = dict(self.engine.run(work, self.partitions, progress))
        return [made[place] for place in range(len(self.partitions))]

    def _ranks(self, found: Sequence[ReadSubjects], expected: TableDigest) -> Ranks:
        ranks = Ranks.of(_concatenated([part.ids for part in found]))
        if _digest(ranks.sorted_ids) != expected:
            raise subjects_changed()
        return ranks


@dataclass(frozen=True, slots=True)
class ReadingCells:
    """What registration does with a partition."""

    strict: bool

    def __call__(self, partition: PrivateTable, progress: Progress) -> Iterator[ReadCells]:
        """Its cells counted."""
        yield partition.read_cells(progress, strict=self.strict)


def reading_subjects(partition: PrivateTable, progress: Progress) -> Iterator[ReadSubjects]:
    """Its subjects."""
    yield partition.read_subjects(progress)


def encoding(partition: RankedPartition, progress: Progress) -> Iterator[EncodedBatch]:
    """Its encoded rows."""
    return partition.table.batches(partition.digest, progress)


def _joined(parts: Sequence[ReadSubjects]) -> ReadSubjects:
    """The whole table's, whatever its partitions are: the digest is of the sorted ids."""
    ids = _concatenated([part.ids for part in parts])
    return ReadSubjects(ids, sum((part.found for part in parts), start=IdCounts()), _digest(Ranks.of(ids).sorted_ids))


def _concatenated(parts: Sequence[Cells]) -> Cells:
    return pa.concat_arrays(parts)


def _digest(sorted_ids: Cells) -> TableDigest:
    """As that of a table in one piece, which is of ids in their order there; the two are never the same."""
    digest = sha256(b"commingle/v1/partitioned")
    for start in range(0, len(sorted_ids), _IDS_AT_ONCE):
        ids = (one.as_py() for one in sorted_ids[start : start + _IDS_AT_ONCE])
        digest.update(b"".join(len(i).to_bytes(4, "big") + i for i in ids))
    return TableDigest(digest.hexdigest())
