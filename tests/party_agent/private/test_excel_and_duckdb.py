"""Tables that are read by extras: Excel workbooks, DuckDB files, and databases whose driver is not there."""

import sys
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import openpyxl
import pytest

from commingle.party_agent.edge.data_routes import resolve_source
from commingle.party_agent.errors import DataError, SourceError, SourceRefusedError
from commingle.party_agent.home.home import Home
from commingle.party_agent.private.sources import FileSource, open_source
from commingle.party_agent.private.sql_store import SqlSource
from commingle.party_agent.private.table import SourceTable
from commingle.shared.documents.schema import BinaryAttribute, NumericAttribute
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.errors import MissingExtraError
from tests.party_agent.private.tables import rows_of, snapshot_from

SCHEMA = (NumericAttribute(name="age", lower=0, upper=100), BinaryAttribute(name="smoker", levels=("no", "yes")))
KEY = SubjectKey.of("id", None)


def table(source: FileSource | SqlSource) -> SourceTable:
    return SourceTable([open_source(source)], KEY, SCHEMA)


def workbook(path: Path, rows: list[list[Any]]) -> FileSource:
    book = openpyxl.Workbook()
    sheet = book.create_sheet(index=0)
    for row in rows:
        sheet.append(row)
    book.save(path)
    return FileSource(path=str(path))


def test_workbook_is_read_as_the_csv_that_it_would_be(tmp_path: Path) -> None:
    header: list[Any] = ["note", "id", "smoker", "age"]
    rows = [header, [date(2026, 1, 2), "p1", "no", 54], [], [None, 7, "yes", 7.5]]
    (tmp_path / "t.csv").write_text("id,smoker,age\np1,no,54\n7,yes,7.5\n")
    in_csv = FileSource(path=str(tmp_path / "t.csv"))
    found = [table(source) for source in (workbook(tmp_path / "t.xlsx", rows), in_csv)]
    read = [rows_of(snapshot_from(tmp_path / "made", one)) for one in found]
    assert read[0] == read[1]
    assert set(read[0]) == {b"p1", b"7"}


def test_workbook_that_cannot_be_read_is_refused_without_a_value(tmp_path: Path) -> None:
    missing = workbook(tmp_path / "t.xlsx", [["SENTINEL", 3], ["p1", 4]])
    with pytest.raises(DataError, match="no column id, age, smoker among its 2") as refused:
        table(missing).scan()
    assert "SENTINEL" not in refused.value.diagnostics()
    (tmp_path / "no.xlsx").write_bytes(b"SENTINEL")
    with pytest.raises(SourceError, match="not of this format") as refused_file:
        table(FileSource(path=str(tmp_path / "no.xlsx"))).scan()
    assert "SENTINEL" not in refused_file.value.diagnostics()
    odd = workbook(tmp_path / "odd.xlsx", [["id", "age", "smoker"], ["p1", "#DIV/0!", "no"]])
    with pytest.raises(DataError, match="column age: 1 values are not numbers"):
        table(odd).scan()


def test_duckdb_file_is_a_database_like_others_and_no_way_to_the_agents_own(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE t (id VARCHAR, age DOUBLE, smoker VARCHAR)")
        db.execute("INSERT INTO t VALUES ('p2', 7.5, 'yes'), ('p1', 54, 'no')")
    read = snapshot_from(tmp_path / "made", table(SqlSource(url=f"duckdb:///{path}", query="SELECT * FROM t;")))
    assert read.n == 2
    home = Home(tmp_path / "home")
    home.root.mkdir()
    own = SqlSource(url=f"duckdb:///{home.root}/ledger.sqlite", query="SELECT 1 AS id")
    with pytest.raises(SourceRefusedError, match="own home"):
        resolve_source(home, own)


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("mssql://sa:hunter2@host/db", "pymssql", "sqlserver"),
        ("mssql+pymssql://sa:hunter2@host/db", "pymssql", "sqlserver"),
        ("oracle://me:hunter2@host/?service_name=x", "oracledb", "oracle"),
        ("oracle+oracledb://me:hunter2@host/?service_name=x", "oracledb", "oracle"),
    ],
)
def test_driver_that_is_missing_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    source = SqlSource(url=url, query="SELECT 1 AS id")
    with pytest.raises(MissingExtraError, match=f"{module} is not installed") as refused:
        table(source).scan()
    assert f"commingle[{extra}]" in refused.value.remedy
    assert "hunter2" not in refused.value.diagnostics()
