"""Excel workbooks: with cells that no program writes, and beside a second reader."""

import tracemalloc
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import openpyxl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openpyxl.styles import NamedStyle
from openpyxl.utils.datetime import CALENDAR_MAC_1904

from commingle.party_agent.errors import DataError, SourceError
from commingle.party_agent.private.excel import read_sheet, sheet_columns
from commingle.party_agent.private.rows import cells_of
from commingle.party_agent.private.sources import FileSource, SourceTable, open_source
from commingle.shared.documents.schema import BinaryAttribute, NumericAttribute
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.values import as_text

Parts = dict[str, bytes]
SHEET, STRINGS = "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml"


def write(path: Path, rows: Sequence[Any]) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.worksheets[0].append(list(row))
    book.save(path)
    return path


def altered(path: Path, alter: Callable[[Parts], None]) -> Path:
    with ZipFile(path) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    alter(parts)
    with ZipFile(path, "w", ZIP_DEFLATED) as book:
        for name, part in parts.items():
            book.writestr(name, part)
    return path


def read(path: Path, *columns: str) -> tuple[list[tuple[str | None, ...]], int]:
    """The texts of some columns, and how many records were passed over."""
    batches = list(read_sheet(path, columns))
    rows = [row for b in batches for row in zip(*(as_text(c, b.columns[c]).to_pylist() for c in columns), strict=True)]
    return rows, sum(batch.unreadable for batch in batches)


ROWS: list[list[Any]] = [["id", "x"], ["p1", 1.5], ["p2", 777], ["p3", "text"], ["p4", True]]
CELL = b'<c r="B3" t="n"><v>777</v></c>'
READ = [("p1", "1.5"), ("p3", "text"), ("p4", "true")]
ODD = {
    "NaN": b'<c r="B3" t="n"><v>NaN</v></c>',
    "INF": b'<c r="B3"><v>INF</v></c>',
    "many digits": b'<c r="B3"><v>' + b"9" * 5000 + b"</v></c>",
    "no number": b'<c r="B3"><v>1_0</v></c>',
    "ISO date": b'<c r="B3" t="d"><v>2020-13-45T99</v></c>',
    "control character": b'<c r="B3" t="str"><v>a\x01b</v></c>',
    "NUL": b'<c r="B3" t="str"><v>a\x00b</v></c>',
    "reference to NUL": b'<c r="B3" t="str"><v>a&#0;b</v></c>',
    "reference too large": b'<c r="B3" t="str"><v>&#x110000;</v></c>',
    "half a surrogate pair": b'<c r="B3" t="str"><v>&#xD800;</v></c>',
    "no UTF-8": b'<c r="B3" t="str"><v>\xff\xfe</v></c>',
    "unknown entity": b'<c r="B3" t="str"><v>&xxe;</v></c>',
    "shared text too high": b'<c r="B3" t="s"><v>999999999</v></c>',
    "shared text below 0": b'<c r="B3" t="s"><v>-1</v></c>',
    "shared text without a number": b'<c r="B3" t="s"><v>a</v></c>',
    "error": b'<c r="B3" t="e"><v>#DIV/0!</v></c>',
    "unknown type": b'<c r="B3" t="zzz"><v>1</v></c>',
    "no truth": b'<c r="B3" t="b"><v>2</v></c>',
    "nothing": b'<c r="B3"/>',
    "no end": b'<c r="B3"><v>777',
    "no attributes": b"<c <v>",
    "no such style": b'<c r="B3" s="99999999999999999999" t="str"><v/></c>',
    "no place": b'<c r="3B"><v>7</v></c>',
    "far away": b'<c r="ZZZ9999999"><v>7</v></c>',
    "inline": b'<c r="B3" t="inlineStr"><is><t>\x02</t></is></c>',
    "inline without end": b'<c r="B3" t="inlineStr"><is><t>a',
    "other markup": b'<c r="B3" t="str"><v><b>7</b></v></c>',
    "a row": b'<c r="B3" t="str"><v><![CDATA[</v></c></row><row r="9"><c r="A9" t="str"><v>p9]]></v></c>',
    "a comment": b'<c r="B3"><!-- </row><row><c r="A9"><v>9</v></c> --></c>',
    "a megabyte": b'<c r="B3" t="str"><v>' + b"a" * (1 << 20) + b"</v></c>",
}


