"""Tables that Spark wrote, by a Spark of this process where there is one: `pip install pyspark`, and a Java."""

import shutil
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commingle.party_agent.private.engine import IN_PROCESS
from commingle.party_agent.private.sources import FileSource, open_table
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.subject_ids import SubjectKey
from tests.party_agent.private.lake import lake
from tests.party_agent.private.releases import Release, request_of
from tests.party_agent.private.test_partitions import before_noise
from tests.party_agent.releasing import blocks_before_and_after_the_file, register_partitions
from tests.world.consortium import Consortium, rows_of

pytestmark = pytest.mark.slow

N = 5000
LEVELS = ("r", "é", "a/b", "x=y")
DAYS = (date(2020, 2, 29), date(1600, 1, 1))
ATTRIBUTES: tuple[Attribute, ...] = (
    NumericAttribute(name="real", lower=-1, upper=1, missing="midpoint"),
    NumericAttribute(name="whole", lower=0, upper=2**40),
    NumericAttribute(name="price", lower=-1000, upper=1000),
    BinaryAttribute(name="flag", levels=("0", "1")),
    BinaryAttribute(name="day", levels=(str(DAYS[0]), str(DAYS[1]))),
    NumericAttribute(name="ward", lower=0, upper=4),
    CategoricalAttribute(name="level", levels=LEVELS, missing="indicator"),
)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A local Spark of two cores."""
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    if shutil.which("java") is None:
        pytest.skip("no java on this machine, which Spark needs")
    running = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    yield running
    running.stop()


def one_file(path: Path) -> Path:
    """Cells of many types, some of them missing; identifiers in no order."""
    draw = np.random.default_rng(7)
    columns: dict[str, Any] = {
        "id": pa.array([f"p{i}" for i in draw.permutation(N)]),
        "real": pa.array(draw.uniform(-1.2, 1.2, N), mask=draw.random(N) < 0.1),
        "whole": pa.array(draw.integers(0, 2**40, N)),
        "price": pa.array([Decimal(int(p)) / 1000 for p in draw.integers(-(10**6), 10**6, N)], pa.decimal128(12, 3)),
        "flag": pa.array(draw.integers(0, 2, N), pa.int8()),
        "day": pa.array([DAYS[i] for i in draw.integers(0, len(DAYS), N)]),
        "ward": pa.array(draw.integers(0, 5, N), pa.int32()),
        "level": pa.array([[*LEVELS, None][i] for i in draw.integers(0, len(LEVELS) + 1, N)], pa.string()),
    }
    pq.write_table(pa.table(columns), path)
    return path


def written(spark: Any, path: Path, folder: Path, *by: str) -> Path:
    """The file's rows as Spark writes a table that is larger than one file, with a folder for each value of `by`."""
    frame = spark.read.parquet(str(path)).repartition(3)
    frame.write.option("maxRecordsPerFile", 400).partitionBy(*by).parquet(str(folder))
    return folder


@pytest.mark.parametrize("mechanism", ["rmgm", "dgm", "moments"])
@pytest.mark.parametrize("by", [(), ("level",), ("ward", "level")], ids=["files", "folders", "folders in folders"])
def test_block_before_noise_of_what_spark_wrote_is_that_of_one_file(
    spark: Any, tmp_path: Path, mechanism: Release, by: tuple[str, ...]
) -> None:
    path = one_file(tmp_path / "one.parquet")
    folder = written(spark, path, tmp_path / "lake", *by)
    assert len(list(folder.rglob("*.parquet"))) > N // 400
    request = request_of(mechanism, *ATTRIBUTES, first_stage_share=0.2, n=N)
    whole, sums = before_noise(
        open_table(FileSource(path=str(path)), SubjectKey.of("id"), ATTRIBUTES, engine=IN_PROCESS), request
    )
    parts, same = before_noise(lake(folder, *ATTRIBUTES), request)
    assert np.array_equal(parts, whole)
    assert sums is not None
    assert sums == same


def test_release_of_what_spark_wrote_is_that_of_the_partys_file(spark: Any, pair: Consortium, tmp_path: Path) -> None:
    rows = [{**row, "ward": str(place % 3)} for place, row in enumerate(rows_of("clinic"))]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "one.parquet")
    folder = written(spark, tmp_path / "one.parquet", tmp_path / "lake", "ward")
    register_partitions(pair, folder)
    parts, whole = blocks_before_and_after_the_file(pair)
    assert parts == whole
