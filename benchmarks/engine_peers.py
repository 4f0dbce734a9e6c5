"""Spark, Ray and DuckDB as `benchmarks.engines` asks them; to be installed in an environment of its own."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from commingle.party_agent.private.engine import Made, Partition, Progress, Work


def nothing(partition: int, progress: Progress) -> Iterator[int]:
    """Work that takes no time."""
    progress(0)
    yield partition


def _all(work: Any, place: int, partition: Any) -> tuple[int, list[Any]]:  # noqa: ANN401 - any work
    return place, list(work(partition, lambda _: None))


class Spark:
    """A local Spark of two cores; partitions are elements of an RDD."""

    def __init__(self) -> None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        spark = import_module("pyspark.sql").SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        self._context = spark.getOrCreate().sparkContext
        self._context.setLogLevel("ERROR")

    def run(
        self, work: Work[Partition, Made], partitions: Sequence[Partition], progress: Progress
    ) -> Iterator[tuple[int, Made]]:
        """See `Engine`."""
        del progress
        parts = self._context.parallelize(list(enumerate(partitions)), len(partitions))
        for place, made in parts.map(lambda one: _all(work, *one)).toLocalIterator(prefetchPartitions=True):
            yield from ((place, one) for one in made)

    def describe(self) -> str:
        """See `Engine`."""
        return "local Spark"


class Ray:
    """A local Ray of two workers."""

    def __init__(self) -> None:
        self._ray = import_module("ray")
        self._ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        self._all = self._ray.remote(_all)

    def run(
        self, work: Work[Partition, Made], partitions: Sequence[Partition], progress: Progress
    ) -> Iterator[tuple[int, Made]]:
        """See `Engine`."""
        del progress
        waiting = [self._all.remote(work, place, partition) for place, partition in enumerate(partitions)]
        while waiting:
            (done, *_), waiting = self._ray.wait(waiting)
            place, made = self._ray.get(done)
            yield from ((place, one) for one in made)

    def describe(self) -> str:
        """See `Engine`."""
        return "local Ray"


def duckdb_seconds(folder: Path, columns: Sequence[str], *, lower: float, upper: float) -> dict[str, float]:
    """CPU seconds for sorted ids as the agent takes them, and for the sums of encoded columns in SQL."""
    start = time.process_time()
    db = import_module("duckdb").connect(config={"threads": 2})
    files = f"read_parquet('{folder}/*.parquet')"
    loaded = time.process_time()
    db.execute(f"SELECT CAST(id AS VARCHAR) AS id FROM {files} ORDER BY 1").to_arrow_table()  # noqa: S608 - own files
    sorted_ids = time.process_time()
    db.execute(f"SELECT {', '.join(_sums(columns, lower, upper))} FROM {files}").fetchall()  # noqa: S608
    return {"start": loaded - start, "ids": sorted_ids - loaded, "sums": time.process_time() - sorted_ids}


def _sums(columns: Sequence[str], lower: float, upper: float) -> Iterator[str]:
    for name in columns:
        encoded = f"2 * ((greatest(least({name}, {upper}), {lower}) - {lower}) / ({upper} - {lower})) - 1"
        q = f"CAST(trunc(greatest(least({encoded}, 1), -1) * 32768) AS BIGINT)"
        yield from (f"sum({q})", f"sum({q} * {q})")