@pytest.mark.parametrize("cell", ODD.values(), ids=list(ODD))
def test_odd_cell_is_missing_and_every_other_one_is_there(tmp_path: Path, cell: bytes) -> None:
    def alter(parts: Parts) -> None:
        assert CELL in parts[SHEET]
        parts[SHEET] = parts[SHEET].replace(CELL, cell)

    path = altered(write(tmp_path / "t.xlsx", ROWS), alter)
    (first, second, *others), lost = read(path, "id", "x")
    assert [first, *others] == READ
    assert (second[0], lost) == ("p2", 0)
    assert second[1] is None or cell in {ODD["ISO date"], ODD["inline without end"], ODD["a row"]}


@pytest.mark.parametrize(
    "cell",
    [b"3\0", b"<![CDATA[<!DOCTYPE x>]]>", b'<![CDATA[<?xml version="1.0" encoding="latin-1"?>]]>'],
    ids=["NUL", "document type", "encoding"],
)
def test_odd_cell_where_a_short_part_begins_is_missing_and_nobody_else(tmp_path: Path, cell: bytes) -> None:
    pairs = [(b"id", b"x"), (b"p1", cell), (b"p2", b"7")]
    row = b'<row><c t="str"><v>%s</v></c><c t="str"><v>%s</v></c></row>'
    sheet = b"<worksheet><sheetData>%s</sheetData></worksheet>" % b"".join(row % pair for pair in pairs)
    path = altered(write(tmp_path / "t.xlsx", ROWS), lambda parts: parts.update({SHEET: sheet}))
    (first, second), lost = read(path, "id", "x")
    assert (first[0], second, lost) == ("p1", ("p2", "7"), 0)


@pytest.mark.parametrize(
    "text",
    [
        b"<si><t>a\x01</t></si>",
        b"<si><t>\xff</t></si>",
        b"<si>",
        b"<si><t>",
        b"<si><t>" + b"a" * (1 << 21) + b"</t></si>",
    ],
    ids=["control character", "no UTF-8", "no end", "two without", "two megabytes"],
)
def test_odd_shared_text_is_missing_and_every_other_one_is_there(tmp_path: Path, text: bytes) -> None:
    path = shared(tmp_path / "t.xlsx", text)
    assert read(path, "id", "x") == ([("p1", "r"), (None, "s"), ("p3", "t")], 0)


