"""CSV and Parquet files as batches of columns: agents, the planner and the simulation read them alike.

Cells of a CSV are text; what is missing in it is spelled as `encoding.MISSING` says. Parquet keeps its types.

Read strictly, a CSV that is not well formed is refused, so that somebody corrects it. An agent that is bound to a file
reads it otherwise (docs/threat-model.md#no-decision-depends-on-cells): cells are bytes, whether or not they are UTF-8,
a short line lacks its last cells, and nobody looks at what a long one has too many.
"""

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from commingle.shared.encoding import MISSING

UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError, csv.Error)
"""What reading raises. Arrow's own messages may quote a cell: nobody who reads private rows repeats them."""

_ROWS_AT_ONCE = 1 << 16
_CSV_BLOCK_BYTES = 1 << 22
_LONGEST_CELL = 1 << 26


def is_parquet(path: Path) -> bool:
    """By the file's suffix; everything else is read as CSV."""
    return path.suffix.lower() in {".parquet", ".pq"}


def column_names(path: Path, *, strict: bool = True) -> list[str]:
    """The columns of a file, in order, however often each is there. Raises `UNREADABLE`."""
    if is_parquet(path):
        with pq.ParquetFile(path) as file:
            return list(file.schema_arrow.names)
    if not strict:
        with _open_lines(path) as lines:
            return next(lines, [])
    with _open_csv(path, pc.ConvertOptions()) as reader:
        return list(reader.schema.names)


def read_batches(path: Path, columns: Sequence[str], *, strict: bool = True) -> Iterator[pa.RecordBatch]:
    """Some columns, which must be there once, a batch of rows at a time. Raises `UNREADABLE`."""
    wanted = list(dict.fromkeys(columns))
    if is_parquet(path):
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=wanted)
        return
    convert = pc.ConvertOptions(
        column_types=dict.fromkeys(wanted, pa.string() if strict else pa.binary()),
        include_columns=wanted,  # nobody cares what is in the others
        null_values=list(MISSING),
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    rows = 0
    try:
        with _open_csv(path, convert) as reader:
            for batch in reader:
                yield batch
                rows += batch.num_rows
    except pa.ArrowInvalid:
        if strict:
            raise
        yield from _read_malformed(path, wanted, after=rows)


def _open_csv(path: Path, convert: pc.ConvertOptions) -> pc.CSVStreamingReader:
    return pc.open_csv(
        path,
        read_options=pc.ReadOptions(block_size=_CSV_BLOCK_BYTES, use_threads=False),
        parse_options=pc.ParseOptions(newlines_in_values=True),
        convert_options=convert,
    )


def _read_malformed(path: Path, wanted: list[str], *, after: int) -> Iterator[pa.RecordBatch]:
    """The rows from there on of a CSV with a line that Arrow refuses: too short, too long, or larger than its block."""
    with _open_lines(path) as lines:
        header = next(lines, [])
        places = [header.index(name) for name in wanted]
        rows = islice(lines, after, None)
        while part := list(islice(rows, _ROWS_AT_ONCE)):
            yield pa.RecordBatch.from_arrays([_cells(part, place) for place in places], names=wanted)


def _cells(lines: list[list[str]], place: int) -> "pa.Array[Any]":
    texts = (line[place] if place < len(line) else "" for line in lines)
    return pa.array([None if t in MISSING else t.encode(errors="surrogateescape") for t in texts], pa.large_binary())


@contextmanager
def _open_lines(path: Path) -> Iterator[Iterator[list[str]]]:
    """The lines of a CSV that are not empty, as their cells; what is no UTF-8 in them is kept as surrogates."""
    csv.field_size_limit(_LONGEST_CELL)
    stream = cast("BinaryIO", pa.input_stream(path))  # unpacks .gz, as `pc.open_csv` does
    with TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="") as text:
        yield (line for line in csv.reader(text) if line)
