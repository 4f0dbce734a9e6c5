"""A table is read as an agent reads it, and its columns suggest attributes."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from commingle.services.errors import TableError
from commingle.services.tables import Unusable, conform, draft, read_table
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.runtime.csv_format import CsvFormat
from commingle.shared.runtime.tables import guess_format


def _csv(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "options", "columns", "subjects"),
    [
        (
            "age,sex\n30,f\n,m\n41.5,?\n",
            {"typed": True},
            {"age": [30, None, 41.5], "sex": ["f", "m", None]},
            ["subject-1", "subject-2", "subject-3"],
        ),
        ("seqn,x\n8,1\n7,2\n", {"subject_id": "seqn"}, {"x": ["1", "2"]}, ["8", "7"]),
        (
            "id,x\n0000100000,1\n100000,2\n8.0,3\n?,4\n",
            {"subject_id": "id", "typed": True},
            {"x": [1, 2, 3, 4]},
            ["0000100000", "100000", "8.0", "?"],
        ),
        ("dose [mg],a=b\n1,2\n", {}, {"dose (mg)": ["1"], "a:b": ["2"]}, ["subject-1"]),
        ("a|b;c\n1|2;3\n", {"csv_format": CsvFormat(separator="|")}, {"a": ["1"], "b;c": ["2;3"]}, ["subject-1"]),
        ('a,b\n"x\ny",2\n', {"csv_format": CsvFormat(lines_per_record=2)}, {"a": ["x\ny"], "b": ["2"]}, ["subject-1"]),
    ],
    ids=["gaps are none", "ids are no attribute", "ids as agents read them", "names", "given format", "declared lines"],
)
def test_csv_is_read_as_columns_and_subjects(
    tmp_path: Path, text: str, options: dict[str, Any], columns: dict[str, list[Any]], subjects: list[str]
) -> None:
    source = read_table(_csv(tmp_path, text), **options)
    assert {name: cells.to_pylist() for name, cells in source.table.columns.items()} == columns
    assert (source.table.subjects.tolist(), source.notices) == (subjects, ())


def test_parquet_with_other_types_keeps_what_can_be_used_and_names_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    columns = {
        "flag": pa.array([True, None]),
        "kind": pa.array(["a", "NA"]).dictionary_encode(),
        "when": pa.array([0, 1], pa.timestamp("ms")),
        "empty": pa.nulls(2),
    }
    pa.parquet.write_table(pa.table(columns), path)
    source = read_table(path)
    assert source.table.columns["flag"].to_pylist() == [True, None]
    assert source.table.columns["kind"].to_pylist() == ["a", None]
    assert source.table.columns["empty"].null_count == 2
    assert source.unusable == {"when": "timestamp[ms]"}


def test_digits_that_begin_with_0_stay_text_where_a_csv_declares_no_type(tmp_path: Path) -> None:
    path = _csv(tmp_path, "ward,share,count,none\n01,0.5,0,\n10,01.5,7,00\n")
    columns = read_table(path, typed=True).table.columns
    read = {name: cells.to_pylist() for name, cells in columns.items()}
    assert read == {"ward": ["01", "10"], "share": [0.5, 1.5], "count": [0, 7], "none": [None, "00"]}


def test_csv_declares_types_only_where_that_is_asked_for(tmp_path: Path) -> None:
    path = _csv(tmp_path, "n,flag,day,code,none\n1,True,2020-01-01,007x,\n2.5,False,2020-01-02,8,?\n")
    typed, plain = read_table(path, typed=True), read_table(path)
    assert {name: str(cells.type) for name, cells in typed.table.columns.items()} == {
        "n": "double",
        "flag": "bool",
        "code": "string",
        "none": "double",
    }
    assert typed.unusable == {"day": "date32[day]"}
    assert {str(cells.type) for cells in plain.table.columns.values()} == {"string"}
    assert plain.table.columns["flag"].to_pylist() == ["True", "False"]


@pytest.mark.parametrize(
    ("text", "subject_id", "said"),
    [
        ("", None, "not a table"),
        ("x,y\n", None, "no rows"),
        ("x,x\n1,2\n", None, "two columns are named 'x'"),
        ("x,\n1,2\n", None, "a column has no name"),
        ("x,y\n1,2\n1,2,3\n", None, "not a table"),
        ("id,x\na,1\na,2\n", "id", "column id: 1 duplicate subject id"),
        ("id,x\na,1\n,2\n", "id", "column id: 1 subject id is missing"),
        ("id,x\na,1\n", "key", "no column 'key'"),
    ],
)
def test_csv_that_is_no_table_is_refused_with_one_reason(
    tmp_path: Path, text: str, subject_id: str | None, said: str
) -> None:
    with pytest.raises(TableError, match=said.replace("(", r"\(").replace(")", r"\)")):
        read_table(_csv(tmp_path, text), subject_id=subject_id)


@pytest.mark.parametrize(
    ("name", "held", "options"),
    [
        *((name, None, {}) for name in ("absent.csv", "absent.parquet", "table.xlsx", ".")),
        ("table.parquet", b"x\n1\n", {}),
        ("table.csv", "a,b\nKöln,2\n".encode("latin-1"), {"csv_format": CsvFormat()}),
    ],
)
def test_file_that_cannot_be_read_is_refused(
    tmp_path: Path, name: str, held: bytes | None, options: dict[str, Any]
) -> None:
    if held is not None:
        (tmp_path / name).write_bytes(held)
    with pytest.raises(TableError, match=r"cannot read|not a table|neither"):
        read_table(tmp_path / name, **options)


def test_table_shows_no_row_in_its_repr(tmp_path: Path) -> None:
    source = read_table(_csv(tmp_path, "x\n424242\n"))
    assert repr(source.table) == "<Table of 1 row and 1 column>"
    assert "424242" not in repr(source)


EUROPEAN = "größe;gewicht;ort\n1,75;80,5;Köln\n1,6;n/a;Straße 1,5\n"


@pytest.mark.parametrize(("encoding", "called"), [("latin-1", "windows-1252 text, "), ("utf-8", ""), ("utf-8-sig", "")])
def test_csv_of_another_country_is_read_as_what_it_is_and_that_is_said(
    tmp_path: Path, encoding: str, called: str
) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(EUROPEAN.encode(encoding))
    source = read_table(path, typed=True)
    assert source.table.columns["größe"].to_pylist() == [1.75, 1.6]
    assert source.table.columns["gewicht"].to_pylist() == [80.5, None]
    assert source.table.columns["ort"].to_pylist() == ["Köln", "Straße 1,5"]
    [notice] = source.notices
    assert notice.startswith(f"table.csv looks like this: {called}';' between columns, ',' in numbers.")
    assert "--encoding, --separator, --decimal" in notice


def test_tabs_and_compression_go_together(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress("a\tb\n1.5\té\n".encode("latin-1")))
    source = read_table(path, typed=True)
    assert [cells.to_pylist() for cells in source.table.columns.values()] == [[1.5], ["é"]]
    assert "windows-1252 text, tab between columns" in source.notices[0]


@pytest.mark.parametrize("decimals", ["2.5", "2"])
def test_points_or_no_decimals_at_all_are_no_decimal_commas(tmp_path: Path, decimals: str) -> None:
    path = _csv(tmp_path, f"a;b\n{decimals};x\n")
    assert guess_format(path) == CsvFormat(separator=";")


def test_records_that_cannot_be_read_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    lines = [*["1,2"] * 5, '"1,2', *["1,2"] * 5, "1", "1,2,3"]
    with pytest.raises(TableError, match=r": 3 records have .*; the first is record 6$") as refused:
        read_table(_csv(tmp_path, "\n".join(["a,b", *lines])))
    assert "--lines-per-record" in refused.value.remedy


GAP = None


def numbers(*values: float | None) -> "pa.Array[Any]":
    return pa.array(values, pa.float64())


def texts(*values: str | None) -> "pa.Array[Any]":
    return pa.array(values, pa.string())


MIXED = BinaryAttribute(name="x", levels=("0.5", "2"), missing="midpoint")
TOO_MANY = texts(*(f"level {i}" for i in range(257)))


WRITTEN = Unusable(
    "it holds numbers written like 186,572 or <0.5, which members read as numbers: "
    "--derive 'x = number(x, thousands=comma, below=half)'"
)
DAYS = CategoricalAttribute(name="x", levels=("01.02.2020", "1.3.2021", "1.4.2021"))


@pytest.mark.parametrize(
    ("values", "asked", "expected"),
    [
        (numbers(3, 1, 2), "", NumericAttribute(name="x", lower=1, upper=3)),
        (numbers(3, 1, 2, GAP), "", NumericAttribute(name="x", lower=1, upper=3, missing="midpoint")),
        (numbers(0, 1, 1), "", BinaryAttribute(name="x", levels=("0", "1"))),
        (numbers(0.5, 2, GAP), "", MIXED),
        (texts("b", "a", None), "", BinaryAttribute(name="x", levels=("a", "b"), missing="midpoint")),
        (texts("c", "a", "b", "b"), "", CategoricalAttribute(name="x", levels=("b", "a", "c"))),
        # of a target two numbers stay numbers, and gaps are errors
        (numbers(0, 10, GAP), "target", NumericAttribute(name="x", lower=0, upper=10)),
        (numbers(1, 2, 2, 9), "levels", CategoricalAttribute(name="x", levels=("2", "1", "9"))),
        (texts(*"123", "V27"), "levels", CategoricalAttribute(name="x", levels=("1", "2", "3", "V27"))),
        (texts("186,572", "<0.5", "12"), "", WRITTEN),
        (texts("01.02.2020", "1.3.2021", "1.4.2021"), "", DAYS),
        # digits that begin with 0 are codes, and other text may stand among them
        (texts("01", "02", "02", "10"), "", CategoricalAttribute(name="x", levels=("02", "01", "10"))),
        (texts(*["01", "02"] * 9, "A1"), "", CategoricalAttribute(name="x", levels=("01", "02", "A1"))),
        # cells that say missing are marked; a target's are left out
        (texts("b", "a", "missing"), "", BinaryAttribute(name="x", levels=("a", "b"), missing="indicator")),
        (
            texts("c", "a", " missing", "b", "b"),
            "",
            CategoricalAttribute(name="x", levels=("b", "a", "c"), missing="indicator"),
        ),
        (texts("b", "a", "missing"), "target", BinaryAttribute(name="x", levels=("a", "b"))),
        (texts("b", "a", "Missing"), "", CategoricalAttribute(name="x", levels=("Missing", "a", "b"))),
        (TOO_MANY, "", Unusable("it has 257 levels, more than 256")),
        *((same, "", Unusable("it does not vary")) for same in (numbers(4, 4), numbers(4, GAP), texts("a", "a"))),
        *((nothing, "", Unusable("it holds no values")) for nothing in (numbers(GAP, GAP), texts(None))),
    ],
)
def test_column_suggests_an_attribute(values: "pa.Array[Any]", asked: str, expected: object) -> None:
    assert draft("x", values, target=asked == "target", levels=asked == "levels") == expected


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (texts(*"123456789", "ten"), "text among numbers: 1 values"),
        (numbers(1, np.inf), "1 infinite values"),
        (texts("a", "b" * 81), "cannot be an attribute"),
    ],
)
def test_column_that_nobody_can_use_is_refused(values: "pa.Array[Any]", said: str) -> None:
    with pytest.raises(TableError, match=said):
        draft("x", values, target=False, levels=False)


def test_two_numbers_of_32_bits_are_levels_that_they_conform_to() -> None:
    cells = pa.array([0.1, 0.7, 0.1], pa.float32())
    attribute = draft("x", cells, target=False, levels=False)
    assert attribute == BinaryAttribute(name="x", levels=("0.1", "0.7"))
    assert conform(attribute, cells).to_pylist() == ["0.1", "0.7", "0.1"]


UNIT = NumericAttribute(name="x", lower=0, upper=1)
ZERO_ONE = BinaryAttribute(name="x", levels=("0", "1"))


@pytest.mark.parametrize(
    ("attribute", "values", "read"),
    [
        (UNIT, numbers(1), [1.0]),
        (ZERO_ONE, numbers(1, 0, GAP), ["1", "0", None]),
        # text as it stands, or else as numbers or truths
        (BinaryAttribute(name="x", levels=("007", "7")), texts("007", "7", None), ["007", "7", None]),
        (ZERO_ONE, texts("1.0", "0.0"), ["1", "0"]),
        (BinaryAttribute(name="x", levels=("a", "b")), texts("a", "missing", "b"), ["a", None, "b"]),
        (BinaryAttribute(name="x", levels=("false", "true")), texts("True", "False"), ["true", "false"]),
        # numbers as people write them
        (CategoricalAttribute(name="x", levels=("1", "2.5", "-3")), numbers(1, 2.5, GAP, -3), ["1", "2.5", None, "-3"]),
    ],
)
def test_column_conforms_to_a_schema(attribute: Any, values: "pa.Array[Any]", read: list[object]) -> None:
    assert conform(attribute, values).to_pylist() == read


@pytest.mark.parametrize(
    ("attribute", "values", "said"),
    [
        (UNIT, texts("a"), "1 value is no number"),
        (UNIT, numbers(-np.inf), "1 value is NaN"),
        (
            CategoricalAttribute(name="x", levels=("a", "b", "d")),
            texts("a", "c", None),
            "1 value is not among the levels a, b, d",
        ),
    ],
)
def test_column_that_does_not_conform_is_refused(attribute: Any, values: "pa.Array[Any]", said: str) -> None:
    with pytest.raises(TableError, match=said):
        conform(attribute, values)
