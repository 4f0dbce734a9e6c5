"""Where rows come from: CSV, Parquet and Excel files and SQL queries, read in batches so that memory does not grow.

A table is one file or query, or many of them: its partitions.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from commingle.party_agent.errors import DataError
from commingle.party_agent.private.engine import Engine
from commingle.party_agent.private.excel import is_workbook, read_sheet, sheet_columns
from commingle.party_agent.private.parquet_store import (
    PartitionedSource,
    list_partitions,
    require_columns,
    unreadable,
)
from commingle.party_agent.private.partitions import PartitionedTable
from commingle.party_agent.private.rows import RawBatch, RawReader
from commingle.party_agent.private.sql_store import SqlSource, read_query
from commingle.party_agent.private.table import PrivateTable
from commingle.shared.documents.model import ExtendedModel
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.runtime.csv_format import USUAL, CsvFormat, Decimal, Encoding, Separator
from commingle.shared.runtime.tables import UNREADABLE, column_names, guess_format, is_parquet, read_batches


class FileSource(ExtendedModel):
    """A CSV file with a header line, a Parquet file or an Excel workbook, told apart by the suffix.

    Attributes:
        path: absolute, on the machine of the agent.
        encoding: of a CSV's text.
        separator: what stands between a CSV's columns.
        decimal: sign of a CSV's numbers.
    """

    added: ClassVar[frozenset[str]] = frozenset({"encoding", "separator", "decimal"})

    kind: Literal["file"] = "file"
    path: Annotated[str, Field(min_length=1)]
    encoding: Encoding = USUAL.encoding
    separator: Separator = USUAL.separator
    decimal: Decimal = USUAL.decimal

    @property
    def csv_format(self) -> CsvFormat:
        """How its text is read."""
        return CsvFormat(encoding=self.encoding, separator=self.separator, decimal=self.decimal)


def source_columns(source: FileSource) -> list[str]:
    """The names of a file's columns; no row is read. Raises SourceError."""
    path = Path(source.path)
    try:
        return sheet_columns(path) if is_workbook(path) else column_names(path, source.csv_format)
    except UNREADABLE as error:
        raise unreadable(path, error, remedy=other_format(source)) from None


Source = Annotated[FileSource | SqlSource | PartitionedSource, Field(discriminator="kind")]
Table = PrivateTable | PartitionedTable


def open_table(
    source: FileSource | SqlSource | PartitionedSource,
    key: SubjectKey,
    attributes: Sequence[Attribute],
    *,
    engine: Engine,
    strict: bool = False,
) -> Table:
    """How to read some attributes of a source.

    Args:
        source: what was registered, or is to be.
        key: what identifies a subject.
        attributes: in the order in which their columns are wanted.
        engine: reads partitions.
        strict: as in `open_source`; partitions of other columns' types than the first are refused then, too.

    Raises:
        SourceError, DataError: the partitions cannot be listed.
    """
    readers: Sequence[RawReader] | None
    if isinstance(source, PartitionedSource):
        readers = list_partitions(source, strict=strict)
    elif isinstance(source, SqlSource) and source.partitions is not None:
        readers = [partial(read_query, one) for one in source.partitions]
    else:
        return PrivateTable(open_source(source, strict=strict), key, attributes)
    return PartitionedTable([PrivateTable(read, key, attributes) for read in readers], key, engine)


def open_source(source: FileSource | SqlSource, *, strict: bool = True) -> RawReader:
    """A reader for a source of one partition. Reading raises SourceError or DataError for whatever cannot be read.

    Args:
        source: what was registered, or is to be.
        strict: refuse a malformed file, for its owner to correct; an agent that is bound to it does not.
    """

    def read(columns: Sequence[str]) -> Iterator[RawBatch]:
        if isinstance(source, SqlSource):
            return read_query(source, columns)
        return _read_file(source, columns, strict=strict)

    return read


def _read_file(source: FileSource, columns: Sequence[str], *, strict: bool) -> Iterator[RawBatch]:
    path, form = Path(source.path), source.csv_format
    if is_workbook(path):
        require_columns(columns, sheet_columns(path))
        yield from read_sheet(path, columns)
        return
    try:
        require_columns(columns, column_names(path, form, strict=strict))
        for batch in read_batches(path, columns, form, strict=strict):
            yield RawBatch(dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows)
    except UNREADABLE as error:
        raise unreadable(path, error, remedy=other_format(source, strict=strict)) from None
    except DataError as error:
        error.remedy = other_format(source, strict=strict) or error.remedy
        raise


def other_format(source: FileSource, *, strict: bool = True) -> str:
    """How the file seems to be written, where that is not as was said and its owner may be told; "" otherwise."""
    path = Path(source.path)
    try:
        known = not strict or is_parquet(path) or is_workbook(path)
        seen = source.csv_format if known else guess_format(path)
    except UNREADABLE:
        return ""
    return "" if seen == source.csv_format else f"It looks like this: {seen}. Read it so: {seen.options or 'as usual'}"
