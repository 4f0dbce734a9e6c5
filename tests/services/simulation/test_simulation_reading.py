from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from commingle.services.simulation.errors import TableError
from commingle.services.simulation.reading import read_table


def _csv(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text)
    return path


def test_csv_with_numbers_text_and_gaps_is_read_as_numbers_and_levels(tmp_path: Path) -> None:
    source = read_table(_csv(tmp_path, "age,sex\n30,f\n,m\n41.5,?\n"), subject_id=None)
    assert np.array_equal(source.table.columns["age"], [30, np.nan, 41.5], equal_nan=True)
    assert source.table.columns["sex"].tolist() == ["f", "m", None]
    assert source.table.subjects.tolist() == ["subject-1", "subject-2", "subject-3"]


def test_parquet_with_other_types_keeps_what_can_be_used_and_names_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    columns = {
        "flag": pa.array([True, None]),
        "kind": pa.array(["a", "NA"]).dictionary_encode(),
        "when": pa.array([0, 1], pa.timestamp("ms")),
        "empty": pa.nulls(2),
    }
    pa.parquet.write_table(pa.table(columns), path)
    source = read_table(path, subject_id=None)
    assert source.table.columns["flag"].tolist() == ["true", None]
    assert source.table.columns["kind"].tolist() == ["a", None]
    assert np.isnan(source.table.columns["empty"]).all()
    assert source.unusable == {"when": "timestamp[ms]"}


def test_subject_id_column_identifies_rows_and_is_no_attribute(tmp_path: Path) -> None:
    path = _csv(tmp_path, "seqn,x\n8.0,1\n7.0,2\n")
    source = read_table(path, subject_id="seqn")
    assert source.table.subjects.tolist() == ["8", "7"]
    assert list(source.table.columns) == ["x"]


def test_names_that_attributes_cannot_have_are_changed(tmp_path: Path) -> None:
    source = read_table(_csv(tmp_path, "dose [mg],a=b\n1,2\n"), subject_id=None)
    assert list(source.table.columns) == ["dose (mg)", "a:b"]


@pytest.mark.parametrize(
    ("text", "subject_id", "said"),
    [
        ("", None, "not a table"),
        ("x,y\n", None, "no rows"),
        ("x,x\n1,2\n", None, "two columns are named 'x'"),
        ("x,\n1,2\n", None, "a column has no name"),
        ("x,y\n1,2\n1,2,3\n", None, "not a table"),
        ("id,x\na,1\na,2\n", "id", "1 values of id appear in several rows"),
        ("id,x\na,1\n,2\n", "id", "1 rows have no id"),
        ("id,x\na,1\n", "key", "no column 'key'"),
    ],
)
def test_csv_that_is_no_table_is_refused_with_one_reason(
    tmp_path: Path, text: str, subject_id: str | None, said: str
) -> None:
    with pytest.raises(TableError, match=said.replace("(", r"\(").replace(")", r"\)")):
        read_table(_csv(tmp_path, text), subject_id=subject_id)


@pytest.mark.parametrize("name", ["absent.csv", "absent.parquet", "table.xlsx", "."])
def test_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TableError):
        read_table(tmp_path / name, subject_id=None)


def test_text_file_called_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    path.write_text("x\n1\n")
    with pytest.raises(TableError, match="not a table"):
        read_table(path, subject_id=None)


def test_table_shows_no_row_in_its_repr(tmp_path: Path) -> None:
    source = read_table(_csv(tmp_path, "x\n424242\n"), subject_id=None)
    assert repr(source.table) == "<Table of 1 rows and 1 columns>"
    assert "424242" not in repr(source)
