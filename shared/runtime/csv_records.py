"""The records of a CSV, each read by itself: the text becomes lines, lines become records, records become cells.

One line is one record. Whatever bytes it holds, all other lines have the cells that they have without it, and reading
ends well (docs/adr/0028-one-line-one-record.md). Where a format declares several lines per record, cells in quotes may
hold line ends, and the same is true whatever a cell holds, of files whose writer quotes and doubles quotes.

Cells are bytes: UTF-8 where they are text, and anything else where the file holds what its encoding has no text for.
"""

import csv
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
from numpy.typing import NDArray
from pyarrow import compute

from commingle.shared.runtime.csv_format import USUAL, CsvFormat
from commingle.shared.text import trimmed_names
from commingle.shared.values import LONGEST_CELL, MISSING, Cells

LONGEST_LINE = 1 << 24
"""Bytes of a record (as UTF-8, without its line end) above which it is unreadable; longer ones are never in memory."""
_PIECE_BYTES = 1 << 20
_LINE_END, _RETURN, _QUOTE = b'\n\r"'
_UNREADABLE = b'""x'  # a line that has no cells, whatever the separator
_MISSING = frozenset(word.encode() for word in MISSING)
_AROUND = b" \t"
_MISSING_WITHIN_BLANKS = rf"\A[ \t]*({'|'.join(MISSING)})[ \t]*\z"
_Block = bytes | list[bytes]  # records: as lines, each with its line end, or one by one, without


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Some records of a file. The counts are functions of the cells: only the owner of the rows may see them."""

    cells: pa.RecordBatch  # a row for each record that could be read, null where a cell is missing
    # how many records were passed over: their quotes do not match, or they have too many bytes or lines
    unreadable: int = 0
    uneven: int = 0  # how many records in `cells` have fewer or more cells than the header
    first: int = 0  # number of the first record of either kind, counted from 1 after the header; 0 if there is none


def csv_header(stream: BinaryIO, form: CsvFormat) -> list[str]:
    """The names of the columns (`trimmed_names`), in order, with repetitions.

    Raises OSError, csv.Error, UnicodeDecodeError: there is no readable header.
    """
    return _header(_blocks(stream, form), form)[0]


def csv_batches(stream: BinaryIO, wanted: Sequence[str], form: CsvFormat) -> Iterator[FileBatch]:
    """Some columns, which must be there once, as bytes; about a MiB of the file at a time.

    Raises OSError, csv.Error or UnicodeDecodeError, as `csv_header`; also if the stream breaks off.
    """
    names, blocks = _header(_blocks(stream, form), form)
    if any(names.count(name) != 1 for name in wanted):
        raise csv.Error("a column is not there, or more than once")
    parse, before = _Parser(form.separator.encode(), len(names), {name: names.index(name) for name in wanted}), 0
    for block in (block for block in blocks if block):
        batch, records = parse(block, before)
        before += records
        yield batch


def _blocks(stream: BinaryIO, form: CsvFormat) -> Iterator[_Block]:
    pieces = iter(lambda: stream.read(_PIECE_BYTES), b"")
    first = next(pieces, b"")
    if form.encoding == "utf-16":
        big = first.startswith(BOM_UTF16_BE)
        texts = _utf16(chain([first.removeprefix(BOM_UTF16_BE if big else BOM_UTF16_LE)], pieces), form, big=big)
    elif form.encoding == USUAL.encoding:
        texts = chain([first.removeprefix(BOM_UTF8)], pieces)
    else:  # bytes outside the encoding stay as they are: no UTF-8, between whole letters
        texts = (
            piece.decode(form.encoding, "surrogateescape").encode(errors="surrogateescape")
            for piece in chain([first], pieces)
        )
    present = filter(None, texts)
    return _lines(present) if form.lines_per_record == 1 else _records(present, form)


def _utf16(pieces: Iterable[bytes], form: CsvFormat, *, big: bool) -> Iterator[bytes]:
    """UTF-16 as UTF-8, each line by itself: its line end counts at whatever byte, and an odd line is unreadable.

    A half character is kept, as bytes that are no UTF-8. Where cells may hold line ends we rely on the writer: the text
    is then read as a whole.
    """
    codec, end = ("utf-16-be", b"\0\n") if big else ("utf-16-le", b"\n\0")
    one_line, odd = form.lines_per_record == 1, form.separator.encode() + b'"x'  # behind anything, no cells come of it

    def recoded(units: bytes) -> bytes:
        return units.decode(codec, "surrogatepass").encode(errors="surrogatepass")

    def line(units: bytes) -> bytes:
        return recoded(units) if len(units) % 2 == 0 else recoded(units[:-1]) + odd

    held = b""
    for piece in pieces:
        data = held + piece
        cut = data.rfind(end) + 2 if one_line and end in data else 0
        between = np.frombuffer(data[1 : max(cut // 2 * 2, 2) - 1], ">u2" if big else "<u2")  # units, an odd byte later
        if cut % 2 == 0 and not (between == _LINE_END).any():
            whole = recoded(data[:cut])
        else:
            whole = b"".join(line(each) + b"\n" for each in data[: cut - 2].split(end))
        ready = cut + max(len(data) - cut - 1, 0) // 2 * 2  # the last byte may be half a line end, and waits
        if ready > cut and data[ready - 2 if big else ready - 1] & 0xFC == 0xD8:  # noqa: PLR2004 - half a pair
            ready -= 2
        yield whole + recoded(data[cut:ready])
        held = data[ready:]
    yield line(held)


def _lines(texts: Iterable[bytes]) -> Iterator[_Block]:
    """Whole lines. A line that is too long is not kept: an unreadable one stands in its place."""
    held, too_long = b"", False
    for text in texts:
        rest = text
        if too_long:
            if (end := text.find(b"\n")) < 0:
                continue
            rest, too_long = _UNREADABLE + text[end:], False
        if len(held) > LONGEST_CELL and (end := rest.find(b"\n")) >= 0:  # by itself, so that a block is small
            yield [(held + rest[:end]).removesuffix(b"\r")]
            held, rest = b"", rest[end + 1 :]
        if cut := rest.rfind(b"\n") + 1:
            yield held + rest[:cut]
            held = b""
        held += rest[cut:]
        if len(held) > LONGEST_LINE + 1:  # 1: perhaps the return of its line end
            held, too_long = b"", True
    if too_long or held:
        yield (held or _UNREADABLE) + b"\n"


def _records(texts: Iterable[bytes], form: CsvFormat) -> Iterator[_Block]:
    """Records whose cells may hold line ends. A record that is too long is shortened to what its end depends on."""
    is_record, is_open = grammar(form.separator)
    held, enough = b"", 0
    for text in chain(texts, [b""]):
        held += text or (b"\n" if held and not held.endswith(b"\n") else b"")
        if text and len(held) < enough:
            continue
        block = held[: held.rfind(b"\n") + 1]
        if b'"' in block:
            records, end = _closed(block, form, is_record, is_open if text else None)
            yield records
            held = held[end:]
        else:
            yield block
            held = held[len(block) :]
        enough = min(2 * len(held), LONGEST_LINE + 2)  # an open record is not searched again for each piece
        if len(held) > LONGEST_LINE + 1:
            held, enough = shortened(held, form, is_open), 0


def _closed(
    block: bytes, form: CsvFormat, is_record: "re.Pattern[bytes]", is_open: "re.Pattern[bytes] | None"
) -> tuple[list[bytes], int]:
    """The records that whole lines begin with, and where they end; one may wait for more lines if `is_open` is given.

    A record is read to where its quotes close, even after more lines than declared: then it is one unreadable record,
    so that no cell can pass for records. Where quotes never close, or something follows a closing quote, no proper
    writer was at work: that line is an unreadable record, and the next line begins another.
    """
    records, at = list[bytes](), 0
    while at < len(block):
        quote = block.find(b'"', at)
        plain = block.rfind(b"\n", at, quote) + 1 if quote >= 0 else len(block)
        if plain > at:
            records += block[at:plain].replace(b"\r\n", b"\n").split(b"\n")[:-1]
            at = plain
        elif found := is_record.match(block, at):
            whole = found.group()[:-1].removesuffix(b"\r")
            records.append(_UNREADABLE if whole.count(b"\n") >= form.lines_per_record else whole)
            at = found.end()
        elif is_open is not None and is_open.match(block, at):
            break
        else:
            records.append(_UNREADABLE)
            instead = _too_many_lines(form)
            at = block.index(b"\n", at + len(instead) * block.startswith(instead, at)) + 1
    return records, at


def grammar(separator: str) -> tuple["re.Pattern[bytes]", "re.Pattern[bytes]"]:
    """A record with its line end, and the beginning of a record that is inside quotes at the end of the text."""
    mark = re.escape(separator.encode())
    quoted = rb'"[^"]*+(?:""[^"]*+)*+'
    cell = rb'(?:%s"|[^"\n%s][^\n%s]*+)?+' % (quoted, mark, mark)
    return re.compile(rb"%s(?:%s%s)*+\r?\n" % (cell, mark, cell)), re.compile(rb"(?:%s%s)*+%s\Z" % (cell, mark, quoted))


def shortened(record: bytes, form: CsvFormat, is_open: "re.Pattern[bytes]") -> bytes:
    """A record with too many lines, in place of the beginning of one that is too long.

    Both end at the same place: in quotes, in a cell without them, or before a cell. So what follows is read alike.
    Quotes at the end are kept, as they may be halves of pairs.
    """
    before = record.rstrip(b'"')
    quotes = len(record) - len(before)
    kept = b'"' * min(quotes, 2 - quotes % 2)
    if is_open.match(before):
        kept = b'"' + kept
    elif not (quotes and is_open.match(before + b'"')):
        kept = b"" if before.endswith(form.separator.encode()) else b"x"
    return _too_many_lines(form) + kept


def _too_many_lines(form: CsvFormat) -> bytes:
    return b'"%s"%s' % (b"\n" * form.lines_per_record, form.separator.encode())


def _header(blocks: Iterator[_Block], form: CsvFormat) -> tuple[list[str], Iterator[_Block]]:
    for block in blocks:
        records = block.split(b"\n")[:-1] if isinstance(block, bytes) else block
        for number, record in enumerate(records, start=1):
            if not (line := record.removesuffix(b"\r")):
                continue
            cells = None if len(line) > LONGEST_LINE else cells_of_line(line, form.separator.encode())
            if cells is None:
                raise csv.Error("the quotes of the header line do not match, or it is too long")
            rest: _Block = records[number:]
            if isinstance(block, bytes):
                rest = block[sum(map(len, records[:number])) + number :]
            return trimmed_names([cell.decode() for cell in cells]), chain([rest], blocks)
    raise csv.Error("there is no header line")


def cells_of_line(line: bytes, separator: bytes, most: int | None = None) -> list[bytes] | None:
    """The cells of one record, the first `most` and perhaps one more; None if its quotes do not match.

    A cell that begins with a quote ends with one, and those in it are doubled; in other cells quotes are plain
    characters.
    """
    if b'"' not in line:
        return line.split(separator, -1 if most is None else most)
    cells, at = list[bytes](), 0
    while True:
        if line.startswith(b'"', at):
            end = at + 1
            while (end := line.find(b'"', end)) >= 0 and line.startswith(b'"', end + 1):
                end += 2
            if end < 0 or (end + 1 < len(line) and not line.startswith(separator, end + 1)):
                return None
            cell, end = line[at + 1 : end].replace(b'""', b'"'), end + 1
        else:
            end = end if (end := line.find(separator, at)) >= 0 else len(line)
            cell = line[at:end]
        if most is None or len(cells) <= most:
            cells.append(cell)
        if end == len(line):
            return cells
        at = end + 1


@dataclass(frozen=True, slots=True)
class _Parser:
    """From records to cells: Arrow reads plain ones all at once, and others are read one by one, to the same cells."""

    separator: bytes
    width: int
    places: dict[str, int]

    def __call__(self, block: _Block, before: int) -> tuple[FileBatch, int]:
        # the cells of a block that comes after `before` records, and how many records it has
        if isinstance(block, bytes):
            text = block.replace(b"\r\n", b"\n") if b"\r" in block else block
            if (read := self._even(text)) is not None:
                return FileBatch(read), read.num_rows
            if (plain := self._plain(text)).all():
                return FileBatch(self._by_arrow(text)), len(plain)
            records = text.split(b"\n")[:-1]
        else:
            records = block
            text = b"".join(b"\n" if len(r) > LONGEST_CELL or b"\n" in r else r + b"\n" for r in records)
            plain = self._plain(text)
        return self._mixed(records, plain, before)

    def _even(self, text: bytes) -> pa.RecordBatch | None:
        """Lines, if all are plain or empty: they nearly always are, and it is much quicker to check all at once."""
        data = np.frombuffer(text, np.uint8)
        ends = data == _LINE_END
        if b"\r" in text or np.diff(np.flatnonzero(ends), prepend=-1).max() > LONGEST_CELL:
            return None
        if b'"' in text:
            quotes = data == _QUOTE
            inside = (np.cumsum(quotes, dtype=np.uint8) & 1).view(np.bool_)
            beside = quotes | ends | (data == self.separator[0])
            opened, closed = (quotes & inside)[1:] & ~beside[:-1], (quotes & ~inside)[:-1] & ~beside[1:]
            if (ends & inside).any() or opened.any() or closed.any():
                return None
        try:
            return self._by_arrow(text)
        except pa.ArrowInvalid:  # a line with fewer or more cells
            return None

    def _mixed(self, records: list[bytes], plain: NDArray[np.bool_], before: int) -> tuple[FileBatch, int]:
        rows, places, wrong, blank, uneven = list[list[bytes]](), list[int](), list[int](), 0, 0
        for place in np.flatnonzero(~plain).tolist():
            if not (record := records[place]):
                blank += 1
                continue
            cells = None if len(record) > LONGEST_LINE else cells_of_line(record, self.separator, self.width)
            if cells is None or len(cells) != self.width:
                wrong.append(before + place - blank + 1)
            if cells is not None:
                uneven += len(cells) != self.width
                rows.append(cells)
                places.append(place)
        text = b"".join(record + b"\n" for record in compress(records, plain))
        order = np.argsort(np.concatenate([np.flatnonzero(plain), np.array(places, np.int64)]))
        others = [_column(rows, place) for place in self.places.values()]
        both = zip(self._by_arrow(text).columns, others, strict=True)
        columns: list[Cells] = [pa.concat_arrays(parts).take(order) for parts in both]
        found = pa.RecordBatch.from_arrays(columns, names=list(self.places))
        return FileBatch(found, len(wrong) - uneven, uneven, wrong[0] if wrong else 0), len(records) - blank

    def _plain(self, text: bytes) -> NDArray[np.bool_]:
        data, mark = np.frombuffer(text, np.uint8), self.separator[0]
        ends, marks = np.flatnonzero(data == _LINE_END), np.flatnonzero(data == mark)
        starts = np.concatenate([[0], ends[:-1] + 1])
        lengths = ends - starts
        plain: NDArray[np.bool_] = (lengths > 0) & (lengths <= LONGEST_CELL)
        if b'"' in text:
            quotes = np.flatnonzero(data == _QUOTE)
            before = np.searchsorted(quotes, starts)
            count = np.diff(before, append=len(quotes))
            line = np.repeat(np.arange(len(ends)), count)
            opens = (np.arange(len(quotes)) - before[line]) % 2 == 0
            beside = np.where(opens, data[quotes - 1], data[quotes + 1])  # data[-1] is a line end
            proper = (beside == mark) | (beside == _LINE_END) | (beside == _QUOTE)
            plain &= count % 2 == 0
            plain[line[~proper]] = False
            marks = marks[(np.searchsorted(quotes, marks) - before[np.searchsorted(ends, marks)]) % 2 == 0]
        plain &= np.diff(np.searchsorted(marks, ends), prepend=0) == self.width - 1
        if b"\r" in text:  # which Arrow takes for a line end
            plain[np.searchsorted(ends, np.flatnonzero(data == _RETURN))] = False
        return plain

    def _by_arrow(self, text: bytes) -> pa.RecordBatch:
        """The columns of plain lines. A header of ours comes first: Arrow would take three bytes there for a mark."""
        header = self.separator.join(b"%d" % place for place in range(self.width)) + b"\n"
        wanted = [str(place) for place in self.places.values()]
        table = pc.read_csv(
            cast("BinaryIO", pa.BufferReader(header + text)),
            pc.ReadOptions(use_threads=False, block_size=len(header) + len(text)),
            pc.ParseOptions(delimiter=self.separator.decode(), quote_char='"' if b'"' in text else False),
            pc.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.binary()),
                include_columns=wanted,  # nobody cares what is in the others
                null_values=list(MISSING),
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
        cells = [column.combine_chunks() for column in table.columns]
        if any(blank in text for blank in (b" ", b"\t")):
            cells = [_without_blank(column) for column in cells]
        return pa.RecordBatch.from_arrays(cells, names=list(self.places))


def _without_blank(cells: Cells) -> Cells:
    # null for a missing value with blanks around it, each cell by itself (docs/proofs/records.md 4.2 d)
    blank = compute.match_substring_regex(cells, _MISSING_WITHIN_BLANKS)
    found: Cells = compute.if_else(blank, pa.scalar(None, cells.type), cells)
    return found


def _column(rows: list[list[bytes]], place: int) -> Cells:
    cells = (row[place] if place < len(row) else b"" for row in rows)
    return pa.array([None if len(c) > LONGEST_CELL or c.strip(_AROUND) in _MISSING else c for c in cells], pa.binary())
