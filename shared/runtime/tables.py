"""CSV and Parquet files as batches of columns: agents, the planner and the simulation read them alike.

Cells of a CSV are text; what is missing in it is spelled as `encoding.MISSING` says, and numbers with a decimal comma
are given with a point. Parquet keeps its types.

Read strictly, a CSV that is not well formed is refused, so that somebody corrects it. An agent that is bound to a file
reads it otherwise (docs/threat-model.md#no-decision-depends-on-cells): cells are bytes, whether or not they are UTF-8,
a short line lacks its last cells, and nobody looks at what a long one has too many.
"""

import csv
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader, RawIOBase, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast, get_args

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
from pyarrow import compute

from commingle.shared.encoding import MISSING
from commingle.shared.runtime.csv_format import USUAL, CsvFormat, Encoding, Separator

UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError, csv.Error)
"""What reading raises. Arrow's own messages may quote a cell: nobody who reads private rows repeats them."""

ROWS_AT_ONCE = 1 << 14
_CSV_BLOCK_BYTES = 1 << 20
_BUFFER_BYTES = 1 << 20
_LONGEST_CELL = 1 << 26
_PIECE_BYTES = 1 << 16
_COMMA = r"^(\s*[+-]?[0-9]*),([0-9]+(?:[eE][+-]?[0-9]+)?\s*)$"
_WITH_COMMA, _WITH_POINT = re.compile(r"[+-]?[0-9]+,[0-9]+"), re.compile(r"[+-]?[0-9]+\.[0-9]+")


def is_parquet(path: Path) -> bool:
    """By the file's suffix; everything else is read as CSV."""
    return path.suffix.lower() in {".parquet", ".pq"}


def open_parquet(where: "Path | pa.NativeFile") -> pq.ParquetFile:
    """A Parquet file, of which no more is fetched than is read: Arrow fetches all row groups ahead otherwise."""
    return pq.ParquetFile(where, pre_buffer=False, buffer_size=_BUFFER_BYTES)


