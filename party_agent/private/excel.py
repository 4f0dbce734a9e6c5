"""The first sheet of an Excel workbook (.xlsx), read in batches: its first row names the columns.

A cell is read by itself and as the workbook types it: a number (a date where its style shows one), a text, true or
false. What cannot be read, an error such as #DIV/0! too, is a cell that is no value, and nothing else is lost.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from commingle.party_agent.errors import SourceError
from commingle.party_agent.private.rows import UNREADABLE, RawBatch, cells_of
from commingle.party_agent.private.workbook import (
    SharedTexts,
    Workbook,
    attributes_of,
    joined_text,
    open_workbook,
    plain_text,
)
from commingle.shared.runtime.tables import ROWS_AT_ONCE

_BATCH_BYTES = 1 << 26
_LONGEST_CELL = 1 << 17
_PREFIX = rb"(?:[\w.-]{1,32}:)?"
_CELL = re.compile(rb"<" + _PREFIX + rb"c(?=[\s/>])")
_VALUE, _VALUE_END = re.compile(rb"<" + _PREFIX + rb"v(?=[\s/>])[^>]*>"), re.compile(rb"</" + _PREFIX + rb"v\s*>")
_PLACE = re.compile(rb"([A-Za-z]{1,3})[0-9]{1,7}")
_WHOLE = re.compile(r"[+-]?[0-9]{1,300}")
_REAL = re.compile(r"[+-]?(?:[0-9]{1,300}\.?[0-9]{0,300}|\.[0-9]{1,300})(?:[eE][+-]?[0-9]{1,4})?")
_DAY = timedelta(days=1)
_FIRST_DAY = {False: datetime(1899, 12, 30), True: datetime(1904, 1, 1)}  # noqa: DTZ001 - Excel knows no time zones
_DAY_THAT_NEVER_WAS = 60
"""In the count from 1900: its 29th of February."""


def is_workbook(path: Path) -> bool:
    """By the file's suffix."""
    return path.suffix.lower() == ".xlsx"


def sheet_columns(path: Path) -> list[str]:
    """What the first row holds. Raises SourceError."""
    with open_workbook(path) as book:
        return _Sheet(book).header


def read_sheet(path: Path, columns: Sequence[str]) -> Iterator[RawBatch]:
    """Some columns, which must be there once; a row without any cell is none. Raises SourceError."""
    with open_workbook(path) as book:
        book.require_whole()
        yield from _Sheet(book).batches(columns)


class _Sheet:
    def __init__(self, book: Workbook) -> None:
        self._book, self._texts, self._rows = book, SharedTexts(book), book.rows()
        first = next((row for row in self._rows if row is None or _CELL.search(row)), b"")
        if first is None:
            raise SourceError("the first row of the sheet is too long", remedy="Name the columns there.")
        named = dict(self._cells(first))
        header = (named.get(place) for place in range(max(named, default=-1) + 1))
        self.header = ["" if name is None or isinstance(name, bytes) else str(name) for name in header]

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
    """A number that is shown as a date, as the text of that date; of less than a day as the time."""
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
