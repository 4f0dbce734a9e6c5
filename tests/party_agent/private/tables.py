"""Small tables as readers, without a file."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from commingle.party_agent.private.rows import RawBatch, RawReader
from commingle.party_agent.private.table import PrivateTable
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.subject_ids import SubjectKey

NUMBER = NumericAttribute(name="x", lower=0, upper=10)
BINARY = BinaryAttribute(name="b", levels=("no", "yes"))
LEVELS = CategoricalAttribute(name="c", levels=("r", "s", "t"))


def column(values: Sequence[object], kind: Any = None) -> "pa.Array[Any]":
    array: pa.Array[Any] = pa.array(list(values), kind)
    return array


def reader_of(columns: dict[str, "pa.Array[Any]"], *, batch: int = 1 << 16) -> RawReader:
    """Reads these columns, `batch` rows at a time."""

    def read(names: Sequence[str]) -> Iterator[RawBatch]:
        n = len(next(iter(columns.values())))
        for start in range(0, n, batch):
            part = {name: columns[name].slice(start, batch) for name in names}
            yield RawBatch(part, min(batch, n - start))

    return read


def table_of(columns: dict[str, "pa.Array[Any]"], *attributes: Attribute, batch: int = 1 << 16) -> PrivateTable:
    return PrivateTable(reader_of(columns, batch=batch), SubjectKey.of("id"), attributes)
