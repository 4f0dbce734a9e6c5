"""The first sheet of an Excel workbook (.xlsx), read in batches: its first row names the columns.

Each cell is read alone, as the workbook types it: a number (a date if its style shows one), a text, true or false. A
cell that cannot be read, such as the error #DIV/0!, has no value, and nothing else is lost.

A workbook is a zip archive of XML. An XML parser would end at the first odd character and lose every row behind it, so
we look at each row and each text alone. Tags alone decide where an element begins and ends: what somebody typed into a
cell stands in XML as `&lt;`, or in a CDATA section, so no cell can begin or end another element. Memory is bounded
whatever sizes a cell or the archive claim.
"""

import json
import re
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from html import escape
from lzma import LZMAError
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import IO
from zipfile import BadZipFile, ZipFile

from commingle.party_agent.errors import SourceError
from commingle.party_agent.private.rows import RawBatch, cells_of
from commingle.party_agent.private.sorting import SealedScratch
from commingle.shared.runtime.files import open_plain
from commingle.shared.runtime.tables import ROWS_AT_ONCE
from commingle.shared.text import trimmed_names
from commingle.shared.values import UNREADABLE

MOST_RECORD_BYTES = 1 << 24
_MOST_STRING_BYTES = 1 << 20
_MOST_PART_BYTES = 1 << 34
_MOST_SMALL_PART_BYTES = 1 << 26
_PIECE_BYTES = 1 << 18
_PIECES_AT_HAND = 1 << 10
_LONGEST_TEXT = 4096
"""Bytes of a cell's text: no id, level or number is as long."""
_OBJECT_BYTES = 64
_CHUNK_BYTES = 1 << 20
_LONGEST_TOKEN = 64
_PREFIX = rb"(?:[\w.-]{1,32}:)?"
_TAG_END, _CDATA_END, _COMMENT_END = re.compile(rb"/?>"), re.compile(rb"\]\]>"), re.compile(rb"-->")
_SECTION = re.compile(rb"<!\[CDATA\[(.*?)\]\]>|<!--.*?-->", re.DOTALL)
_OPEN_TEXT, _PHONETIC = re.compile(rb"<" + _PREFIX + rb"(t|rPh)(?=[\s/>])"), re.compile(rb"</" + _PREFIX + rb"rPh\s*>")
_ROOT, _ENCODINGS = re.compile(rb"<[^?!\0]"), frozenset({b"utf-8", b"us-ascii"})
_DECLARED = re.compile(rb"<\?xml[^>]*?encoding\s*=\s*[\"']([\w.-]+)[\"']")
_ATTRIBUTE = re.compile(rb"(?<![\w.:-])([\w.:-]++)\s*+=\s*+(?:\"([^\"<]*+)\"|'([^'<]*+)')")
_ENTITY = re.compile(r"&(?:#([0-9]{1,7})|#x([0-9a-fA-F]{1,6})|(lt|gt|amp|quot|apos));|&")
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_ESCAPED = re.compile("_x([0-9a-fA-F]{4})_")
_NO_CHARACTER = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_CLOCK = re.compile(r"[dmyhs]", re.IGNORECASE)
_NOT_FORMAT = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.|_.|\*.')
_DURATION = re.compile(r"\[(?:h+|m+|s+)\]", re.IGNORECASE)
_DATE_FORMATS = frozenset({*range(14, 23), *range(27, 37), 45, 47, *range(50, 59)})
"""Numbers of Excel's own formats that show a date or a time of day."""
_BATCH_BYTES = 1 << 26
_LONGEST_CELL = 1 << 17
_CELL = re.compile(rb"<" + _PREFIX + rb"c(?=[\s/>])")
_VALUE, _VALUE_END = re.compile(rb"<" + _PREFIX + rb"v(?=[\s/>])[^<>]*+>"), re.compile(rb"</" + _PREFIX + rb"v\s*>")
_PLACE = re.compile(rb"([A-Za-z]{1,3})[0-9]{1,7}")
_WHOLE = re.compile(r"[+-]?[0-9]{1,300}+")
_REAL = re.compile(r"[+-]?(?:[0-9]{1,300}+\.?+[0-9]{0,300}+|\.[0-9]{1,300}+)(?:[eE][+-]?[0-9]{1,4}+)?")
_DAY = timedelta(days=1)
_FIRST_DAY = {False: datetime(1899, 12, 30), True: datetime(1904, 1, 1)}  # noqa: DTZ001 - Excel knows no time zones
_DAY_THAT_NEVER_WAS = 60
"""In the count from 1900: its 29th of February."""
_DAMAGED = (OSError, BadZipFile, zlib.error, LZMAError, EOFError, RuntimeError, KeyError, ValueError, struct.error)
"""What reading raises if a file is no archive, is encrypted, or its parts are not what it says."""
Attributes = Mapping[bytes, bytes]


