"""A source read once, each record by itself: to canonical ids, encoded rows, and counts for the owner's eyes alone.

Where the owner registers a table, one that does not fit its schema is refused, for its owner to correct. A reading that
a token asked for refuses nothing: what is unreadable is missing, and a record that lacks what its schema wants of
everybody is passed over (docs/proofs/records.md, 1).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from commingle.party_agent.errors import DataError
from commingle.party_agent.private.engine import IN_PROCESS, Engine, Progress
from commingle.party_agent.private.rows import RawReader
from commingle.party_agent.private.sorting import ENTRY, RecordSorter
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.subject_ids import IdCounts, SubjectKey
from commingle.shared.encoding import Cells, EncodedAttribute, encode_attribute, encode_conforming, subject_ids


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Some records of one reading.

    Attributes:
        ids: canonical, empty where a record has none.
        rows: encoded (m x d).
        found: what the ids are like, without duplicates.
        clipped, missing: cells of each attribute.
    """

    ids: Cells = field(repr=False)
    rows: NDArray[np.int32] = field(repr=False)
    found: IdCounts
    clipped: Mapping[str, int]
    missing: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ReadingRecords:
    """What an engine does with a partition.

    Attributes:
        strict: refuse cells that do not fit the schema; the caller is told of them.
        complete: pass over records that lack a value of an attribute which everybody has: none is made up for it.
    """

    key: SubjectKey
    attributes: Sequence[Attribute]
    strict: bool
    complete: bool = False

    def __call__(self, partition: RawReader, progress: Progress) -> Iterator[ReadRecords]:
        """Its records. Raises DataError: cells do not fit the schema, where `strict`."""
        seen = 0
        encode = encode_conforming if self.strict else encode_attribute
        for batch in partition([*self.key.columns, *(a.name for a in self.attributes)]):
            ids = subject_ids(self.key, batch.columns)
            encoded = {a.name: encode(a, batch.columns[a.name]) for a in self.attributes}
            yield ReadRecords(
                self._whole(ids.ids, encoded) if self.complete else ids.ids,
                np.hstack([one.columns for one in encoded.values()]).astype(ENTRY),
                replace(ids.counts, unreadable=batch.unreadable, uneven=batch.uneven),
                {name: one.clipped for name, one in encoded.items()},
                {name: one.missing + one.not_finite + one.unreadable for name, one in encoded.items()},
            )
            progress(seen := seen + batch.size)

    def _whole(self, ids: Cells, encoded: Mapping[str, EncodedAttribute]) -> Cells:
        lacking = np.zeros(len(ids), bool)
        for attribute in self.attributes:
            if attribute.missing == "error":
                lacking |= encoded[attribute.name].gaps
        found: Cells = pc.if_else(pa.array(lacking), pa.scalar(b"", ids.type), ids)
        return found


@dataclass(frozen=True, slots=True)
class TableScan:
    """What a full reading found.

    Attributes:
        sorter: gives the records, once.
        ids: without duplicates, until all records were given.
    """

    sorter: RecordSorter = field(repr=False)
    ids: IdCounts
    clipped: Mapping[str, int]
    missing: Mapping[str, int]

    @property
    def counts(self) -> IdCounts:
        """What the ids are like, once all records were given."""
        return replace(self.ids, duplicates=self.sorter.duplicates)

    def require_one_row_each(self, key: SubjectKey) -> None:
        """Raise DataError where the records, which have all been given, are no list of subjects."""
        counts = self.counts
        if not counts.rows:
            raise DataError("the table has no rows", remedy="Check the file or the query.")
        if counts.problems:
            of_lines = "A line is a record; where cells hold line ends, give --lines-per-record. "
            of_rules = " Members need one rule: before you choose another --id-rule, agree on it with them."
            raise DataError(
                f"column {key}: {', '.join(counts.problems)}",
                remedy=(of_lines if counts.unreadable or counts.uneven else "")
                + "Keep one row per subject, and give every row an id as its rule wants it."
                + (of_rules if counts.invalid else ""),
            )


@dataclass(frozen=True, slots=True)
class SourceTable:
    """How to read a source.

    Attributes:
        partitions: one reader or more.
        engine: reads them.
    """

    partitions: Sequence[RawReader]
    key: SubjectKey
    attributes: Sequence[Attribute]
    engine: Engine = field(default=IN_PROCESS, repr=False)

    def scan(self, progress: Progress = lambda _: None, *, strict: bool = True, complete: bool = False) -> TableScan:
        """Read everything once; `strict` and `complete` as `ReadingRecords` has them.

        Raises:
            SourceError: the source cannot be read.
            DataError: it lacks a column; or cells do not fit the schema, where `strict`.
        """
        sorter, ids, clipped, missing = RecordSorter(), IdCounts(), Counter[str](), Counter[str]()
        work = ReadingRecords(self.key, self.attributes, strict, complete)
        for _, read in self.engine.run(work, self.partitions, progress):
            sorter.add(read.ids, read.rows)
            ids += read.found
            clipped.update(read.clipped)
            missing.update(read.missing)
        return TableScan(sorter, ids, dict(clipped), dict(missing))
