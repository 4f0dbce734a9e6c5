"""A table in partitions, read by an engine: what comes back are ids, counts and exact integers.

Whose rows a table has does not depend on its partitions: its digest is of the sorted ids. The ids of all partitions are
brought to the agent and sorted there, so that every partition can be given the ranks of its rows; each is then read
under a digest of its own, which refuses rows that moved meanwhile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from commingle.party_agent.private.digest import TableDigest
from commingle.party_agent.private.engine import IN_PROCESS, Engine, Progress, Work
from commingle.party_agent.private.ranks import Ranks
from commingle.party_agent.private.rows import EncodedBatch
from commingle.party_agent.private.table import (
    Counted,
    PrivateTable,
    RankedPartition,
    ReadCells,
    ReadSubjects,
    TableScan,
    subjects_changed,
)
from commingle.shared.documents.subject_ids import IdCounts, SubjectKey


@dataclass(frozen=True, slots=True)
class PartitionedTable:
    """How to read a registered table that is in partitions."""

    partitions: Sequence[PrivateTable]
    key: SubjectKey
    engine: Engine = field(repr=False)

    def scan(self, progress: Progress = lambda _: None, *, strict: bool = True) -> TableScan:
        """As `PrivateTable.scan`."""
        counted = self._read(ReadingCells(strict=strict), progress)
        ranks = counted.ids.ranks()
        return TableScan.of(counted, ranks, _digest(ranks), self.key)

    def count_ids(self, expected: TableDigest) -> tuple[IdCounts, bool]:
        """As `PrivateTable.count_ids`."""
        counted = self._read(reading_subjects, lambda _: None)
        ranks = counted.ids.ranks()
        return replace(counted.found, duplicates=ranks.duplicates), _digest(ranks) == expected

    def ranks(self, expected: TableDigest, progress: Progress = lambda _: None) -> Ranks:
        """As `PrivateTable.ranks`, the rows being those of the partitions in whatever order they were read."""
        return _ranks(self._read(reading_subjects, progress), expected)

    def ranked(self, expected: TableDigest, progress: Progress = lambda _: None) -> Sequence[RankedPartition]:
        """The partitions that have rows, with the ranks of these. Raises SubjectsChangedError."""
        found = dict[int, tuple[int, int, TableDigest]]()
        counted = self._read(reading_subjects, progress, found)
        by_row = _ranks(counted, expected).by_row
        return [
            RankedPartition(self.partitions[place], digest, by_row.part(first, rows))
            for place, (first, rows, digest) in sorted(found.items())
            if rows
        ]

    def batches(self, expected: TableDigest, progress: Progress = lambda _: None) -> Iterator[EncodedBatch]:
        """As `PrivateTable.batches`, in the order of the partitions; all are read before the first is given."""
        made = list(self.engine.run(encoding, self.ranked(expected), progress))
        return (batch for _, batch in sorted(made, key=lambda one: one[0]))

    def present(self, progress: Progress = lambda _: None) -> Iterator[EncodedBatch]:
        """As `PrivateTable.present`, in this process."""
        return (batch for _, batch in IN_PROCESS.run(_presence, self.partitions, progress))

    def _read(
        self,
        work: Work[PrivateTable, ReadSubjects | ReadCells],
        progress: Progress,
        found: dict[int, tuple[int, int, TableDigest]] | None = None,
    ) -> Counted:
        """All that `work` finds; of each partition where its rows begin among all, how many it has, and its digest."""
        counted = Counted()
        for place, read in self.engine.run(work, self.partitions, progress):
            before = counted.ids.rows
            counted.add(read)
            if found is not None:
                first, _, _ = found.get(place, (before, 0, counted.digest))
                found[place] = (first, counted.ids.rows - first, counted.digest)
        return counted


@dataclass(frozen=True, slots=True)
class ReadingCells:
    """What registration does with a partition."""

    strict: bool

    def __call__(self, partition: PrivateTable, progress: Progress) -> Iterator[ReadCells]:
        """Its cells counted."""
        return partition.read_cells(progress, strict=self.strict)


def reading_subjects(partition: PrivateTable, progress: Progress) -> Iterator[ReadSubjects]:
    """Its subjects."""
    return partition.read_subjects(progress)


def _presence(partition: PrivateTable, progress: Progress) -> Iterator[EncodedBatch]:
    return partition.present(progress)


def encoding(partition: RankedPartition, progress: Progress) -> Iterator[EncodedBatch]:
    """Its encoded rows."""
    return partition.table.batches(partition.digest, progress)


def _ranks(counted: Counted, expected: TableDigest) -> Ranks:
    ranks = counted.ids.ranks()
    if _digest(ranks) != expected:
        raise subjects_changed()
    return ranks


def _digest(ranks: Ranks) -> TableDigest:
    """As that of a table in one piece, which is of ids in their order there; the two are never the same."""
    digest = sha256(b"commingle/v1/partitioned")
    for piece in ranks.listed():
        digest.update(piece)
    return TableDigest(digest.hexdigest())