def is_workbook(path: Path) -> bool:
    return path.suffix.lower() == ".xlsx"


def sheet_columns(path: Path) -> list[str]:
    """The cells of the first row (`trimmed_names`). Raises SourceError."""
    with open_workbook(path) as book:
        return _Sheet(book).header


def read_sheet(path: Path, columns: Sequence[str]) -> Iterator[RawBatch]:
    """Some columns, each of which exists once; a row without any cell is no row. Raises SourceError."""
    with open_workbook(path) as book:
        book.require_whole()
        yield from _Sheet(book).batches(columns)


class _Sheet:
    def __init__(self, book: "Workbook") -> None:
        self._book, self._texts, self._rows = book, SharedTexts(book), book.rows()
        first = next((row for row in self._rows if row is None or _CELL.search(row)), b"")
        if first is None:
            raise SourceError("the first row of the sheet is too long", remedy="Name the columns there.")
        named = dict(self._cells(first))
        header = (named.get(place) for place in range(max(named, default=-1) + 1))
        self.header = trimmed_names(["" if name is None or isinstance(name, bytes) else str(name) for name in header])

    def batches(self, columns: Sequence[str]) -> Iterator[RawBatch]:
        places = {self.header.index(name): name for name in columns}
        part, lost, size = list[Mapping[int, object]](), 0, 0
        for row in self._rows:
            if row is None:
                lost += 1
                continue
            found = dict(self._cells(row, places))
            if found or any(value is not None for _, value in self._cells(row)):
                part.append(found)
                size += len(row)
            if len(part) == ROWS_AT_ONCE or size > _BATCH_BYTES:
                yield _batch(part, places, lost)
                part, lost, size = [], 0, 0
        if part or lost:
            yield _batch(part, places, lost)

    def _cells(self, row: bytes, wanted: Mapping[int, str] | None = None) -> Iterator[tuple[int, object]]:
        place = -1
        for cell in _CELL.split(row)[1:]:
            attributes = attributes_of(cell[: max(cell.find(b">"), 0)])
            place = _place(attributes.get(b"r"), place + 1)
            if wanted is None or place in wanted:
                value = self._value(cell, attributes) if len(cell) <= _LONGEST_CELL else UNREADABLE
                if value is not None:
                    yield place, value

    def _value(self, cell: bytes, attributes: Mapping[bytes, bytes]) -> object:
        kind = attributes.get(b"t", b"n")
        if kind == b"inlineStr":
            return joined_text(cell) or None
        text = _written(cell)
        if text is None or isinstance(text, bytes):
            return text
        if kind == b"s":
            return (self._texts[int(text)] or None) if re.fullmatch("[0-9]{1,9}", text) else UNREADABLE
        if kind == b"n":
            return self._number(text.strip(), attributes.get(b"s", b"0"))
        if kind == b"b":
            return {"1": True, "true": True, "0": False, "false": False}.get(text.strip(), UNREADABLE)
        return text if kind in {b"str", b"d"} else UNREADABLE

    def _number(self, text: str, style: bytes) -> object:
        if not (is_whole := _WHOLE.fullmatch(text)) and not _REAL.fullmatch(text):
            return UNREADABLE
        value = int(text) if is_whole else float(text)
        if not (style.isdigit() and len(style) < 9 and int(style) in self._book.dates):  # noqa: PLR2004 - digits
            return value
        return _moment(value, from_1904=self._book.from_1904)


def _batch(rows: Sequence[Mapping[int, object]], places: Mapping[int, str], lost: int) -> RawBatch:
    columns = {name: cells_of([row.get(place) for row in rows]) for place, name in places.items()}
    return RawBatch(columns, len(rows), unreadable=lost)


