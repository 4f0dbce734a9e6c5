"""Where rows come from: CSV, Parquet and Excel files and SQL queries, read in batches so that memory does not grow.

A table is one file or query, or many of them: its partitions.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from commingle.party_agent.errors import DataError, SourceError
from commingle.party_agent.private.engine import Engine
from commingle.party_agent.private.excel import is_workbook, read_sheet, sheet_columns
from commingle.party_agent.private.parquet_store import (
    PartitionedSource,
    list_partitions,
    require_columns,
    require_readable,
    unreadable,
)
from commingle.party_agent.private.queries import require_each_row_by_itself
from commingle.party_agent.private.rows import RawBatch, RawReader
from commingle.party_agent.private.sql_store import SqlSource, read_query
from commingle.party_agent.private.table import SourceTable
from commingle.shared.documents.model import WireModel
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.runtime.csv_format import MOST_LINES, USUAL, CsvFormat, Decimal, Encoding, Separator
from commingle.shared.runtime.tables import UNREADABLE, column_names, guess_format, is_parquet, read_batches


class FileSource(WireModel):
    """A CSV file with a header line, a Parquet file or an Excel workbook, told apart by the suffix.

    Attributes:
        path: absolute, on the machine of the agent.
        encoding: of a CSV's text.
        separator: what stands between a CSV's columns.
        decimal: sign of a CSV's numbers.
        lines_per_record: most lines of a CSV's record; above 1 its cells may hold line ends (`CsvFormat`).
    """

    kind: Literal["file"] = "file"
    path: Annotated[str, Field(min_length=1)]
    encoding: Encoding = USUAL.encoding
    separator: Separator = USUAL.separator
    decimal: Decimal = USUAL.decimal
    lines_per_record: Annotated[int, Field(ge=1, le=MOST_LINES)] = USUAL.lines_per_record

    @property
    def csv_format(self) -> CsvFormat:
        """How its text is read."""
        return CsvFormat(
            encoding=self.encoding,
            separator=self.separator,
            decimal=self.decimal,
            lines_per_record=self.lines_per_record,
        )


def source_columns(source: FileSource) -> list[str]:
    """The names of a file's columns; no row is read. Raises SourceError."""
    path = Path(source.path)
    try:
        return sheet_columns(path) if is_workbook(path) else column_names(path, source.csv_format)
    except UNREADABLE as error:
        raise unreadable(path, error, remedy=other_format(source)) from None


class PushedSource(WireModel):
    """Rows that the party's own systems push to the agent."""

    kind: Literal["pushed"] = "pushed"


Source = Annotated[FileSource | SqlSource | PartitionedSource | PushedSource, Field(discriminator="kind")]


def open_table(
    source: Source,
    key: SubjectKey,
    attributes: Sequence[Attribute],
    *,
    engine: Engine,
    strict: bool = False,
) -> SourceTable:
    """How to read some attributes of a source.

    Args:
        source: what was registered, or is to be.
        key: what identifies a subject.
        attributes: in the order in which their columns are wanted.
        engine: reads partitions.
        strict: refuse partitions of other columns' types than the first, for their owner to correct.

    Raises:
        SourceError, DataError: the partitions cannot be listed.
        SourceRefusedError: a row of a query may be of several people's records, and nobody promised otherwise.
    """
    if isinstance(source, SqlSource) and not source.promised:
        require_each_row_by_itself(source.queries, source.url.partition("://")[0], key.columns)
    readers: Sequence[RawReader] | None
    if isinstance(source, PushedSource):
        raise SourceError("rows of this data set are pushed", remedy="Push them.")
    if isinstance(source, PartitionedSource):
        readers = list_partitions(source, strict=strict)
    elif isinstance(source, SqlSource) and source.partitions is not None:
        readers = [partial(read_query, one) for one in source.partitions]
    else:
        return SourceTable([open_source(source)], key, attributes)
    return SourceTable(readers, key, attributes, engine)


def open_source(source: FileSource | SqlSource) -> RawReader:
    """A reader for a source of one partition. Reading raises SourceError or DataError for whatever cannot be read."""

    def read(columns: Sequence[str]) -> Iterator[RawBatch]:
        return read_query(source, columns) if isinstance(source, SqlSource) else _read_file(source, columns)

    return read


def _read_file(source: FileSource, columns: Sequence[str]) -> Iterator[RawBatch]:
    path, form = Path(source.path), source.csv_format
    if is_workbook(path):
        require_columns(columns, sheet_columns(path))
        yield from read_sheet(path, columns)
        return
    try:
        require_columns(columns, column_names(path, form))
        for batch in read_batches(path, columns, form):
            require_readable(batch.cells.schema, batch.cells.schema.names)
            cells = dict(zip(batch.cells.schema.names, batch.cells.columns, strict=True))
            yield RawBatch(cells, batch.cells.num_rows, batch.unreadable, batch.uneven)
    except UNREADABLE as error:
        raise unreadable(path, error, remedy=other_format(source)) from None
    except DataError as error:
        error.remedy = other_format(source) or error.remedy
        raise


def other_format(source: FileSource) -> str:
    """How the file seems to be written, where that is not as was said; "" otherwise. For its owner."""
    path = Path(source.path)
    try:
        known = is_parquet(path) or is_workbook(path)
        seen = source.csv_format if known else replace(guess_format(path), lines_per_record=source.lines_per_record)
    except UNREADABLE:
        return ""
    return "" if seen == source.csv_format else f"It looks like this: {seen}. Read it so: {seen.options or 'as usual'}"


@contextmanager
def remedying(source: Source) -> Iterator[None]:
    """Where rows do not fit their schema because a CSV is written otherwise than declared, say so: to its owner."""
    try:
        yield
    except DataError as error:
        error.remedy = (isinstance(source, FileSource) and other_format(source)) or error.remedy
        raise
