"""A source that is no plain file is refused at once, whatever it is read as."""

from pathlib import Path

import pytest

from commingle.party_agent.errors import SourceError
from commingle.party_agent.private.parquet_store import PartitionedSource, list_partitions
from commingle.party_agent.private.sources import FileSource, open_source, source_columns
from commingle.party_agent.private.sql_store import SqlSource
from commingle.shared.errors import DataError
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