def _place(reference: bytes | None, following: int) -> int:
    """The column of a cell, from 0: `AB7` is 27. A cell that does not say it is behind the one before."""
    found = _PLACE.fullmatch(reference or b"")
    if found is None:
        return following if reference is None else -1
    place = 0
    for letter in found[1].upper():
        place = 26 * place + letter - 64
    return place - 1


def _written(cell: bytes) -> str | bytes | None:
    begin = _VALUE.search(cell)
    if begin is None or begin[0].endswith(b"/>"):
        return None
    end = _VALUE_END.search(cell, begin.end())
    return UNREADABLE if end is None else plain_text(cell[begin.end() : end.start()]) or None


def _moment(days: float, *, from_1904: bool) -> object:
    """A number that is shown as a date, as the text of that date; less than a day, as the time."""
    try:
        whole, fraction = divmod(days, 1)
        time = timedelta(milliseconds=round(fraction * _DAY.total_seconds() * 1000))
        if 0 <= days < 1 and time < _DAY:
            return (_FIRST_DAY[from_1904] + time).time().isoformat()
        if 0 < days < _DAY_THAT_NEVER_WAS and not from_1904:
            whole += 1
        return (_FIRST_DAY[from_1904] + timedelta(days=whole) + time).isoformat(" ")
    except (OverflowError, ValueError):
        return UNREADABLE


@dataclass(frozen=True, slots=True)
class Workbook:
    """The parts of a workbook that its cells need.

    Attributes:
        sheet, strings: names of the parts of the first sheet and, if there is one, of shared texts.
        dates: numbers of the styles that show a date.
        from_1904: whether days are counted from 1904.
    """

    archive: ZipFile
    sheet: str
    strings: str | None
    dates: frozenset[int]
    from_1904: bool

    def rows(self) -> Iterator[bytes | None]:
        """The rows of the sheet, each as its element; None for one that is too long."""
        with _opened(self.archive, self.sheet) as stream:
            yield from records(stream, b"row", within=b"sheetData", most=MOST_RECORD_BYTES)

    def texts(self) -> Iterator[str | bytes]:
        if self.strings is not None:
            with _opened(self.archive, self.strings) as stream:
                for element in records(stream, b"si", within=b"sst", most=_MOST_STRING_BYTES):
                    yield UNREADABLE if element is None else joined_text(element)

    def require_whole(self) -> None:
        """Read all parts of the rows once, so that we refuse a damaged file before we take a row."""
        for part, name, within in ((self.sheet, b"row", b"sheetData"), (self.strings, b"si", b"sst")):
            if part is not None:
                with _opened(self.archive, part) as stream:
                    for _ in records(stream, name, within=within, most=0):
                        pass
                    while stream.read(_CHUNK_BYTES):  # at the end its checksum is looked at
                        pass


class SharedTexts:
    """The texts that cells share. We read no more of them than the cells so far have asked for, and hold some of them.

    Neighbours: one cell may ask for any text, or for one that is not there. It takes time and no memory for that.
    """

    def __init__(self, book: Workbook) -> None:
        self._next, self._begin, self._size = book.texts(), 0, 0
        self._waiting, self._sealed, self._begins = list[str | bytes](), SealedScratch(), list[int]()
        self._piece = lru_cache(_PIECES_AT_HAND)(partial(_texts_of, self._sealed))

    def __getitem__(self, number: int) -> str | bytes:
        """One text; UNREADABLE if no text has that number."""
        while number >= self._begin + len(self._waiting):
            if (text := next(self._next, None)) is None:
                return UNREADABLE
            self._add(text)
        if number >= self._begin:
            return self._waiting[number - self._begin]
        piece = bisect_right(self._begins, number) - 1
        found = self._piece(piece)[number - self._begins[piece]]
        return UNREADABLE if found is None else found

    def _add(self, text: str | bytes) -> None:
        self._waiting.append(text)
        self._size += len(text) + _OBJECT_BYTES
        if self._size > _PIECE_BYTES:
            texts = [text if isinstance(text, str) else None for text in self._waiting]
            self._sealed.append(json.dumps(texts).encode())
            self._begins.append(self._begin)
            self._begin, self._waiting, self._size = self._begin + len(texts), [], 0


