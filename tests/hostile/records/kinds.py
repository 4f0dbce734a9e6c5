"""Kinds of sources, each of which holds the records of a table as bytes, cells or XML of its own."""

import gzip
import json
import os
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar
from xml.sax.saxutils import escape

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from commingle.party_agent.private.parquet_store import PartitionedSource
from commingle.party_agent.private.sources import FileSource
from commingle.party_agent.private.sql_store import SqlSource
from commingle.party_agent.wire.answers import ARROW, CSV, JSON_LINES
from commingle.shared.runtime.csv_format import Decimal, Encoding, Separator
from tests.hostile.records.cells import Made, instead

Source = FileSource | PartitionedSource | SqlSource
Piece = tuple[bytes, str]
"""A body and its media type."""
Row = Sequence[Any]
COLUMNS = ("id", "age", "dose", "sick", "blood", "seen")


class ImpossibleError(Exception):
    """No source of this kind can hold that record."""


Written_co = TypeVar("Written_co", covariant=True)


class Kind(Protocol[Written_co]):
    """Records are whatever it makes of them."""

    def honest(self, row: Row) -> Any:
        """A person's record."""

    def hostile(self, row: Row) -> Iterator[tuple[str, Made]]:
        """What may stand instead, with names."""

    def write(self, where: Path, records: Sequence[Any]) -> Written_co:
        """A source of these records, in that order. Raises ImpossibleError."""


class Values:
    """Records are rows of values, which a kind of source takes or does not."""

    def honest(self, row: Row) -> Any:
        return tuple(row)

    def hostile(self, row: Row) -> Iterator[tuple[str, Made]]:
        for name, rows in instead(row):
            yield name, partial(tuple, rows)


@dataclass(frozen=True)
class Csv:
    """Records are lines."""

    encoding: Encoding = "utf-8"
    separator: Separator = ","
    decimal: Decimal = "."
    end: str = "\n"
    suffix: str = ".csv"

    _BYTES: ClassVar[Mapping[Encoding, str]] = {"utf-16": "utf-16-le"}

    def honest(self, row: Row) -> bytes:
        return self._line([self._bytes(cell) for cell in row])

    def hostile(self, row: Row) -> Iterator[tuple[str, Made]]:
        """Cells as a writer that quotes none writes them, and one that quotes all; and bytes that no writer writes."""
        for name, rows in instead(row):
            yield name, partial(self._lines, rows, self._bytes)
            if rows != (row,):
                yield f"{name}, quoted", partial(self._lines, rows, self._quoted)
        line, mark, comma = self.honest(row), self._bytes('"'), self._bytes(self.separator)
        for at in range(0, len(line) + 1, 3):
            yield f"a quotation mark at {at}", partial(tuple, (line[:at] + mark + line[at:],))
            yield f"one byte at {at}", partial(tuple, (line[:at] + b"x" + line[at:],))
            yield f"cut at {at}", partial(tuple, (line[:at],))
        for what in (
            b"",
            comma,
            comma * 9,
            mark,
            mark * 3,
            comma + mark,
            line + comma,
            line + comma + mark,
            b"\0",
            b"\n",
        ):
            yield f"the line {what!r}", partial(tuple, (what,))
            yield f"the line {what!r} before", partial(tuple, (what, line))
        yield "70 MB", lambda: (line + mark + b"y" * 70_000_000,)

    def write(self, where: Path, records: Sequence[bytes]) -> Source:
        path, body = where / f"table{self.suffix}", self.body(records)
        path.write_bytes(gzip.compress(body, 1) if self.suffix.endswith(".gz") else body)
        return FileSource(path=str(path), encoding=self.encoding, separator=self.separator, decimal=self.decimal)

    def body(self, records: Sequence[bytes]) -> bytes:
        head, end = self._line([self._bytes(name) for name in COLUMNS]), self._bytes(self.end)
        return (b"\xff\xfe" if self.encoding == "utf-16" else b"") + b"".join(line + end for line in (head, *records))

    def _lines(self, rows: Sequence[Row], cell: Callable[[object], bytes]) -> tuple[bytes, ...]:
        return tuple(self._line(list(map(cell, cells))) for cells in rows)

    def _line(self, cells: Sequence[bytes]) -> bytes:
        return self._bytes(self.separator).join(cells)

    def _quoted(self, cell: object) -> bytes:
        mark = self._bytes('"')
        return mark + self._bytes(cell).replace(mark, mark * 2) + mark

    def _bytes(self, cell: object) -> bytes:
        if isinstance(cell, bytes):
            return cell
        text = written(cell).replace(".", self.decimal) if isinstance(cell, float) else written(cell)
        known = self._BYTES.get(self.encoding, self.encoding)
        return text.encode(known, "replace" if known.startswith("w") else "surrogatepass")


