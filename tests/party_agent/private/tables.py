"""Small tables as readers, without a file; and their snapshots."""

import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from commingle.party_agent.private.rows import RawBatch, RawReader
from commingle.party_agent.private.snapshot import Snapshot, write_snapshot
from commingle.party_agent.private.sorting import Records
from commingle.party_agent.private.sources import SourceTable
from commingle.party_agent.private.sql_store import SqlSource
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.subject_ids import SubjectKey

NUMBER = NumericAttribute(name="x", lower=0, upper=10)
BINARY = BinaryAttribute(name="b", levels=("no", "yes"))
LEVELS = CategoricalAttribute(name="c", levels=("r", "s", "t"))
Columns = dict[str, "pa.Array[Any]"]


def column(values: Sequence[object], kind: Any = None) -> "pa.Array[Any]":
    array: pa.Array[Any] = pa.array(list(values), kind)
    return array


def reader_of(columns: Columns, *, batch: int = 1 << 16) -> RawReader:
    """Reads these columns, `batch` rows at a time."""

    def read(names: Sequence[str]) -> Iterator[RawBatch]:
        n = len(next(iter(columns.values())))
        for start in range(0, n, batch):
            part = {name: columns[name].slice(start, batch) for name in names}
            yield RawBatch(part, min(batch, n - start))

    return read


def sqlite_table(
    path: Path,
    rows: Sequence[Sequence[Any]],
    *,
    columns: str = "id, x",
    query: str | tuple[str, ...] = "SELECT * FROM t",
) -> SqlSource:
    """A query on a table t of these rows in a new file."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE t ({columns})")
        places = ", ".join("?" * (columns.count(",") + 1))
        db.executemany(f"INSERT INTO t VALUES ({places})", rows)  # noqa: S608 - ours
    return SqlSource(url=f"sqlite:///{path}", query=query)


def table_of(columns: Columns, *attributes: Attribute, batch: int = 1 << 16) -> SourceTable:
    return SourceTable([reader_of(columns, batch=batch)], SubjectKey.of("id"), attributes)


def cut(records: Iterator[Records], size: int) -> Iterator[Records]:
    """The same records, at most `size` at a time."""
    for ids, rows in records:
        for start in range(0, len(ids), size):
            yield ids[start : start + size], rows[start : start + size]


def snapshot_from(folder: Path, table: SourceTable, *, piece: int = 1 << 16, strict: bool = True) -> Snapshot:
    """What an agent makes of a table as it reads it, in pieces of at most `piece` subjects; others have other names."""
    records = cut(iter(table.scan(strict=strict).sorter), piece)
    made = write_snapshot(folder, secrets.token_bytes(32), tuple(table.attributes), records)
    return replace(made, engine=table.engine)


def snapshot_of(
    folder: Path, columns: Columns, *attributes: Attribute, piece: int = 1 << 16, strict: bool = True
) -> Snapshot:
    """Of these columns."""
    return snapshot_from(folder, table_of(columns, *attributes), piece=piece, strict=strict)


def ids_of(snapshot: Snapshot) -> list[Any]:
    """The canonical ids in order."""
    return [identifier for ids in snapshot.ids() for identifier in ids.to_pylist()]


def rows_of(snapshot: Snapshot) -> dict[bytes, list[int]]:
    """The row of each subject."""
    found = dict[bytes, list[int]]()
    for ids, rows in snapshot.records():
        listed: list[Any] = ids.to_pylist()
        found |= zip(listed, rows.tolist(), strict=True)
    return found