def _texts_of(sealed: SealedScratch, piece: int) -> list[str | None]:
    texts: list[str | None] = json.loads(sealed.read(piece))
    return texts


@contextmanager
def open_workbook(path: Path) -> Iterator[Workbook]:
    """A workbook with a sheet. Raises SourceError, as does reading it."""
    try:
        with open_plain(path) as file, ZipFile(file) as archive:
            yield _workbook(archive)
    except _DAMAGED as error:
        said = "not of this format" if isinstance(error, BadZipFile) else type(error).__name__
        said = error.strerror if isinstance(error, OSError) and error.strerror else said
        raise SourceError(
            f"cannot read {path} ({said})", remedy="Check that it is an Excel workbook (.xlsx) with a sheet."
        ) from None


def records(stream: IO[bytes], name: bytes, *, within: bytes, most: int) -> Iterator[bytes | None]:
    """The elements of a name within the first element of another, each with its tags; None for one that is too long.

    Comments are gone, and CDATA sections are written as other text is. Raises BadZipFile: the outer one does not end.
    """
    token = re.compile(rb"<!\[CDATA\[|<!--|<(/?)" + _PREFIX + rb"(" + name + rb"|" + within + rb")(?=[\s/>])")
    window, is_inside = _Window(stream, most), False
    while (found := window.search(token)) is not None:
        if found[2] is None:
            window.search(_COMMENT_END if found[0] == b"<!--" else _CDATA_END)
        elif found[2] == within:
            tag = window.search(_TAG_END)
            if is_inside or found[1] or tag is None or tag[0] == b"/>":
                return
            is_inside = True
        elif is_inside and not found[1]:
            if window.is_open:  # an element that never ended
                window.take()
                yield None
            window.begin(found.start())
            if (tag := window.search(_TAG_END)) is not None and tag[0] == b"/>":
                yield window.take()
        elif is_inside and window.is_open:
            window.search(_TAG_END)
            yield window.take()
    raise BadZipFile


def joined_text(element: bytes) -> str | bytes:
    """The `t` elements of a text, side by side, without how it is pronounced."""
    parts, at = list[bytes](), 0
    while (tag := _OPEN_TEXT.search(element, at)) is not None:
        if tag[1] == b"rPh":
            end = _PHONETIC.search(element, tag.end())
            at = len(element) if end is None else end.end()
            continue
        begin = element.find(b">", tag.end()) + 1
        at = begin or len(element)
        if begin and element[begin - 2 : begin] != b"/>":
            at = element.find(b"<", begin)
            if at < 0:
                return UNREADABLE
            parts.append(element[begin:at])
    return plain_text(b"".join(parts))


def plain_text(raw: bytes) -> str | bytes:
    """Character data as text; UNREADABLE if it is none."""
    if len(raw) > _LONGEST_TEXT or b"<" in raw:
        return UNREADABLE
    try:
        text = raw.decode()
        text = _ENTITY.sub(_character, text) if "&" in text else text
        text = _ESCAPED.sub(lambda code: chr(int(code[1], 16)), text) if "_x" in text else text
    except ValueError:
        return UNREADABLE
    return UNREADABLE if _NO_CHARACTER.search(text) else text


def attributes_of(tag: bytes) -> Attributes:
    """Attributes of an element's opening tag, under their names as written."""
    return {found[1]: found[3] if found[2] is None else found[2] for found in _ATTRIBUTE.finditer(tag)}


