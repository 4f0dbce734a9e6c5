"""The first sheet of an Excel workbook (.xlsx), read in batches: its first row names the columns. Extra `excel`."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from zipfile import BadZipFile

from commingle.party_agent.errors import SourceError
from commingle.party_agent.private.cells import cells_of
from commingle.party_agent.private.rows import RawBatch
from commingle.shared.errors import MissingExtraError
from commingle.shared.runtime.tables import ROWS_AT_ONCE

_UNREADABLE = (OSError, BadZipFile, KeyError, ValueError, SyntaxError)  # the last is of broken XML


def is_workbook(path: Path) -> bool:
    """By the file's suffix."""
    return path.suffix.lower() == ".xlsx"


def sheet_columns(path: Path) -> list[str]:
    """What the first row holds. Raises SourceError."""
    return list(map(str, next(_sheet(path), [])))


def read_sheet(path: Path, columns: Sequence[str]) -> Iterator[RawBatch]:
    """Some columns, which must be there once; a row without any cell is none. Raises SourceError."""
    rows = _sheet(path)
    header = next(rows, [])
    places = {name: header.index(name) for name in columns}
    present = (row for row in rows if any(cell is not None for cell in row))
    while part := list(islice(present, ROWS_AT_ONCE)):
        yield RawBatch(
            {name: cells_of([row[at] if at < len(row) else None for row in part]) for name, at in places.items()},
            len(part),
        )


def _sheet(path: Path) -> Iterator[list[object]]:
    try:
        from openpyxl import load_workbook  # noqa: PLC0415 - an extra, and most tables are no workbooks
    except ModuleNotFoundError:
        raise MissingExtraError("openpyxl", extra="excel") from None
    try:
        book = load_workbook(path, read_only=True, data_only=True)
        try:
            rows = book.worksheets[0].iter_rows(values_only=True)
            yield ["" if name is None else str(name) for name in next(rows, ())]
            yield from map(list, rows)
        finally:
            book.close()
    except _UNREADABLE as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise SourceError(
            f"cannot read {path} ({said})", remedy="Check that it is an Excel workbook (.xlsx) with a sheet."
        ) from None