def shared(path: Path, odd: bytes = b"<si><t>odd</t></si>") -> Path:
    """A workbook whose texts are shared, as Excel writes it."""
    texts = [b"<si><t>%s</t></si>" % text for text in (b"id", b"x", b"p1", b"r", b"", b"s", b"p3", b"t")]
    texts[4] = odd
    cells = [b'<c r="%c%d" t="s"><v>%d</v></c>' % (65 + n % 2, 1 + n // 2, n) for n in range(8)]
    rows = b"".join(b"<row>%s%s</row>" % pair for pair in zip(cells[::2], cells[1::2], strict=True))
    related = b'<Relationship Id="t" Type="x/sharedStrings" Target="sharedStrings.xml"/></Relationships>'

    def alter(parts: Parts) -> None:
        names = "xl/_rels/workbook.xml.rels"
        parts[names] = parts[names].replace(b"</Relationships>", related)
        parts[SHEET] = b"<worksheet><sheetData>%s</sheetData></worksheet>" % rows
        parts[STRINGS] = b"<sst>%s</sst>" % b"".join(texts)

    return altered(write(path, []), alter)


def test_text_of_several_runs_is_read_without_how_it_is_pronounced(tmp_path: Path) -> None:
    runs = (
        b"<si><r><rPr><b/></rPr><t xml:space='preserve'>a </t></r><rPh sb='0'><t>no</t></rPh>"
        b"<r><t>&lt;b&#x263A;_x005F_x0041_</t></r></si>"
    )
    rows, _ = read(shared(tmp_path / "t.xlsx", runs), "id")
    assert rows == [("p1",), ("a <b\u263a_x0041_",), ("p3",)]


def test_row_that_is_too_long_is_passed_over_and_counted(tmp_path: Path) -> None:
    def alter(parts: Parts) -> None:
        parts[SHEET] = parts[SHEET].replace(CELL, b"<c/>" * (5 << 20))

    path = altered(write(tmp_path / "t.xlsx", ROWS), alter)
    assert read(path, "id", "x") == (READ, 1)


LONG_TAGS = {
    "a name": b"<c " + b"a" * 200_000 + b"/>",
    "a name and blanks": b"<c " + b"a" * 100_000 + b" " * 100_000 + b"/>",
    "values that never end": b"<c>" + b"<v " * 40_000 + b"</c>",
}


@pytest.mark.parametrize("cell", LONG_TAGS.values(), ids=list(LONG_TAGS))
def test_tag_without_end_keeps_nobody_else_waiting(tmp_path: Path, cell: bytes) -> None:
    """All readings wait in one line: by the square of its length a record would take longer than a test may."""

    def alter(parts: Parts) -> None:
        parts[SHEET] = parts[SHEET].replace(CELL, cell)

    rows, _ = read(altered(write(tmp_path / "book.xlsx", ROWS), alter), "id", "x")
    assert [row for row in rows if row[0] != "p2"] == READ


def _cut(parts: Parts) -> None:
    parts[SHEET] = parts[SHEET][: parts[SHEET].index(b"</sheetData>")]


def _without(name: str) -> Callable[[Parts], None]:
    def alter(parts: Parts) -> None:
        del parts[name]

    return alter


BROKEN: dict[str, Callable[[Parts], None]] = {
    "no sheet listed": lambda parts: parts.update({"xl/workbook.xml": b"<workbook><sheets/></workbook>"}),
    "no sheets": lambda parts: parts.update({"xl/_rels/workbook.xml.rels": b"<Relationships/>"}),
    "no workbook": _without("xl/workbook.xml"),
    "no sheet": _without(SHEET),
    "no end": _cut,
    "an open section": lambda parts: parts.update({SHEET: parts[SHEET].replace(CELL, b"<![CDATA[")}),
    "entities": lambda parts: parts.update({SHEET: b'<!DOCTYPE x [<!ENTITY a "b">]>' + parts[SHEET]}),
    "UTF-16": lambda parts: parts.update({SHEET: parts[SHEET].decode().encode("utf-16")}),
}


@pytest.mark.parametrize("alter", BROKEN.values(), ids=list(BROKEN))
def test_workbook_that_is_broken_is_refused_before_a_row(tmp_path: Path, alter: Callable[[Parts], None]) -> None:
    path = altered(write(tmp_path / "t.xlsx", ROWS), alter)
    with pytest.raises(SourceError, match="cannot read"):
        next(read_sheet(path, ["id", "x"]))


def test_damaged_archive_is_refused_before_a_row(tmp_path: Path) -> None:
    def of_many_rows(parts: Parts) -> None:
        pairs = [
            b'"str"><v>id</v></c><c t="str"><v>x',
            *(b'"str"><v>p%d</v></c><c><v>%a' % (i, i / 7) for i in range(40_000)),
        ]
        rows = b"".join(b"<row><c t=%s</v></c></row>" % pair for pair in pairs)
        parts[SHEET] = b"<worksheet><sheetData>%s</sheetData></worksheet>" % rows

    whole = altered(write(tmp_path / "t.xlsx", []), of_many_rows).read_bytes()
    assert len(list(read_sheet(tmp_path / "t.xlsx", ["id", "x"]))) == 3, "more than a batch"
    for damaged in (
        b"",
        b"SENTINEL",
        whole[:-30],
        whole[: len(whole) // 2],
        whole.replace(whole[5000:5004], b"\0\0\0\0", 1),
    ):
        (tmp_path / "no.xlsx").write_bytes(damaged)
        with pytest.raises(SourceError, match="cannot read") as refused:
            next(read_sheet(tmp_path / "no.xlsx", ["id", "x"]))
        assert "SENTINEL" not in refused.value.diagnostics()


def test_first_row_with_a_cell_names_the_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "t.xlsx", [[], [None, "a", None, 7], [1, 2, 3, 4]])
    assert sheet_columns(path) == ["", "a", "", "7"]
    assert read(path, "7", "a") == ([("4", "2")], 0)


def test_blanks_around_the_name_of_a_column_are_no_part_of_it(tmp_path: Path) -> None:
    path = write(tmp_path / "t.xlsx", [["id ", " x\u00a0"], ["p1", 2]])
    assert sheet_columns(path) == ["id", "x"]
    assert read(path, "id", "x") == ([("p1", "2")], 0)


def test_names_with_a_prefix_are_read_alike(tmp_path: Path) -> None:
    def alter(parts: Parts) -> None:
        sheet = parts[SHEET].replace(b"xmlns=", b"xmlns:x=")
        for name in (b"worksheet", b"sheetData", b"row", b"c", b"v"):
            for end in (b">", b" ", b"/>"):
                sheet = sheet.replace(b"<" + name + end, b"<x:" + name + end).replace(
                    b"</" + name + end, b"</x:" + name + end
                )
        parts[SHEET] = sheet

    path = altered(write(tmp_path / "t.xlsx", ROWS), alter)
    assert read(path, "id", "x") == ([("p1", "1.5"), ("p2", "777"), *READ[1:]], 0)


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), max_size=8)
CELLS = st.one_of(
    st.none(),
    TEXT,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.dates(date(1900, 3, 1), date(2100, 1, 1)),
    st.datetimes(datetime(1900, 3, 1), datetime(2100, 1, 1)).map(lambda d: d.replace(microsecond=0)),  # noqa: DTZ001 - a sheet has no zones
    st.times().map(lambda t: t.replace(microsecond=0)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=6), from_1904=st.booleans())