class _Window:
    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self._most = stream, most
        self._data, self._at, self._start = b"", 0, 0
        self.is_open = self._is_kept = False

    def search(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        while (found := pattern.search(self._data, self._at)) is None:
            self._at = max(self._at, len(self._data) - _LONGEST_TOKEN)
            if not self._read():
                return None
        self._at = found.end()
        return found

    def begin(self, start: int) -> None:
        self.is_open = self._is_kept = True
        self._start = start

    def take(self) -> bytes | None:
        is_kept, self.is_open, self._is_kept = self._is_kept, False, False
        element = self._data[self._start : self._at]
        if not is_kept or len(element) > self._most:
            return None
        return _SECTION.sub(lambda cdata: _escaped(cdata[1] or b""), element) if b"<!" in element else element

    def _read(self) -> bool:
        if self._at - self._start > self._most:
            self._is_kept = False
        keep = self._start if self._is_kept else self._at
        piece = self._stream.read(_CHUNK_BYTES)
        self._data, self._at, self._start = self._data[keep:] + piece, self._at - keep, max(self._start - keep, 0)
        return bool(piece)


def _escaped(text: bytes) -> bytes:
    return escape(text.decode("latin-1")).encode("latin-1")


def _character(entity: re.Match[str]) -> str:
    decimal, hexadecimal, name = entity.groups()
    return _NAMED[name] if name else chr(int(decimal or hexadecimal or "no number", 10 if decimal else 16))


@contextmanager
def _opened(archive: ZipFile, part: str) -> Iterator[IO[bytes]]:
    if archive.getinfo(part).file_size > _MOST_PART_BYTES:
        raise BadZipFile
    with archive.open(part) as stream:
        begin = stream.peek(_CHUNK_BYTES)[: 1 << 12]  # type: ignore[attr-defined] # it has one, says its documentation
        root = _ROOT.search(begin)
        prolog = begin if root is None else begin[: root.start()]  # behind it, records begin: they decide nothing here
        declared = _DECLARED.search(prolog)
        if b"<!DOCTYPE" in prolog or b"\0" in prolog or (declared and declared[1].lower() not in _ENCODINGS):
            raise BadZipFile
        yield stream


def _small(archive: ZipFile, part: str) -> bytes:
    if archive.getinfo(part).file_size > _MOST_SMALL_PART_BYTES:
        raise BadZipFile
    with _opened(archive, part) as stream:
        return _SECTION.sub(b"", stream.read(_MOST_SMALL_PART_BYTES))


def _tags(part: bytes, name: bytes) -> Iterator[Attributes]:
    tag = re.compile(rb"<" + _PREFIX + name + rb"(?=[\s/>])((?:[^<>\"']|\"[^<\"]*\"|'[^<']*')*)>")
    return (attributes_of(found[1]) for found in tag.finditer(part))


def _related(archive: ZipFile, part: str) -> list[tuple[bytes, bytes, str]]:
    folder = dirname(part)
    name = join(folder, "_rels", f"{part[len(folder) :].lstrip('/')}.rels")
    related = []
    for one in _tags(_small(archive, name), b"Relationship"):
        target = plain_text(one.get(b"Target", b""))
        if isinstance(target, str):
            path = normpath(join("/", folder, target)).lstrip("/")
            related.append((one.get(b"Id", b""), one.get(b"Type", b"").rpartition(b"/")[2], path))
    return related


def _workbook(archive: ZipFile) -> Workbook:
    main = next((path for _, kind, path in _related(archive, "") if kind == b"officeDocument"), "xl/workbook.xml")
    book, related = _small(archive, main), _related(archive, main)
    sheets = {identity: path for identity, kind, path in related if kind == b"worksheet"}
    listed = [value for one in _tags(book, b"sheet") for name, value in one.items() if name.endswith(b":id")]
    others = {kind: path for _, kind, path in related if kind in {b"sharedStrings", b"styles"}}
    days = [one.get(b"date1904", b"0") for one in _tags(book, b"workbookPr")]
    first = next((sheets[identity] for identity in listed if identity in sheets), None)
    if first is None:
        raise BadZipFile
    return Workbook(
        archive,
        sheet=first,
        strings=others.get(b"sharedStrings"),
        dates=_date_styles(_small(archive, others[b"styles"])) if b"styles" in others else frozenset(),
        from_1904=bool(days) and days[0] in {b"1", b"true"},
    )


def _date_styles(part: bytes) -> frozenset[int]:
    own = {one.get(b"numFmtId"): _shows_date(one.get(b"formatCode", b"")) for one in _tags(part, b"numFmt")}
    known = {str(number).encode(): True for number in _DATE_FORMATS} | own
    _, _, styles = part.partition(b"cellXfs")
    listed = _tags(styles.partition(b"cellXfs")[0], b"xf")
    return frozenset(number for number, one in enumerate(listed) if known.get(one.get(b"numFmtId", b"")))


def _shows_date(code: bytes) -> bool:
    shown = plain_text(code)
    if not isinstance(shown, str):
        return False
    first = shown.partition(";")[0]
    return not _DURATION.search(first) and bool(_CLOCK.search(_NOT_FORMAT.sub("", first)))
