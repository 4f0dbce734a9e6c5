"""Tables as directories of Parquet files, and work for workers, who load this module: it loads little."""

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from commingle.party_agent.private.engine import IN_PROCESS, Engine, Made, Partition, Progress, Work
from commingle.party_agent.private.parquet_store import PartitionedSource
from commingle.party_agent.private.sources import SourceTable, open_table
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.subject_ids import SubjectKey

Columns = dict[str, "pa.Array[Any]"]


def write_partitions(folder: Path, columns: Columns, ends: Sequence[int], *, seed: int | None = None) -> Path:
    """A file for the rows up to each end; shuffled before, where a seed is given."""
    table = pa.table(columns)
    if seed is not None:
        table = table.take(np.random.default_rng(seed).permutation(len(table)))
    folder.mkdir()
    starts = [0, *ends]
    for place, (start, end) in enumerate(zip(starts, [*ends, len(table)], strict=True)):
        pq.write_table(table.slice(start, end - start), folder / f"part-{place}.parquet")
    (folder / "_SUCCESS").touch()
    return folder


def lake(path: Path | str, *attributes: Attribute, engine: Engine = IN_PROCESS, strict: bool = False) -> SourceTable:
    """The table of the files below a directory."""
    return open_table(PartitionedSource(path=str(path)), SubjectKey.of("id"), attributes, engine=engine, strict=strict)


@dataclass(frozen=True)
class KillingOnce:
    """An engine the first worker of which is killed after its first piece, once for all readings."""

    engine: Engine
    flag: Path

    def run(
        self, work: Work[Partition, Made], partitions: Sequence[Partition], progress: Progress
    ) -> Iterator[tuple[int, Made]]:
        return self.engine.run(_Killing(work, self.flag), partitions, progress)

    def describe(self) -> str:
        return self.engine.describe()


@dataclass(frozen=True)
class _Killing:
    work: Any
    flag: Path

    def __call__(self, partition: Any, progress: Progress) -> Iterator[Any]:
        for made in self.work(partition, progress):
            try:
                self.flag.touch(exist_ok=False)
            except FileExistsError:
                yield made
            else:
                os.kill(os.getpid(), signal.SIGKILL)


def failing(partition: object, progress: Progress) -> Iterator[int]:
    """Work that fails and quotes what it was given."""
    progress(0)
    yield from ()
    raise ValueError("SENTINEL", partition)


def reading_the_rows(partition: int, progress: Progress) -> Iterator[int]:
    """Work on ten rows."""
    progress(10)
    yield partition
