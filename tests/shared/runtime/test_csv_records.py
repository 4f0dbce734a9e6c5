"""One line is one record (docs/proofs/records.md): whatever bytes one of them holds, all others keep their cells.

What a file gives is compared with what each of its lines gives alone, by a specification that reads one line: so no
line can move another, in any order, and Arrow, which reads most lines, gives the cells that the specification gives.
"""

import csv
import gzip
import io
import re
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, cast, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commingle.shared.runtime.csv_format import USUAL, CsvFormat, Decimal, Encoding, Separator
from commingle.shared.runtime.csv_records import LONGEST_LINE, FileBatch, cells_of_line, csv_batches, grammar, shortened
from commingle.shared.runtime.tables import read_batches
from commingle.shared.values import LONGEST_CELL, MISSING

Row = tuple[bytes | None, ...]
SEPARATORS: tuple[Separator, ...] = get_args(Separator)
NAMES = ("a", "b", "c")
BIG, LITTLE = "utf-16-be", "utf-16-le"


class Dripping:
    """A stream that hands out a few bytes at a time, so that pieces end everywhere."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = io.BytesIO(data), size

    def read(self, size: int) -> bytes:
        return self._data.read(min(size, self._size))


@dataclass(frozen=True)
class Found:
    """What reading gave."""

    rows: list[Row]
    unreadable: int
    uneven: int
    first: int

    @classmethod
    def of(cls, batches: Sequence[FileBatch]) -> "Found":
        rows = [tuple(row[name] for name in NAMES) for batch in batches for row in batch.cells.to_pylist()]
        first = next((batch.first for batch in batches if batch.first), 0)
        return cls(rows, sum(b.unreadable for b in batches), sum(b.uneven for b in batches), first)


def read(data: bytes, form: CsvFormat, *, size: int = 1 << 20) -> Found:
    stream = cast(BinaryIO, Dripping(data, size))
    return Found.of(list(csv_batches(stream, NAMES, form)))


def recoded(line: bytes, codec: str) -> bytes | None:
    """One line as UTF-8; what is no text of its encoding stays bytes that are no UTF-8. None for half a character."""
    if codec in {BIG, LITTLE}:
        whole = len(line) % 2 == 0
        return line.decode(codec, "surrogatepass").encode(errors="surrogatepass") if whole else None
    if codec == "utf-8":
        return line
    text = b""
    for byte in line:
        letter = bytes([byte])
        with suppress(UnicodeDecodeError):
            letter = letter.decode(codec).encode()
        text += letter
    return text


def specified(lines: Sequence[bytes], codec: str, separator: str) -> Found:
    """What lines give, each by itself."""
    rows, wrong, unreadable, number = list[Row](), list[int](), 0, 0
    for line in lines:
        text = recoded(line, codec)
        if text is not None and not (text := text.removesuffix(b"\r")):
            continue
        number += 1
        cells = None if text is None else cells_of_line(text, separator.encode())
        if cells is None or len(cells) != len(NAMES):
            wrong.append(number)
        if cells is None:
            unreadable += 1
        else:
            present = [None if cell.strip(b" \t").decode("latin-1") in MISSING else cell for cell in cells]
            rows.append(tuple([*present, None, None, None][: len(NAMES)]))
    return Found(rows, unreadable, len(wrong) - unreadable, wrong[0] if wrong else 0)


def header(codec: str, separator: str) -> bytes:
    marks = {BIG: b"\xfe\xff", LITTLE: b"\xff\xfe"}
    return marks.get(codec, b"") + f"{separator.join(NAMES)}\n".encode(codec)


@st.composite
def lines_of(draw: st.DrawFn, codec: str, separator: str) -> list[bytes]:
    """Lines of hostile bytes: what structures a CSV, what is no text, halves of it, and whole good lines."""
    marks = [
        '"',
        '""',
        separator,
        f'{separator}"',
        f'"{separator}',
        "\r",
        "\0",
        "NA",
        "NA  ",
        "\tnull ",
        " \xa0NA",
        "null",
        "1",
        "1,5",
        "\ufeff",
        "é",
    ]
    good = [f"x{separator}1{separator}2", f'"y"{separator}"1{separator}""q"{separator}2\r', f"x{separator}{separator}"]
    encoded = [text.encode(codec, "replace") for text in [*marks, *good]]
    raw = [b"\xff", b"\n", b"\0", b"\0\n\0", b"\x05\n\0\1", b"\xd8\0", b"\0\xdc", b"\xef\xbb\xbf", b"\x81", b"\x85"]
    pieces = st.lists(st.sampled_from([*encoded, *raw]) | st.binary(max_size=4), max_size=7).map(b"".join)
    whole = st.sampled_from([text.encode(codec) for text in good])
    return draw(st.lists(pieces | whole, min_size=1, max_size=9))


@pytest.mark.parametrize("codec", ["utf-8", "windows-1252", "latin-1", LITTLE, BIG])
@given(data=st.data(), size=st.sampled_from([4, 5, 6, 7, 16, 64, 1 << 20]), separator=st.sampled_from(SEPARATORS))
def test_lines_of_whatever_bytes_read_as_each_of_them_alone(
    codec: str, data: st.DataObject, size: int, separator: Separator
) -> None:
    """Records may hold line ends here: they are several lines then, and the others are what they were all the same."""
    records = data.draw(lines_of(codec, separator))
    end = "\n".encode(codec)
    encoding = cast(Encoding, codec.removesuffix("-le").removesuffix("-be"))
    lines = [line for record in records for line in record.split(end)]
    found = read(
        header(codec, separator) + end.join(records) + data.draw(st.sampled_from([b"", end])),
        CsvFormat(encoding=encoding, separator=separator),
        size=size,
    )
    assert found == specified(lines, codec, separator)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
@pytest.mark.parametrize("decimal", [".", ","])
@given(data=st.data())
def test_file_packed_or_not_gives_what_its_lines_give(
    tmp_path_factory: pytest.TempPathFactory, name: str, decimal: Decimal, data: st.DataObject
) -> None:
    lines = [line for record in data.draw(lines_of("utf-8", ";")) for line in record.split(b"\n")]
    path = tmp_path_factory.getbasetemp() / name
    whole = header("utf-8", ";") + b"\n".join(lines)
    path.write_bytes(gzip.compress(whole) if name.endswith("gz") else whole)
    found = Found.of(list(read_batches(path, NAMES, CsvFormat(separator=";", decimal=decimal))))
    alone = specified(lines, "utf-8", ";")
    if decimal == ",":
        alone = replace(alone, rows=[tuple(map(pointed, row)) for row in alone.rows])
    assert found == alone


def pointed(cell: bytes | None) -> bytes | None:
    """A number with a decimal comma, as one with a point; every other cell as it is."""
    number = cell is not None and re.fullmatch(rb"([ \t\n\f\r]*[+-]?\d*),(\d+(?:[eE][+-]?\d+)?[ \t\n\f\r]*)", cell)
    return number[1] + b"." + number[2] if number else cell


def _counts(found: Found) -> tuple[int, int, int]:
    return found.unreadable, found.uneven, found.first


GOOD = [b"s%d,%d,%d" % (i, i, 2 * i) for i in range(149)]


@pytest.mark.parametrize(
    "record",
    [
        b'x,"1,2',
        b'"',
        b'x,1,"',
        b'"x"y,1,2',
        b"",
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\r",
        b"x,1\r2,3",
        b"x",
        b"x,1,2,3,4",
    ],
)
@pytest.mark.parametrize("place", [0, 70, 149])
def test_record_with_odd_bytes_leaves_149_others_as_they_are(record: bytes, place: int) -> None:
    lines = [*GOOD[:place], record, *GOOD[place:]]
    found = read(b"a,b,c\n" + b"\n".join(lines) + b"\n", USUAL)
    others = {tuple(line.split(b",")) for line in GOOD}
    assert len([row for row in found.rows if row in others]) == 149
    assert len(found.rows) + found.unreadable <= 150


@pytest.mark.parametrize("codec", [LITTLE, BIG])
@pytest.mark.parametrize("odd", [b"\0", b"\n", b"\xd8", b"x"])
@pytest.mark.parametrize("place", [0, 70, 149])
def test_utf16_line_with_one_byte_too_many_shifts_no_other(codec: str, odd: bytes, place: int) -> None:
    lines = [line.decode().encode(codec) for line in GOOD]
    lines.insert(place, "s9999,1,1".encode(codec) + odd)
    end = "\n".encode(codec)
    found = read(header(codec, ",") + end.join(lines) + end, CsvFormat(encoding="utf-16"))
    assert found.rows == [tuple(line.split(b",")) for line in GOOD]
    assert (found.unreadable, found.first) == (1, place + 1)


def test_line_end_at_an_odd_byte_of_utf16_is_one_all_the_same() -> None:
    """What is promised has a price: these two letters have a line end between them, and end the line."""
    end, letters = b"\n\0", "\u0a05\u0100".encode(LITTLE)
    assert end in letters
    found = read(header(LITTLE, ",") + "x,1,2".encode(LITTLE) + end + letters + end, CsvFormat(encoding="utf-16"))
    assert (found.rows, found.unreadable) == ([(b"x", b"1", b"2")], 2)


@pytest.mark.parametrize("quoted", [True, False])
@pytest.mark.parametrize("extra", [0, 1])
def test_cell_above_the_cap_is_missing_and_nothing_else(extra: int, *, quoted: bool) -> None:
    cell = b"7" * (LONGEST_CELL + extra)
    written = b'"' + cell + b'"' if quoted else cell
    found = read(b"a,b,c\n" + b"\n".join([*GOOD[:70], b"x," + written + b",2", *GOOD[70:]]) + b"\n", USUAL)
    assert found.rows[70] == (b"x", None if extra else cell, b"2")
    assert [row for row in found.rows if row[0] != b"x"] == [tuple(line.split(b",")) for line in GOOD]
    assert _counts(found) == (0, 0, 0)


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) - 1])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(("extra", "unreadable"), [(0, 0), (1, 1)])
def test_line_above_the_cap_is_unreadable_wherever_pieces_end(
    extra: int, unreadable: int, end: bytes, size: int
) -> None:
    line = b"x,1," + b"2" * (LONGEST_LINE - 4 + extra)
    for lines in ([*GOOD, line], [*GOOD, line, *GOOD]):
        found = read(end.join([b"a,b,c", *lines, b""]), USUAL, size=size)
        assert [row for row in found.rows if row[0] != b"x"] == [tuple(x.split(b",")) for x in lines if x != line]
        assert found.unreadable == unreadable
        assert [row for row in found.rows if row[0] == b"x"] == [(b"x", b"1", None)] * (1 - unreadable)


@pytest.mark.parametrize("lines_per_record", [1, 3])
@pytest.mark.parametrize("filling", [b"x", b'"', b","], ids=["text", "quotes", "cells"])
def test_line_of_a_packed_file_that_never_ends_takes_no_memory(
    tmp_path: Path, filling: bytes, lines_per_record: int
) -> None:
    path, mebibyte = tmp_path / "t.csv.gz", filling * ((1 << 20) // len(filling))
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'a,b,c\nx,1,2\ny,"')
        for _ in range(40):
            file.write(mebibyte)
    tracemalloc.start()
    try:
        found = Found.of(list(read_batches(path, NAMES, CsvFormat(lines_per_record=lines_per_record))))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found.rows, found.unreadable) == ([(b"x", b"1", b"2")], 1)
    assert most < 80 << 20


def written(rows: Sequence[Sequence[bytes]], separator: bytes, end: bytes, *, everywhere: bool) -> list[bytes]:
    """Records as a writer writes them that quotes cells, where it must or everywhere, and doubles quotes."""

    def cell(value: bytes) -> bytes:
        odd = everywhere or any(mark in value for mark in (b'"', b"\n", b"\r", separator))
        return b'"' + value.replace(b'"', b'""') + b'"' if odd else value

    return [separator.join(map(cell, row)) + end for row in rows]


HOSTILE = st.lists(
    st.sampled_from([b'"', b"\n", b",", b"\r\n", b"\0", b"x", b'\n"', b'",', b"\xff", b"\ns1,1,1"]), max_size=6
)
CELL = HOSTILE.map(b"".join)


@given(
    rows=st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=8),
    end=st.sampled_from([b"\n", b"\r\n"]),
    size=st.sampled_from([4, 5, 7, 16, 64, 1 << 20]),
    most=st.integers(2, 5),
    everywhere=st.booleans(),
)
@example(
    rows=[(b"x", b"\n" * 9 + b"y,1,1\n", b"2"), (b"\nz", b"1", b"2")], end=b"\n", size=64, most=2, everywhere=False
)
def test_cells_of_a_proper_writer_steer_no_record_however_many_lines_they_hold(
    rows: list[tuple[bytes, bytes, bytes]], end: bytes, size: int, most: int, *, everywhere: bool
) -> None:
    records = written(rows, b",", end, everywhere=everywhere)
    found = read(b"a,b,c\n" + b"".join(records), CsvFormat(lines_per_record=most), size=size)
    kept = [row for row in rows if b"".join(row).count(b"\n") < most]
    words = {word.encode() for word in MISSING}
    assert found.rows == [tuple(None if cell.strip(b" \t") in words else cell for cell in row) for row in kept]
    assert (found.unreadable, found.uneven) == (len(rows) - len(kept), 0)


@given(
    rows=st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=1),
    place=st.integers(1, 80),
    end=st.sampled_from([b"\n", b"\r\n"]),
)
def test_record_that_is_too_long_is_kept_as_one_that_stands_at_the_same_place(
    rows: list[tuple[bytes, bytes, bytes]], place: int, end: bytes
) -> None:
    form = CsvFormat(lines_per_record=2)
    is_record, is_open = grammar(form.separator)
    [record] = written(rows, b",", end, everywhere=False)
    cut = min(place, len(record) - 1)
    instead = shortened(record[:cut], form, is_open) + record[cut:]
    match = is_record.match(instead)
    assert match is not None
    assert match.end() == len(instead)
    assert instead.count(b"\n") > form.lines_per_record


def test_declared_cell_of_many_mebibytes_is_one_unreadable_record_and_no_line_of_it_another() -> None:
    note = b"\ns1,9,9\n" * (3 << 20) + b'"'
    rows = [(b"s1", b"1", b"\n2"), (b"x", note, b"2"), (b"s2", b"\n,3", b"4")]
    data = b"a,b,c\n" + b"".join(written(rows, b",", b"\n", everywhere=False))
    found = read(data, CsvFormat(lines_per_record=3))
    assert (found.rows, found.unreadable) == ([rows[0], rows[2]], 1)


def test_declared_record_whose_quote_never_closes_leaves_the_others_as_they_are() -> None:
    """Nothing is promised of such a file, and nothing is lost where it is short or a quote shows what is wrong."""
    lines = [*GOOD[:70], b'x,"1,2', *GOOD[70:100], b's500,"q",1', *GOOD[100:]]
    found = read(b"a,b,c\n" + b"\n".join(lines) + b"\n", CsvFormat(lines_per_record=2))
    assert (len(found.rows), found.unreadable) == (150, 1)
    found = read(b"a,b,c\n" + b"\n".join(lines[:100]) + b"\n", CsvFormat(lines_per_record=2))
    assert (len(found.rows), found.unreadable) == (99, 1)


@given(row=st.lists(CELL, min_size=1, max_size=5), everywhere=st.booleans())
def test_cells_of_a_line_are_those_of_the_standard_library(row: list[bytes], *, everywhere: bool) -> None:
    [line] = written([[cell.replace(b"\n", b"") for cell in row]], b",", b"", everywhere=everywhere)
    [cells] = csv.reader([line.decode("latin-1")], strict=True) if line else [[""]]
    assert cells_of_line(line, b",") == [cell.encode("latin-1") for cell in cells]


@pytest.mark.parametrize(
    "data", [b"", b"\n\r\n", b'"a,b,c\nx,1,2\n', b"a,b,c" + b"x" * LONGEST_LINE, b"a,b\n1,2\n", b"a,b,c,c\n1,2,3,4\n"]
)
def test_header_that_cannot_be_used_is_a_fault(data: bytes) -> None:
    with pytest.raises(csv.Error):
        read(data, USUAL)


def test_file_with_a_mark_blank_lines_and_no_last_line_end_is_read_from_its_header_on() -> None:
    found = read(b"\xef\xbb\xbf\r\n\n" + b'"a",b,c\r\n\r\nx,"",2\r\ny,1,2', USUAL)
    assert found == Found([(b"x", None, b"2"), (b"y", b"1", b"2")], 0, 0, 0)