def parquet_batches(file: pq.ParquetFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns, a batch of rows at a time."""
    return file.iter_batches(batch_size=ROWS_AT_ONCE, columns=list(columns), use_threads=False)


def guess_format(path: Path) -> CsvFormat:
    """What a CSV looks like: whether its bytes are UTF-8, what its header has most of, and how its first numbers are.

    Raises:
        As `UNREADABLE` says.
    """
    encoding = _guess_encoding(path)
    with _open_text(path, encoding, errors="replace") as text:
        lines = text.read(_PIECE_BYTES).splitlines() or [""]
    separators: tuple[Separator, ...] = get_args(Separator)
    separator = max(separators, key=lines[0].count)  # the first of them where there is none
    cells = [cell.strip(' "') for line in lines[1:] for cell in line.split(separator)]
    commas = separator != "," and any(map(_WITH_COMMA.fullmatch, cells)) and not any(map(_WITH_POINT.fullmatch, cells))
    return CsvFormat(encoding=encoding, separator=separator, decimal="," if commas else ".")


def column_names(path: Path, form: CsvFormat = USUAL, *, strict: bool = True) -> list[str]:
    """The columns of a file, in order, however often each is there. Raises `UNREADABLE`."""
    if is_parquet(path):
        with open_parquet(path) as file:
            return list(file.schema_arrow.names)
    if not strict:
        with _open_lines(path, form) as lines:
            return next(lines, [])
    with _open_csv(path, pc.ConvertOptions(), form, strict=True) as reader:
        return list(reader.schema.names)


def read_batches(
    path: Path, columns: Sequence[str], form: CsvFormat = USUAL, *, strict: bool = True
) -> Iterator[pa.RecordBatch]:
    """Some columns, which must be there once, a batch of rows at a time. Raises `UNREADABLE`."""
    wanted = list(dict.fromkeys(columns))
    if is_parquet(path):
        with open_parquet(path) as file:
            yield from parquet_batches(file, wanted)
        return
    for batch in _read_csv(path, wanted, form, strict=strict):
        yield batch if form.decimal == "." else _with_points(batch)


def _read_csv(path: Path, wanted: list[str], form: CsvFormat, *, strict: bool) -> Iterator[pa.RecordBatch]:
    convert = pc.ConvertOptions(
        column_types=dict.fromkeys(wanted, pa.string() if strict else pa.binary()),
        include_columns=wanted,  # nobody cares what is in the others
        null_values=list(MISSING),
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    rows = 0
    try:
        with _open_csv(path, convert, form, strict=strict) as reader:
            for batch in reader:
                yield batch
                rows += batch.num_rows
    except pa.ArrowInvalid:
        if strict:
            raise
        yield from _read_malformed(path, wanted, form, after=rows)


@contextmanager
def _open_csv(
    path: Path, convert: pc.ConvertOptions, form: CsvFormat, *, strict: bool
) -> Iterator[pc.CSVStreamingReader]:
    read_options = pc.ReadOptions(block_size=_CSV_BLOCK_BYTES, use_threads=False)
    parse_options = pc.ParseOptions(newlines_in_values=True, delimiter=form.separator)
    options: dict[str, Any] = {
        "read_options": read_options,
        "parse_options": parse_options,
        "convert_options": convert,
    }
    if form.encoding == USUAL.encoding:
        with pc.open_csv(path, **options) as reader:
            yield reader
        return
    with (
        _open_text(path, form.encoding, errors="strict" if strict else "replace") as text,
        BufferedReader(_Utf8(text)) as recoded,
        pc.open_csv(recoded, **options) as reader,
    ):
        yield reader


def _with_points(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Numbers with a decimal point where they have a comma, each cell by itself."""
    cells = [compute.replace_substring_regex(column, _COMMA, r"\1.\2") for column in batch.columns]
    return pa.RecordBatch.from_arrays(cells, names=batch.schema.names)


def _read_malformed(path: Path, wanted: list[str], form: CsvFormat, *, after: int) -> Iterator[pa.RecordBatch]:
    """The rows from there on of a CSV with a line that Arrow refuses: too short, too long, or larger than its block."""
    with _open_lines(path, form) as lines:
        header = next(lines, [])
        places = [header.index(name) for name in wanted]
        rows = islice(lines, after, None)
        while part := list(islice(rows, ROWS_AT_ONCE)):
            yield pa.RecordBatch.from_arrays([_cells(part, place) for place in places], names=wanted)


def _cells(lines: list[list[str]], place: int) -> "pa.Array[Any]":
    texts = (line[place] if place < len(line) else "" for line in lines)
    return pa.array([None if t in MISSING else t.encode(errors="surrogateescape") for t in texts], pa.large_binary())


@contextmanager
def _open_lines(path: Path, form: CsvFormat) -> Iterator[Iterator[list[str]]]:
    """The lines of a CSV that are not empty, as their cells; what is no UTF-8 in them is kept as surrogates."""
    csv.field_size_limit(_LONGEST_CELL)
    usual = form.encoding == USUAL.encoding
    with _open_text(path, form.encoding, errors="surrogateescape" if usual else "replace") as text:
        yield (line for line in csv.reader(text, delimiter=form.separator) if line)


@contextmanager
def _open_text(path: Path, encoding: Encoding, *, errors: str) -> Iterator[TextIOWrapper]:
    stream = cast("BinaryIO", pa.input_stream(path))  # unpacks .gz, as `pc.open_csv` does
    known = "utf-8-sig" if encoding == USUAL.encoding else encoding
    with TextIOWrapper(stream, known, errors=errors, newline="") as text:
        yield text


class _Utf8(RawIOBase):
    """A text, in whatever encoding, as the bytes that Arrow reads."""

    def __init__(self, text: TextIOWrapper) -> None:
        self._text, self._left = text, b""

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:  # noqa: ANN401 - any buffer
        self._left = self._left or self._text.read(_PIECE_BYTES).encode()
        piece, self._left = self._left[: len(into)], self._left[len(into) :]
        into[: len(piece)] = piece
        return len(piece)


def _guess_encoding(path: Path) -> Encoding:
    decoder = getincrementaldecoder("utf-8")()
    with pa.input_stream(path) as stream:
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