def written(cell: object) -> str:
    if isinstance(cell, int) and not isinstance(cell, bool) and abs(cell) > 10**4000:
        return "1" + "0" * 5000
    return "" if cell is None else str(int(cell)) if isinstance(cell, bool) else str(cell)


def told(record: bytes | Row) -> bytes:
    """What a record says, as far as it may name somebody."""
    cells = record if isinstance(record, bytes) else b"\t".join(_stored(cell) or b"" for cell in record)
    return cells[:1_000_000].replace(b"\0", b"")  # as UTF-16 has them


Types = Mapping[str, "pa.DataType"]
PLAIN: Types = dict(
    zip(COLUMNS, (pa.string(), pa.float64(), pa.int64(), pa.bool_(), pa.string(), pa.date32()), strict=True)
)
NUMBERED: Types = {**PLAIN, "sick": pa.int8()}
TEXT: Types = dict.fromkeys(COLUMNS, pa.large_string())
RAW: Types = dict.fromkeys(COLUMNS, pa.binary())
ODD: Types = dict(
    zip(
        COLUMNS,
        (
            *(pa.dictionary(pa.int32(), pa.string()), pa.float32(), pa.decimal128(30, 3)),
            *(pa.int8(), pa.large_binary(), pa.timestamp("us")),
        ),
        strict=True,
    )
)


