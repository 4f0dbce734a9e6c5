"""What is made of one partition's rows for a release, and how the agent puts partitions together.

Adversary of a worker: none that it is not itself: it is the party's own and reads the party's rows. It is given the
signed spec, public, the ranks of its rows, and the sums of a first stage, noise in them. What it gives back is not
private yet: exact integers that are linear in the rows, so that any partitions add up to the same block.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.private.engine import Progress
from commingle.party_agent.private.table import RankedPartition
from commingle.shared.documents.row_maps import row_map
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import Sums
from commingle.shared.dp.first_stage import MeasuredAttribute, column_sums
from commingle.shared.encoding import bounded_rows
from commingle.shared.mechanisms import mechanism_of

Mixed = tuple[NDArray[np.int64], NDArray[np.integer]]
"""Ranks (m) and bounded rows (m x d); of a sketch no ranks, and what it makes of all rows of a partition (k x d)."""


@dataclass(frozen=True, slots=True)
class SummingColumns:
    """A first stage's exact sums of a partition."""

    attributes: Sequence[MeasuredAttribute]

    def __call__(self, partition: RankedPartition, progress: Progress) -> Iterator[NDArray[np.int64]]:
        """Of each batch (`first_stage.column_sums`)."""
        for _, rows in partition.rows(progress):
            yield column_sums(rows, self.attributes)


@dataclass(frozen=True, slots=True)
class Mixing:
    """A mechanism's work on the rows of one party, as far as it is exact."""

    spec: ReleaseSpec
    party: str
    sums: Sums | None = field(repr=False)

    def __call__(self, partition: RankedPartition, progress: Progress) -> Iterator[Mixed]:
        """The rows of a partition, mapped and clipped; mixed where the mechanism sketches, so that little travels."""
        party, mechanism = self.spec.party(self.party), mechanism_of(self.spec)
        mapped = row_map(self.spec, party, self.sums)
        bounded = bounded_rows(party.row_norm, mapped, fraction_bits=self.spec.fraction_bits)
        if not mechanism.sketched:
            for ranks, rows in partition.rows(progress):
                yield ranks, bounded(rows).astype(np.int32)  # at most 2^15 each
            return
        sketch = mechanism.accumulator(self.spec, len(party.columns))
        for ranks, rows in partition.rows(progress):
            sketch.add(ranks, bounded(rows))
        yield partition.ranks[:0], sketch.total()

    def total(self, parts: Iterable[Mixed]) -> NDArray[np.int64]:
        """The block of all partitions before noise; where parties exchange first, the rows by rank (n x d)."""
        mechanism, columns = mechanism_of(self.spec), len(self.spec.party(self.party).columns)
        if mechanism.sketched:
            block = np.zeros((mechanism.rows(self.spec), columns), np.int64)
            for _, part in parts:
                block += part
            return block
        rows = mechanism.accumulator(self.spec, columns)
        for ranks, part in parts:
            rows.add(ranks, part.astype(np.int64))
        return rows.total()