def test_workbook_is_read_as_openpyxl_reads_it(tmp_path: Path, rows: list[list[Any]], from_1904: bool) -> None:
    book = openpyxl.Workbook()
    if from_1904:
        book.epoch = CALENDAR_MAC_1904
    first = book.create_sheet(index=0)  # of two
    for row in [["a", "b", "c"], *rows]:
        first.append([str_of(cell) for cell in row])
    book.save(tmp_path / "t.xlsx")
    known = openpyxl.load_workbook(tmp_path / "t.xlsx", read_only=True, data_only=True)
    read_by_it = [
        row for row in known.worksheets[0].iter_rows(values_only=True) if any(cell is not None for cell in row)
    ]
    known.close()
    expected = [as_text("", cells_of([row[at] for row in read_by_it[1:]])).to_pylist() for at in range(3)]
    assert read(tmp_path / "t.xlsx", "a", "b", "c")[0] == list(zip(*expected, strict=True))


def str_of(cell: Any) -> Any:
    """Texts that a program would read as formulas or escapes are another question."""
    return None if isinstance(cell, str) and (cell[:1] == "=" or "_x" in cell or not cell) else cell


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("yyyy-mm-dd", "2020-02-29 00:00:00"), ("General", "43890"), ("0.00", "43890"), ("[h]:mm:ss", "43890"),
        ('"day" 0', "43890"), ("[$-409]d-mmm-yy;@", "2020-02-29 00:00:00"), ("[Red]0", "43890"),
    ],
)  # fmt: skip
def test_number_is_a_date_where_its_style_shows_one(tmp_path: Path, shown: str, text: str) -> None:
    book = openpyxl.Workbook()
    book.add_named_style(NamedStyle("s", number_format=shown))
    book.worksheets[0].append(["x"])
    book.worksheets[0].append([43890])
    book.worksheets[0]["A2"].style = "s"
    book.worksheets[0].append([10**300])
    book.worksheets[0]["A3"].style = "s"
    book.save(tmp_path / "t.xlsx")
    (moment,), (beyond,) = read(tmp_path / "t.xlsx", "x")[0]
    assert (moment, beyond is None) == (text, "2020" in text)


