"""Where rows come from: CSV and Parquet files and SQL queries, read in batches so that memory does not grow."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from commingle.party_agent.errors import DataError, SourceError
from commingle.party_agent.private.rows import RawBatch, RawReader
from commingle.party_agent.private.sql_store import SqlSource, read_query
from commingle.shared.documents.model import ExtendedModel
from commingle.shared.runtime.csv_format import USUAL, CsvFormat, Decimal, Encoding, Separator
from commingle.shared.runtime.tables import UNREADABLE, column_names, guess_format, is_parquet, read_batches

_REMEDY = "Check that the file exists, is readable and is a CSV with a header line or a Parquet file."


class FileSource(ExtendedModel):
    """A CSV file with a header line, or a Parquet file; told apart by its suffix. How a CSV is written is said."""

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
        return _read_file(source, columns, strict=strict)

    return read


def _read_file(source: FileSource, columns: Sequence[str], *, strict: bool) -> Iterator[RawBatch]:
    path, form = Path(source.path), source.csv_format
    try:
        require_columns(columns, column_names(path, form, strict=strict))
        for batch in read_batches(path, columns, form, strict=strict):
            yield RawBatch(dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows)
    except UNREADABLE as error:
        # Arrow's own message may quote a cell, so only the kind of failure is told
        said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise SourceError(f"cannot read {path} ({said})", remedy=_looks(source, strict=strict) or _REMEDY) from None
    except DataError as error:
        error.remedy = _looks(source, strict=strict) or error.remedy
        raise


def _looks(source: FileSource, *, strict: bool) -> str:
    """How the file seems to be written, where that is not as was said and its owner may be told; "" otherwise."""
    path = Path(source.path)
    try:
        seen = guess_format(path) if strict and not is_parquet(path) else source.csv_format
    except UNREADABLE:
        return ""
    return "" if seen == source.csv_format else f"It looks like this: {seen}. Read it so: {seen.options or 'as usual'}"


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
