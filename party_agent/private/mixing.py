"""What is made of one partition's rows for a release, and how the agent puts partitions together.

Adversary of a worker: none that it is not itself: it is the party's own and reads the party's rows. It is given the
signed spec, public, the ranks of its rows, and the sums of a first stage, noise in them. What it gives back is not
private yet: exact integers that are linear in the rows, so that any partitions add up to the same block.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.private.engine import Progress
from commingle.party_agent.private.placing import PlacedRows
from commingle.party_agent.private.snapshot import Snapshot
from commingle.shared.documents.linkage import pseudonyms
from commingle.shared.documents.row_maps import row_map
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import Sums
from commingle.shared.dp.first_stage import FirstStage
from commingle.shared.dp.fixed_point import presence
from commingle.shared.encoding import bounded_rows
from commingle.shared.mechanisms.interface import Names
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.resolve import closed

Mixed = tuple[Names, NDArray[np.integer]]
"""Names (m) and bounded rows (m x d); of a sketch no names, and what it makes of all rows of a partition (k x d)."""


class NamedRows(Protocol):
    """Rows whose places are known: `RankedRows`, or those of keyed subjects."""

    def rows(self, progress: Progress) -> Iterator[tuple[Names, NDArray[np.int64]]]:
        """Names (b) and encoded rows (b x d) of each batch."""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Of everybody in a snapshot, each named by its pseudonym in one release. Not for workers: it holds the key."""

    snapshot: Snapshot
    linkage_key: bytes = field(repr=False)
    release: str

    def rows(self, progress: Progress) -> Iterator[tuple[Names, NDArray[np.int64]]]:
        """Pseudonyms (b, 32) and encoded rows (b x d) of each batch."""
        for subjects, rows in self.snapshot.records(progress):
            ids: list[Any] = subjects.to_pylist()
            yield pseudonyms(self.linkage_key, ids, spec_digest=self.release), rows


@dataclass(frozen=True, slots=True)
class SummingColumns:
    """A first stage's exact sums of a partition."""

    stage: FirstStage

    def __call__(self, partition: NamedRows, progress: Progress) -> Iterator[NDArray[np.int64]]:
        """Of each batch, without noise."""
        for _, rows in partition.rows(progress):
            yield self.stage.sums(rows)


@dataclass(frozen=True, slots=True)
class Mixing:
    """A mechanism's work on the rows of one party, as far as it is exact."""

    spec: ReleaseSpec
    party: str
    sums: Sums | None = field(repr=False)

    def __call__(self, partition: NamedRows, progress: Progress) -> Iterator[Mixed]:
        """The rows of a partition, mapped and clipped; mixed where the mechanism sketches, so that little travels."""
        party, mechanism = self.spec.party(self.party), mechanism_of(self.spec)
        mapped = row_map(closed(self.spec), party, self.sums)
        clipped = bounded_rows(party, mapped, fraction_bits=self.spec.fraction_bits)

        def bounded(rows: NDArray[np.int64]) -> NDArray[np.int64]:
            return with_presence(clipped(rows), self.spec.fraction_bits) if self.spec.keyed else clipped(rows)

        if not mechanism.sketched:
            for names, rows in partition.rows(progress):
                yield names, bounded(rows).astype(np.int32)  # at most 2^15 each
            return
        sketch = mechanism.accumulator(self.spec, len(party.columns))
        for names, rows in partition.rows(progress):
            sketch.add(names, bounded(rows))
        yield np.empty(0, np.int64), sketch.total()

    def total(self, parts: Iterable[Mixed]) -> NDArray[np.int64]:
        """The block of all partitions before noise."""
        mechanism, columns = mechanism_of(self.spec), len(self.spec.party(self.party).columns)
        if mechanism.sketched:
            block = np.zeros((mechanism.rows(self.spec), columns), np.int64)
            for _, part in parts:
                block += part
            return block
        rows = mechanism.accumulator(self.spec, columns)
        for names, part in parts:
            rows.add(names, part.astype(np.int64))
        return rows.total()

    def in_order(self, parts: Iterable[Mixed]) -> Iterable[NDArray[np.int64]]:
        """What parties exchange: the rows (n x d), or buckets, some at a time, each in its place."""
        spec, mechanism, columns = self.spec, mechanism_of(self.spec), len(self.spec.party(self.party).columns)
        rows = PlacedRows(spec.table_rows, partial(mechanism.places, spec), partial(mechanism.window, spec, columns))
        for names, part in parts:
            rows.add(names, part)
        return rows


def with_presence(rows: NDArray[np.int64], fraction_bits: int) -> NDArray[np.int64]:
    """Bounded rows (m x d) behind the presence of each: (m x (1 + d)). It is not clipped with the row."""
    return np.column_stack([np.full(len(rows), presence(fraction_bits), np.int64), rows])
