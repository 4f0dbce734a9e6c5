"""CSV and Parquet files as batches of columns: agents, the planner and the simulation read them alike.

Cells of a CSV are text; what is missing in it is spelled as `encoding.MISSING` says. Parquet keeps its types.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from commingle.shared.encoding import MISSING

UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError)
"""What reading raises. Arrow's own messages may quote a cell: nobody who reads private rows repeats them."""

_ROWS_AT_ONCE = 1 << 16
_CSV_BLOCK_BYTES = 1 << 22


def is_parquet(path: Path) -> bool:
    """By the file's suffix; everything else is read as CSV."""
    return path.suffix.lower() in {".parquet", ".pq"}


def column_names(path: Path) -> list[str]:
    """The columns of a file, in order, however often each is there. Raises `UNREADABLE`."""
    if is_parquet(path):
        with pq.ParquetFile(path) as file:
            return list(file.schema_arrow.names)
    with _open_csv(path, pc.ConvertOptions()) as reader:
        return list(reader.schema.names)


def read_batches(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns, which must be there once, a batch of rows at a time. Raises `UNREADABLE`."""
    wanted = list(dict.fromkeys(columns))
    if is_parquet(path):
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=wanted)
        return
    convert = pc.ConvertOptions(
        column_types=dict.fromkeys(wanted, pa.string()),
        include_columns=wanted,  # nobody cares what is in the others
        null_values=list(MISSING),
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    with _open_csv(path, convert) as reader:
        yield from reader


def _open_csv(path: Path, convert: pc.ConvertOptions) -> pc.CSVStreamingReader:
    return pc.open_csv(
        path,
        read_options=pc.ReadOptions(block_size=_CSV_BLOCK_BYTES, use_threads=False),
        parse_options=pc.ParseOptions(newlines_in_values=True),
        convert_options=convert,
    )
