"""Where rows come from: CSV and Parquet files and SQL queries, read in batches so that memory does not grow."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from commingle.party_agent.errors import DataError, SourceError
from commingle.party_agent.private.rows import RawBatch, RawReader
from commingle.party_agent.private.sql_store import SqlSource, read_query
from commingle.shared.documents.model import WireModel
from commingle.shared.runtime.tables import UNREADABLE, column_names, read_batches


class FileSource(WireModel):
    """A CSV file with a header line, or a Parquet file; told apart by its suffix."""

    kind: Literal["file"] = "file"
    path: Annotated[str, Field(min_length=1)]


Source = Annotated[FileSource | SqlSource, Field(discriminator="kind")]


def open_source(source: FileSource | SqlSource, *, strict: bool = True) -> RawReader:
    """A reader for a source. Reading raises SourceError or DataError for whatever cannot be read.

    Args:
        source: what was registered, or is to be.
        strict: refuse a malformed file, for its owner to correct; an agent that is bound to it does not.
    """

    def read(columns: Sequence[str]) -> Iterator[RawBatch]:
        if isinstance(source, SqlSource):
            return read_query(source, columns)
        return _read_file(Path(source.path), columns, strict=strict)

    return read


def _read_file(path: Path, columns: Sequence[str], *, strict: bool) -> Iterator[RawBatch]:
    try:
        require_columns(columns, column_names(path, strict=strict))
        for batch in read_batches(path, columns, strict=strict):
            yield RawBatch(dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows)
    except UNREADABLE as error:
        raise _unreadable(path, error) from None


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


def _unreadable(path: Path, error: Exception) -> SourceError:
    # Arrow's own message may quote a cell, so only the kind of failure is told
    said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return SourceError(
        f"cannot read {path} ({said})",
        remedy="Check that the file exists, is readable and is a CSV with a header line or a Parquet file.",
    )