def column(values: Sequence[object], kind: "pa.DataType") -> "pa.Array[Any]":
    """Values as cells of that type; of a text any bytes. Raises ImpossibleError: one is of another type."""
    if isinstance(kind, pa.DictionaryType):
        return column(values, kind.value_type).dictionary_encode()
    try:
        if kind in {pa.string(), pa.binary()}:
            return pa.array(list(map(_stored, values)), pa.binary()).view(kind)
        if kind in {pa.large_string(), pa.large_binary()}:
            return pa.array(list(map(_stored, values)), pa.large_binary()).view(kind)
        return pa.array([None if v is None else _scalar(v).cast(kind).as_py() for v in values], kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        raise ImpossibleError from None


def _scalar(value: Any) -> Any:
    return pa.scalar(value)


def _stored(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return written(value).encode("utf-8", "surrogatepass")


def arrow_table(records: Sequence[Row], types: Types) -> "pa.Table":
    cells = zip(*records, strict=True) if records else [()] * len(types)
    return pa.table({name: column(values, types[name]) for name, values in zip(types, cells, strict=True)})


@dataclass(frozen=True)
class Parquet(Values):
    """One file; cells are of the types that its schema has, of texts any bytes."""

    types: Types
    rows_of_a_group: int = 25

    def write(self, where: Path, records: Sequence[Row]) -> Source:
        pq.write_table(arrow_table(records, self.types), where / "table.parquet", row_group_size=self.rows_of_a_group)
        return FileSource(path=str(where / "table.parquet"))


@dataclass(frozen=True)
class Folder(Values):
    """Three files of one table; or one for each level of the fifth column, which its folder is named after."""

    types: Types
    named: bool = False

    def write(self, where: Path, records: Sequence[Row]) -> Source:
        root, files = where / "lake", dict[bytes, list[Row]]()
        for place, row in enumerate(records):
            files.setdefault(self._file(place, row), []).append((*row[:4], row[5]) if self.named else row)
        types = {name: kind for name, kind in self.types.items() if name != "blood" or not self.named}
        for old in root.rglob("*.parquet"):
            old.unlink()
        for path, rows in files.items():
            file = Path(os.fsdecode(os.fsencode(root) + path))
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
            except (OSError, ValueError):  # no name of a folder
                raise ImpossibleError from None
            with file.open("wb") as sink:
                pq.write_table(arrow_table(rows, types), sink)
        return PartitionedSource(path=str(root))

    def _file(self, place: int, row: Row) -> bytes:
        if not self.named:
            return b"/part-%d.parquet" % (place % 3)
        level = _stored(row[4])
        return b"/blood=" + (level or b"__HIVE_DEFAULT_PARTITION__") + b"/part.parquet"


@dataclass(frozen=True)
class Excel(Values):
    """Records are cells of XML. What Excel's own writer escapes in a text is escaped."""

    _NUMBERS: ClassVar[tuple[str, ...]] = ("NaN", "INF", "-INF", "1e999", "9" * 5000, "", "x", "1e-400", "0x10", "1 2")

    def honest(self, row: Row) -> tuple[str, ...]:
        return tuple(map(self._cell, row))

    def hostile(self, row: Row) -> Iterator[tuple[str, Made]]:
        for name, rows in instead(row):
            yield name, partial(self._all_honest, rows)
        own = self.honest(row)
        for place in range(len(row)):
            for xml in self._odd():
                yield f"column {place} is {xml[:60]}", partial(tuple, ((*own[:place], xml, *own[place + 1 :]),))
        yield "a long row", partial(tuple, (own + own,))
        yield "a short row", partial(tuple, (own[:1],))
        yield "an empty row", partial(tuple, ((), own))

    def _all_honest(self, rows: Sequence[Row]) -> tuple[tuple[str, ...], ...]:
        return tuple(map(self.honest, rows))

    def write(self, where: Path, records: Sequence[tuple[str, ...]]) -> Source:
        rows = [tuple(map(self._cell, COLUMNS)), *records]
        body = "".join(f"<row>{''.join(cells)}</row>" for cells in rows)
        parts = {
            "[Content_Types].xml": _TYPES,
            "_rels/.rels": _rels("officeDocument", "xl/workbook.xml"),
            "xl/workbook.xml": _WORKBOOK,
            "xl/_rels/workbook.xml.rels": _rels("worksheet", "worksheets/sheet1.xml", "styles", "styles.xml"),
            "xl/styles.xml": _STYLES,
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{_MAIN}"><sheetData>{body}</sheetData></worksheet>',
        }
        path = where / "table.xlsx"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as book:
            for name, xml in parts.items():
                book.writestr(name, xml.encode("utf-8", "surrogatepass"))
        return FileSource(path=str(path))

    def _odd(self) -> Iterator[str]:
        for value in self._NUMBERS:
            yield f"<c><v>{value}</v></c>"
            yield f'<c s="1"><v>{value}</v></c>'  # a date
            for kind in ("b", "d", "s", "e", "str", "unheard-of"):
                yield f'<c t="{kind}"><v>{value}</v></c>'
        for value in ("1e300", "-5", "2958466", "99999999999"):
            yield f'<c s="1"><v>{value}</v></c>'
        for value in ("2020-02-30", "2020-13-01T00:00:00", "2020-02-29T25:00:00Z", "P1D"):
            yield f'<c t="d"><v>{value}</v></c>'
        yield from ('<c t="s"><v>99</v></c>', '<c s="99"><v>1</v></c>', "<c/>", "<c><f>1/0</f></c>")
        yield from ('<c t="inlineStr"/>', '<c t="inlineStr"><is/></c>', "<c><v>&#11;</v></c>", "<c><v>&#55296;</v></c>")

    def _cell(self, value: object) -> str:
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if value is None:
            return "<c/>"
        if isinstance(value, date):
            return f'<c s="1"><v>{(date(value.year, value.month, value.day) - date(1899, 12, 30)).days}</v></c>'
        if isinstance(value, bool):
            return f'<c t="b"><v>{int(value)}</v></c>'
        text = escape(written(value))
        return f"<c><v>{text}</v></c>" if isinstance(value, int | float) else _TEXT_CELL.format(text)


_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TEXT_CELL = '<c t="inlineStr"><is><t xml:space="preserve">{}</t></is></c>'
_WORKBOOK = (
    f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets><sheet name="t" sheetId="1" r:id="r0"/></sheets></workbook>'
)
_STYLES = (
    f'<styleSheet xmlns="{_MAIN}"><fonts><font/></fonts><fills><fill><patternFill/></fill></fills>'
    "<borders><border/></borders><cellStyleXfs><xf/></cellStyleXfs>"
    '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
    '<cellStyles><cellStyle name="Normal" xfId="0"/></cellStyles></styleSheet>'
)
_KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_TYPES = (
    f'<Types xmlns="{_PACKAGE}/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{_KIND}.sheet.main+xml"/>'
    f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_KIND}.worksheet+xml"/>'
    f'<Override PartName="/xl/styles.xml" ContentType="{_KIND}.styles+xml"/></Types>'
)


def _rels(*pairs: str) -> str:
    each = enumerate(zip(pairs[::2], pairs[1::2], strict=True))
    links = "".join(f'<Relationship Id="r{i}" Type="{_OFFICE}/{kind}" Target="{to}"/>' for i, (kind, to) in each)
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{links}</Relationships>'


def queried(url: str, query: str | tuple[str, ...] = "SELECT * FROM t") -> SqlSource:
    return SqlSource(url=url, query=query)


@dataclass(frozen=True)
class Sqlite(Values):
    """Columns have no type; of what is bytes a text is made where `texts`."""

    texts: bool
    query: str | tuple[str, ...] = "SELECT * FROM t"

    def write(self, where: Path, records: Sequence[Row]) -> Source:
        path, value = where / "table.db", "CASE WHEN typeof(?1) = 'blob' THEN CAST(?1 AS TEXT) ELSE ?1 END"
        cells = ", ".join(value.replace("?1", f"?{i}") if self.texts else "?" for i in range(1, 1 + len(COLUMNS)))
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")
            db.execute("BEGIN")
            db.execute("DROP TABLE IF EXISTS t")
            db.execute(f"CREATE TABLE t ({', '.join(COLUMNS)})")
            try:
                db.executemany(f"INSERT INTO t VALUES ({cells})", [self._values(row) for row in records])  # noqa: S608 - of this file
            except (sqlite3.Error, OverflowError, UnicodeError):
                raise ImpossibleError from None
            db.execute("COMMIT")
        return queried(f"sqlite:///{path}", self.query)

    @staticmethod
    def _values(row: Row) -> list[object]:
        plain = (type(None), str, bytes, float, int)
        return [cell if isinstance(cell, plain) else written(cell) for cell in row]


@dataclass
class DuckDb(Values):
    """Columns of the types of Arrow's."""

    types: Types
    query: str | tuple[str, ...] = "SELECT * FROM t"

    def write(self, where: Path, records: Sequence[Row]) -> Source:
        path = where / "table.duckdb"
        path.unlink(missing_ok=True)
        table = arrow_table(records, self.types)
        with suppress(pa.ArrowException):
            table.validate(full=True)
            with duckdb.connect(path) as db:
                db.register("given", table)
                db.execute("CREATE TABLE t AS SELECT * FROM given")
            return queried(f"duckdb:///{path}", self.query)
        raise ImpossibleError  # a text of DuckDB's is UTF-8


@dataclass(frozen=True)
class SniffedCsv(Csv):
    """A CSV that a query of DuckDB's reads, which guesses types from all rows."""

    def write(self, where: Path, records: Sequence[bytes]) -> Source:
        super().write(where, records)
        return queried("duckdb:///:memory:", f"SELECT * FROM read_csv('{where / 'table.csv'}', header = true)")  # noqa: S608 - of this file


@dataclass
class Postgres(Values):
    """Columns of these types, at that server."""

    url: str
    types: Sequence[str]

    def write(self, where: Path, records: Sequence[Row]) -> Source:
        del where
        self.connection.execute("TRUNCATE t")
        try:
            with self.connection.transaction(), self.connection.cursor() as rows:
                rows.executemany(self._insert, [tuple(map(self._value, row, self.types)) for row in records])
        except (psycopg.Error, UnicodeError, ValueError, OverflowError):
            raise ImpossibleError from None
        return queried(self.url)

    @cached_property
    def connection(self) -> "psycopg.Connection[Any]":
        """With an empty table of these types."""
        made = psycopg.connect(self.url, autocommit=True)
        made.execute("DROP TABLE IF EXISTS t")
        made.execute(f"CREATE TABLE t ({', '.join(map(' '.join, zip(COLUMNS, self.types, strict=True)))})")
        return made

    @property
    def _insert(self) -> Any:
        return f"INSERT INTO t VALUES ({', '.join('%s::' + kind for kind in self.types)})"  # noqa: S608 - of this file

    @staticmethod
    def _value(cell: object, kind: str) -> object:
        return _stored(cell) if kind == "bytea" else cell


@dataclass(frozen=True)
class CsvPiece(Csv):
    """Rows that are pushed."""

    def write(self, where: Path, records: Sequence[bytes]) -> Piece:  # type: ignore[override] # it is no file
        del where
        return self.body(records), CSV


class JsonPiece(Values):
    """The same, of which bytes stand as they are in a text. A number of a piece is no boolean."""

    def honest(self, row: Row) -> Any:
        return tuple(int(cell) if isinstance(cell, bool) else cell for cell in row)

    def write(self, where: Path, records: Sequence[Row]) -> Piece:
        del where
        rows = [dict(zip(COLUMNS, map(self._value, row), strict=True)) for row in records]
        try:
            return "\n".join(map(json.dumps, rows)).encode().replace(b"\\udcff", b"\xff"), JSON_LINES
        except ValueError:  # a number of too many digits
            raise ImpossibleError from None

    @staticmethod
    def _value(cell: object) -> object:
        if isinstance(cell, bytes):
            return cell.decode("utf-8", "surrogateescape")
        return cell if cell is None or isinstance(cell, str | int | float) else written(cell)


@dataclass(frozen=True)
class ArrowPiece(Values):
    """The same, of these types."""

    types: Types

    def write(self, where: Path, records: Sequence[Row]) -> Piece:
        del where
        table, sink = arrow_table(records, self.types), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes(), ARROW
