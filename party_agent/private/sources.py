"""Where rows come from: CSV and Parquet files and SQL queries, read in batches so that memory does not grow."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
from pydantic import Field

from commingle.party_agent.errors import DataError, SourceError
from commingle.party_agent.private.rows import RawBatch, RawReader
from commingle.party_agent.private.sql_store import SqlSource, read_query
from commingle.shared.documents.model import WireModel

_ROWS_AT_ONCE = 1 << 16
_CSV_BLOCK_BYTES = 1 << 22
_MISSING = ["", "NA", "N/A", "null", "NULL"]


class FileSource(WireModel):
    """A CSV file with a header line, or a Parquet file; told apart by its suffix."""

    kind: Literal["file"] = "file"
    path: Annotated[str, Field(min_length=1)]


Source = Annotated[FileSource | SqlSource, Field(discriminator="kind")]


def open_source(source: FileSource | SqlSource) -> RawReader:
    """A reader for a source. Reading raises SourceError or DataError for whatever cannot be read."""

    def read(columns: Sequence[str]) -> Iterator[RawBatch]:
        if isinstance(source, SqlSource):
            return read_query(source, columns)
        path = Path(source.path)
        return _read_parquet(path, columns) if path.suffix.lower() in {".parquet", ".pq"} else _read_csv(path, columns)

    return read


def _read_parquet(path: Path, columns: Sequence[str]) -> Iterator[RawBatch]:
    try:
        with pq.ParquetFile(path) as file:
            require_columns(columns, file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=list(dict.fromkeys(columns))):
                yield _raw(batch)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def _read_csv(path: Path, columns: Sequence[str]) -> Iterator[RawBatch]:
    wanted = list(dict.fromkeys(columns))
    try:
        with _open_csv(path, pc.ConvertOptions()) as reader:
            require_columns(columns, reader.schema.names)
        convert = pc.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.string()),
            include_columns=wanted,  # nobody cares what is in the others
            null_values=_MISSING,
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        )
        with _open_csv(path, convert) as reader:
            for batch in reader:
                yield _raw(batch)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None


def _open_csv(path: Path, convert: pc.ConvertOptions) -> pc.CSVStreamingReader:
    return pc.open_csv(
        path,
        read_options=pc.ReadOptions(block_size=_CSV_BLOCK_BYTES, use_threads=False),
        parse_options=pc.ParseOptions(newlines_in_values=True),
        convert_options=convert,
    )


def require_columns(wanted: Sequence[str], present: Sequence[str]) -> None:
    """Raise DataError unless every wanted column is present exactly once."""
    missing = [name for name in wanted if name not in present]
    if missing:
        # the names that are there may be the first row of a file without a header, so they are only counted
        raise DataError(
            f"the source has no column {', '.join(missing)} among its {len(present)}",
            remedy="Check the spelling in the schema and of --subject-id; a CSV needs a header line.",
        )
    twice = [name for name in wanted if list(present).count(name) > 1]
    if twice:
        raise DataError(f"the source has column {twice[0]} more than once", remedy="Rename one of them.")


def _raw(batch: pa.RecordBatch) -> RawBatch:
    return RawBatch(dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows)


def _unreadable(path: Path, error: Exception) -> SourceError:
    # Arrow's own message may quote a cell, so only the kind of failure is told
    said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return SourceError(
        f"cannot read {path} ({said})",
        remedy="Check that the file exists, is readable and is a CSV with a header line or a Parquet file.",
    )