@pytest.mark.parametrize(("day", "text"), [(0.5, "12:00:00"), (1, "1900-01-01 00:00:00"), (61, "1900-03-01 00:00:00")])
def test_first_days_of_the_count_are_those_that_excel_shows(tmp_path: Path, day: float, text: str) -> None:
    path = write(tmp_path / "t.xlsx", [["x"], [date(2020, 1, 1)]])
    altered(path, lambda parts: parts.update({SHEET: parts[SHEET].replace(b"<v>43831</v>", f"<v>{day}</v>".encode())}))
    assert read(path, "x")[0] == [(text,)]
    assert time(12).isoformat() == "12:00:00"


@pytest.mark.parametrize("asked", [3, 999_999_999], ids=["a text", "no text"])
def test_many_shared_texts_that_one_cell_has_us_pass_take_no_memory_and_all_are_read(
    tmp_path: Path, asked: int
) -> None:
    texts = [b"id", b"x", b"p1", b"p2", *(b"%05d" % i + b"n" * 2000 for i in range(40_000)), b"last"]
    rows = [(0, 1), (2, asked), (3, len(texts) - 1), (2, 4), (2, 30_000)]
    row = b'<row><c t="s"><v>%d</v></c><c t="s"><v>%d</v></c></row>'

    def alter(parts: Parts) -> None:
        parts[SHEET] = b"<worksheet><sheetData>%s</sheetData></worksheet>" % b"".join(row % pair for pair in rows)
        parts[STRINGS] = b"<sst>%s</sst>" % b"".join(b"<si><t>%s</t></si>" % text for text in texts)

    path = altered(shared(tmp_path / "t.xlsx"), alter)
    tracemalloc.start()
    found, _ = read(path, "id", "x")
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found[0] == ("p1", "p2" if asked == 3 else None)
    assert [(one, (x or "")[:5]) for one, x in found[1:]] == [("p2", "last"), ("p1", "00000"), ("p1", "29996")]
    assert used < 30 << 20


@pytest.mark.slow
@pytest.mark.parametrize("part", [SHEET, STRINGS])
def test_cell_of_one_and_a_half_gigabytes_takes_no_memory(tmp_path: Path, part: str) -> None:
    path = shared(tmp_path / "t.xlsx")
    mark = b"<t>odd" if part == STRINGS else b'<c r="A3" t="s"><v>'
    with ZipFile(path) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    with ZipFile(path, "w", ZIP_DEFLATED, compresslevel=1) as book:
        for name, whole in parts.items():
            with book.open(name, "w", force_zip64=True) as file:
                before, found, behind = whole.partition(mark) if name == part else (whole, b"", b"")
                file.write(before + found)
                for _ in range(1536 if found else 0):
                    file.write(b"7" * (1 << 20))
                file.write(behind)
    del parts, whole
    tracemalloc.start()
    try:
        rows, lost = read(path, "id", "x")
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    assert [row for row in rows if row[0] is not None] == [("p1", "r"), ("p3", "t")]
    assert lost == (part == SHEET)


SCHEMA = (NumericAttribute(name="age", lower=0, upper=100), BinaryAttribute(name="smoker", levels=("no", "yes")))


def people(source: FileSource) -> SourceTable:
    return SourceTable([open_source(source)], SubjectKey.of("id", None), SCHEMA)


def test_workbook_that_cannot_be_read_is_refused_without_a_value(tmp_path: Path) -> None:
    write(tmp_path / "t.xlsx", [["SENTINEL", 3], ["p1", 4]])
    with pytest.raises(DataError, match="no column id, age, smoker among its 2") as refused:
        people(FileSource(path=str(tmp_path / "t.xlsx"))).scan()
    assert "SENTINEL" not in refused.value.diagnostics()
    (tmp_path / "no.xlsx").write_bytes(b"SENTINEL")
    with pytest.raises(SourceError, match="not of this format") as refused_file:
        people(FileSource(path=str(tmp_path / "no.xlsx"))).scan()
    assert "SENTINEL" not in refused_file.value.diagnostics()
    write(tmp_path / "odd.xlsx", [["id", "age", "smoker"], ["p1", "#DIV/0!", "no"]])
    with pytest.raises(DataError, match="column age: 1 value is no number"):
        people(FileSource(path=str(tmp_path / "odd.xlsx"))).scan()
