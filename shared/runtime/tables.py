"""CSV and Parquet files as batches of columns: agents, the planner and the simulation read them alike.

Cells of a CSV are bytes (`csv_records`). `values.MISSING` says how it spells missing cells. Numbers with a decimal
comma come out with a point; beside decimal commas, 1.234 in a column of numbers comes out as none, as nothing says that
it is not a thousand. Parquet keeps its types.

No record ends the reading (docs/threat-model.md#no-decision-depends-on-cells). A caller that wants a malformed CSV
corrected looks at the counts.
"""

import csv
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, cast, get_args

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import compute

from commingle.shared.runtime.csv_format import USUAL, CsvFormat, Encoding, Separator
from commingle.shared.runtime.csv_records import FileBatch, csv_batches, csv_header
from commingle.shared.runtime.files import open_plain

UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError, csv.Error)
"""What reading raises. Arrow's own messages may quote a cell: code that reads private rows never repeats them."""

ROWS_AT_ONCE = 1 << 14
_BUFFER_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16
_COMMA = r"^(\s*[+-]?[0-9]*),([0-9]+(?:[eE][+-]?[0-9]+)?\s*)$"
_WITH_COMMA, _WITH_POINT = re.compile(r"[+-]?[0-9]+,[0-9]+"), re.compile(r"[+-]?[0-9]+\.[0-9]+")


def is_parquet(path: Path) -> bool:
    """By the file's suffix; everything else is read as CSV."""
    return path.suffix.lower() in {".parquet", ".pq"}


@contextmanager
def open_parquet(where: "Path | pa.NativeFile") -> Iterator[pq.ParquetFile]:
    """A Parquet file. Nothing is fetched before it is read: by default Arrow fetches all row groups ahead."""
    with (
        where if isinstance(where, pa.NativeFile) else open_plain(where) as file,
        pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER_BYTES) as parquet,
    ):
        yield parquet


def parquet_batches(file: pq.ParquetFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return file.iter_batches(batch_size=ROWS_AT_ONCE, columns=list(columns), use_threads=False)


def guess_format(path: Path) -> CsvFormat:
    """The format that a CSV seems to have, by its bytes, its header and its first numbers. Raises `UNREADABLE`."""
    encoding = _guess_encoding(path)
    known = "utf-8-sig" if encoding == USUAL.encoding else encoding
    with _open(path) as stream, TextIOWrapper(stream, known, errors="replace", newline="") as text:
        lines = text.read(_PIECE_BYTES).splitlines() or [""]
    separators: tuple[Separator, ...] = get_args(Separator)
    separator = max(separators, key=lines[0].count)  # the first one if none occurs
    cells = [cell.strip(' "') for line in lines[1:] for cell in line.split(separator)]
    commas = separator != "," and any(map(_WITH_COMMA.fullmatch, cells)) and not any(map(_WITH_POINT.fullmatch, cells))
    return CsvFormat(encoding=encoding, separator=separator, decimal="," if commas else ".")


def quotes_end_elsewhere(path: Path, form: CsvFormat) -> bool:
    """Whether one of the first lines of a CSV opens a quote that it does not close. Raises `UNREADABLE`."""
    with _open(path) as stream, TextIOWrapper(stream, form.encoding, errors="replace", newline="") as text:
        lines = text.read(_BUFFER_BYTES).splitlines()
    return any(line.count('"') % 2 for line in lines[:-1])


def column_names(path: Path, form: CsvFormat = USUAL) -> list[str]:
    """The columns of a file, in order, with repetitions. Raises `UNREADABLE`."""
    if is_parquet(path):
        with open_parquet(path) as file:
            return list(file.schema_arrow.names)
    with _open(path) as stream:
        return csv_header(stream, form)


def read_batches(
    path: Path, columns: Sequence[str], form: CsvFormat = USUAL, *, numbers: Collection[str] = ()
) -> Iterator[FileBatch]:
    """Some columns, which must be there once, a batch of rows at a time; `numbers` are those that hold numbers.

    Raises `UNREADABLE`.
    """
    wanted = list(dict.fromkeys(columns))
    if is_parquet(path):
        with open_parquet(path) as file:
            yield from map(FileBatch, parquet_batches(file, wanted))
        return
    with _open(path) as stream:
        for batch in csv_batches(stream, wanted, form):
            yield batch if form.decimal == "." else replace(batch, cells=_with_points(batch.cells, numbers))


def _with_points(batch: pa.RecordBatch, numbers: Collection[str]) -> pa.RecordBatch:
    cells = [
        compute.replace_substring(column, ".", "..") if name in numbers else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    cells = [compute.replace_substring_regex(column, _COMMA, r"\1.\2") for column in cells]
    return pa.RecordBatch.from_arrays(cells, names=batch.schema.names)


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    try:
        packing: Any = pa.Codec.detect(str(path)).name
    except (ValueError, TypeError):  # no known suffix; the latter by Arrow's own mistake
        packing = None
    with open_plain(path) as file:
        if packing is None:
            yield file
        else:
            with pa.input_stream(file, compression=packing) as stream:
                yield cast("BinaryIO", stream)


def _guess_encoding(path: Path) -> Encoding:
    decoder = getincrementaldecoder("utf-8")()
    with _open(path) as stream:
        piece = stream.read(_PIECE_BYTES)
        if piece.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            return "utf-16"
        try:
            while piece:
                decoder.decode(piece)
                piece = stream.read(_PIECE_BYTES)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "windows-1252"  # the commonest of the others, and Latin-1 but for control characters
    return "utf-8"
