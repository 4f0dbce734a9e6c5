"""A source that is not a plain file is refused at once; and whatever is wrong with a table, no message repeats "
"a cell."""

import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from commingle.party_agent.errors import SourceError
from commingle.party_agent.home.datasets import DatasetRequest, Datasets
from commingle.party_agent.ledger.ledger import Cap, Ledger
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.private.parquet_store import PartitionedSource, list_partitions
from commingle.party_agent.private.sources import FileSource, open_source, source_columns
from commingle.party_agent.private.sql_store import SqlSource
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.errors import CommingleError, DataError
from commingle.shared.runtime.settings import system_clock
from tests.party_agent.private.tables import sqlite_table
from tests.world.disks import SPECIAL, make_special

REFUSED = r"not a plain file|Is a directory"
NAMES = ("table.csv", "table.csv.gz", "table.parquet", "table.xlsx")


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_table_that_is_no_plain_file_is_refused_at_once(tmp_path: Path, kind: str, name: str, encoding: str) -> None:
    source = FileSource.model_validate({"path": str(make_special(kind, tmp_path / name)), "encoding": encoding})
    with pytest.raises(SourceError, match=REFUSED):
        list(open_source(source)(["subject"]))
    with pytest.raises(SourceError, match=REFUSED):
        source_columns(source)


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("url", ["sqlite:///{}", "sqlite:///file:{}?mode=ro&uri=true", "duckdb:///{}"])
def test_database_that_is_no_plain_file_is_refused_at_once(tmp_path: Path, kind: str, url: str) -> None:
    path = make_special(kind, tmp_path / "table.db")
    source = SqlSource.model_validate({"url": url.format(path), "query": "SELECT 1 AS subject"})
    with pytest.raises(SourceError, match=REFUSED):
        list(open_source(source)(["subject"]))


def test_database_that_is_missing_is_not_made(tmp_path: Path) -> None:
    source = SqlSource(url=f"sqlite:///{tmp_path}/absent.db", query="SELECT 1 AS subject")
    with pytest.raises(SourceError, match="No such file"):
        list(open_source(source)(["subject"]))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", SPECIAL)
def test_partition_that_is_no_plain_file_is_none(tmp_path: Path, kind: str) -> None:
    make_special(kind, tmp_path / "part.parquet")
    with pytest.raises(DataError, match="no Parquet files"):
        list_partitions(PartitionedSource(path=str(tmp_path)), strict=True)


SENTINEL = "XyZZy73519"
ATTRIBUTES: dict[str, Attribute] = {
    "n": NumericAttribute(name="v", lower=0, upper=1),
    "m": NumericAttribute(name="v", lower=0, upper=1, missing="midpoint"),
    "b": BinaryAttribute(name="v", levels=("no", "yes")),
    "c": CategoricalAttribute(name="v", levels=("p", "q", "r")),
}
CELLS: list[Any] = [
    SENTINEL,
    f" {SENTINEL}",
    f"{SENTINEL},\n",
    f'"{SENTINEL}',
    f"{SENTINEL}\x00",
    7351973519,
    73519.73519,
]
JUNK: list[Any] = ["", None, "1", "no", "a", 0.5, float("nan")]


def write(source: str, directory: Path, ids: list[Any], values: list[Any]) -> FileSource | SqlSource:
    if source == "sql":
        return sqlite_table(directory / "t.db", list(zip(ids, values, strict=True)), columns="id, v")
    if source == "parquet":
        path = directory / "t.parquet"
        pq.write_table(pa.table({"id": _same_type(ids), "v": _same_type(values)}), path)
    else:
        path = directory / "t.csv"
        lines = [f"{i},{v}" for i, v in zip(ids, values, strict=True)]
        path.write_bytes("\n".join(["id,v", *lines]).encode())
    return FileSource(path=str(path))


def _same_type(values: list[Any]) -> Any:
    kinds = {type(v) for v in values if v is not None}
    return pa.array(values) if len(kinds) == 1 else pa.array([None if v is None else str(v) for v in values])


@given(
    source=st.sampled_from(["csv", "parquet", "sql"]),
    attribute=st.sampled_from(sorted(ATTRIBUTES)),
    ids=st.lists(st.sampled_from(CELLS + JUNK), min_size=2, max_size=4),
    values=st.lists(st.sampled_from(CELLS + JUNK), min_size=4, max_size=4),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_value_of_a_bad_table_is_told(
    caplog: pytest.LogCaptureFixture, source: str, attribute: str, ids: list[Any], values: list[Any]
) -> None:
    with TemporaryDirectory() as name, caplog.at_level(logging.DEBUG), capture_logs() as logs:
        where = write(source, Path(name), ids, values[: len(ids)])
        request = DatasetRequest(name="d", source=where, subject_id="id", attributes=(ATTRIBUTES[attribute],))
        store = AgentStore(Path(name) / "ledger.sqlite")
        told = repr(request)
        try:
            datasets = Datasets(store, Ledger(store, cap=Cap("p", 1.0, 1e-5)), Path(name) / "snapshots", system_clock)
            told += repr(datasets.register(request, replace=False))
        except CommingleError as error:
            told += f"{error!r}{error.diagnostics()}{error.__cause__!r}"
        finally:
            store.close()
    told = f"{told}{logs}{caplog.text}".replace(name, "")  # a directory of random letters and digits
    assert SENTINEL not in told
    assert "73519" not in told
