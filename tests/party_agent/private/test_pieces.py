"""Pieces of rows in every form: what is read of them, and what is said of those that are refused."""

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from commingle.party_agent.errors import DataError, PieceError
from commingle.party_agent.private.pieces import read_piece, stored_piece, write_piece
from commingle.party_agent.wire.answers import ARROW, CSV, JSON_LINES
from commingle.shared.documents.schema import CategoricalAttribute
from commingle.shared.documents.subject_ids import SubjectKey
from tests.world.consortium import SCHEMAS, rows_of
from tests.world.local_api import arrow_of, csv_of

ROWS = rows_of("clinic")
KEY = SubjectKey.of("subject", None)


SENTINEL = "9713.25"
BAD: dict[str, tuple[bytes, str, str]] = {
    "no number": (csv_of([*ROWS[:2], {**ROWS[2], "age": f"x{SENTINEL}"}]), CSV, "row 3, column age"),
    "missing": (csv_of([ROWS[0], {**ROWS[1], "bmi": ""}]), CSV, "row 2, column bmi"),
    "no subject": (csv_of([ROWS[0], {**ROWS[1], "subject": ""}]), CSV, "row 2, column subject"),
    "subject again": (csv_of([ROWS[0], ROWS[1], {**ROWS[2], "subject": ROWS[0]["subject"]}]), CSV, "of row 1 again"),
    "ragged": (csv_of(ROWS[:3]) + f",{SENTINEL}".encode(), CSV, "row 3, its line has other than 3"),
    "unmatched quote": (csv_of(ROWS[:3]) + f'\n"s9,{SENTINEL},3'.encode(), CSV, "row 4, its line has"),
    "line end in quotes": (csv_of(ROWS[:3]) + f'\n"s9\n{SENTINEL}",3,4'.encode(), CSV, "row 4, its line has"),
    "no header": (b'"subject', CSV, "no header line that can be read"),
    "no UTF-8": (csv_of(ROWS[:3]) + f"\n{SENTINEL}\xff,1,2".encode("latin-1"), CSV, "row 4, it is not UTF-8"),
    "no column": (b"subject,age\ns1,%s\n" % SENTINEL.encode(), CSV, "no column bmi"),
    "no JSON": (b'{"subject": "s1", "age": %s, "bmi": 20}\n{"age"' % SENTINEL.encode(), JSON_LINES, "row 2, it is not"),
    "list": (b'{"subject": "s1", "age": [%s], "bmi": 20}' % SENTINEL.encode(), JSON_LINES, "row 1, column age"),
    "column twice": (b'{"age": 1, "age": %s}' % SENTINEL.encode(), JSON_LINES, "row 1, it is not"),
    "infinite": (b'{"subject": "s1", "age": 1e999, "bmi": 20}', JSON_LINES, "row 1, column age"),
    "no Arrow": (SENTINEL.encode(), ARROW, "not a readable Arrow"),
    "cut short": (arrow_of(ROWS)[:-60], ARROW, "not a readable Arrow"),
    "compressed": (arrow_of(ROWS, options=pa.ipc.IpcWriteOptions(compression="lz4")), ARROW, "compressed"),
    "no rows": (b"subject,age,bmi\n", CSV, "1 to 1000000 rows"),
    "form": (b"<rows/>", "text/xml", "rows are sent as"),
}


@pytest.mark.parametrize("what", BAD)
def test_piece_that_is_refused_names_row_and_column_and_no_value(what: str) -> None:
    body, kind, said = BAD[what]
    with pytest.raises((DataError, PieceError)) as refused:
        read_piece(body, kind, KEY, SCHEMAS["clinic"])
    assert said in str(refused.value)
    assert SENTINEL not in refused.value.diagnostics() + repr(refused.value.__cause__)


def test_level_that_a_csv_spells_as_it_does_a_missing_cell_is_refused_there_and_read_elsewhere() -> None:
    schema = [CategoricalAttribute(name="country", levels=("BW", "NA", "ZA"))]
    rows = [{"subject": f"s{i}", "country": name} for i, name in enumerate(["NA", "ZA", "BW"])]
    with pytest.raises(PieceError, match="a CSV spells missing cells NA") as refused:
        read_piece(csv_of(rows), CSV, KEY, schema)
    assert "another word" in str(refused.value.remedy)
    lines = "\n".join(map(json.dumps, rows)).encode()
    assert read_piece(lines, JSON_LINES, KEY, schema)["country"].to_pylist() == ["NA", "ZA", "BW"]


def test_cell_that_is_no_text_is_refused_by_its_row() -> None:
    columns = {name: [str(row[name]).encode() for row in ROWS] for name in ROWS[0]}
    columns["age"][4] = SENTINEL.encode() + b"\xff"
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    with pytest.raises(DataError, match=r"^row 5, column age: a value that is no Unicode text") as refused:
        read_piece(sink.getvalue().to_pybytes(), ARROW, KEY, SCHEMAS["clinic"])
    assert SENTINEL not in refused.value.diagnostics()


def test_first_of_several_rows_that_do_not_fit_is_the_one_that_is_named() -> None:
    rows = [{**row, "age": "old" if i in {16, 17, 39} else row["age"]} for i, row in enumerate(ROWS)]
    with pytest.raises(DataError, match=r"^row 17, column age: 1 value is"):
        read_piece(csv_of(rows), CSV, KEY, SCHEMAS["clinic"])


def test_three_forms_of_the_same_rows_are_kept_alike_and_other_columns_are_not() -> None:
    typed = [{"subject": r["subject"], "note": "", "bmi": float(r["bmi"]), "age": float(r["age"])} for r in ROWS]
    lines = "\r\n".join(map(json.dumps, typed)).encode()
    kept = [
        read_piece(body, kind, KEY, SCHEMAS["clinic"]) for body, kind in ((lines, JSON_LINES), (arrow_of(typed), ARROW))
    ]
    assert kept[0].column_names == ["subject", "age", "bmi"]
    assert kept[0] == kept[1] == pq.read_table(io.BytesIO(write_piece(kept[0])))
    as_written = read_piece(b"\xef\xbb\xbf" + csv_of(ROWS) + b"\n\n", CSV, KEY, SCHEMAS["clinic"])
    assert as_written["subject"] == kept[0]["subject"]
    ages = [pc.cast(each["age"], pa.float64()).to_pylist() for each in (as_written, kept[0])]
    assert ages[0] == ages[1]


def test_stored_piece_gives_the_columns_that_are_asked_for(tmp_path: Path) -> None:
    piece = read_piece(csv_of(ROWS), CSV, KEY, SCHEMAS["clinic"])
    (tmp_path / "piece").write_bytes(write_piece(piece))
    read = stored_piece(tmp_path / "piece")
    for names in (["subject", "age", "bmi"], ["bmi", "subject"], ["age", "age"]):
        (batch,) = read(names)
        assert batch.size == len(ROWS)
        assert {name: batch.columns[name].to_pylist() for name in names} == {
            name: piece[name].to_pylist() for name in names
        }


def test_claimed_rows_without_bytes_are_refused_before_anything_is_made_of_them() -> None:
    batch = pa.record_batch({"subject": pa.nulls(2_000_000), "age": pa.nulls(2_000_000), "bmi": pa.nulls(2_000_000)})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    assert len(sink.getvalue()) < 1000
    with pytest.raises(PieceError, match="1 to 1000000 rows"):
        read_piece(sink.getvalue(), ARROW, KEY, SCHEMAS["clinic"])
