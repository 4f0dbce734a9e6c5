"""The same partitions on several engines: CPU seconds of each pass and memory of all processes together.

python -m benchmarks.engines [--subjects N] [--partitions P] [--engine NAME]... [--json FILE]

Work is what registration does, which reads and encodes every partition and seals a snapshot of all rows ("read"), and
what a release of two stages does with its parts: sums and sums of squares of ten encoded columns ("sums"), then rows
clipped and mixed with k = 100 ("mixed"). Engines: `in-process`, `dask` (two processes of this machine), and for
comparison, where they are installed (pyspark, ray, duckdb), `spark` and `ray`, given the very same functions by
`benchmarks.engine_peers`, and `duckdb`, which is asked for ids and sums in SQL over the same files.
Every block is held against that of one process, integer by integer.
"""

import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import engine_peers
from benchmarks.reporting import heading, row
from commingle.party_agent.private.dask_engine import Dask
from commingle.party_agent.private.engine import IN_PROCESS, Engine
from commingle.party_agent.private.mixing import Mixing, SummingColumns
from commingle.party_agent.private.parquet_store import PartitionedSource
from commingle.party_agent.private.snapshot import Snapshot, write_snapshot
from commingle.party_agent.private.sources import open_table
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Member, Study, StudyParty, build_spec
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.dp.first_stage import FirstStage, Kind, MeasuredAttribute
from commingle.shared.runtime.settings import system_clock

COLUMNS = 10
ATTRIBUTES = tuple(NumericAttribute(name=f"x{i}", lower=-3, upper=3) for i in range(COLUMNS))
ENGINES: dict[str, Callable[[], Engine]] = {
    "in-process": lambda: IN_PROCESS,
    "dask": Dask,
    "spark": engine_peers.Spark,
    "ray": engine_peers.Ray,
}


def write_lake(folder: Path, *, subjects: int, partitions: int) -> None:
    """Normal numbers; ids that are no row numbers."""
    draw, ids = np.random.default_rng(0), np.random.default_rng(1).permutation(subjects)
    for place, own in enumerate(np.array_split(ids, partitions)):
        columns = {a.name: draw.normal(size=len(own)) for a in ATTRIBUTES}
        pq.write_table(pa.table({"id": own, **columns}), folder / f"part-{place:05}.parquet")


def spec_of(subjects: int, *, k: int = 100) -> ReleaseSpec:
    """A release of one party, rows cut at norm 1."""
    key = SigningKey(b"\x01" * 32)
    party = StudyParty(name="p", dataset="d", attributes=ATTRIBUTES, row_norm=1.0)
    study = Study(
        study="s", mechanism="rmgm", subjects="listed", k=k, epsilon=1, delta=1e-5, n=subjects, parties=(party,)
    )
    members = {"p": Member(key.verifying_key.raw.hex(), "00" * 32)}
    return build_spec(study, members=members, proposer=key.fingerprint, seed=bytes(32), now=system_clock())


def read_by(engine: Engine, lake: Path, folder: Path) -> Snapshot:
    """A snapshot of the lake, read by that engine."""
    source, key = PartitionedSource(path=str(lake)), SubjectKey.of("id")
    found = open_table(source, key, ATTRIBUTES, engine=engine).scan()
    return write_snapshot(folder, secrets.token_bytes(32), ATTRIBUTES, iter(found.sorter))


def measure(name: str, lake: Path, folder: Path, spec: ReleaseSpec) -> tuple[dict[str, float], NDArray[np.int64]]:
    """CPU seconds of each pass, of all processes; megabytes, seconds on the clock; and the block before noise."""
    found, watch, start = dict[str, float](), _Watch(), time.perf_counter()
    engine = ENGINES[name]()
    list(engine.run(engine_peers.nothing, [0], lambda _: None))
    found["start"] = watch.lap()
    parts = read_by(engine, lake, folder).parts()
    found["read"] = watch.lap()
    measured = tuple(MeasuredAttribute(Kind.NUMERIC) for _ in ATTRIBUTES)
    summing = SummingColumns(FirstStage(measured, spec.n, sigma=1, square_sigma=1))
    for _ in engine.run(summing, parts, lambda _: None):
        pass
    found["sums"] = watch.lap()
    mixing = Mixing(spec, "p", None)
    block = mixing.total(part for _, part in engine.run(mixing, parts, lambda _: None))
    found["mixed"] = watch.lap()
    return found | {"MB": _used()[1], "on the clock": time.perf_counter() - start}, block


class _Watch:
    def __init__(self) -> None:
        self._since, _ = _used()

    def lap(self) -> float:
        """CPU seconds since the last."""
        now, _ = _used()
        since, self._since = self._since, now
        return now - since


def _used() -> tuple[float, float]:
    """CPU seconds and resident megabytes of this process and all that it started."""
    me = psutil.Process()
    alive = [me, *me.children(recursive=True)]
    times = [one.cpu_times() for one in alive]
    return sum(t.user + t.system for t in times), sum(one.memory_info().rss for one in alive) / 1e6


@click.command()
@click.option("--subjects", default=1_000_000, show_default=True)
@click.option("--partitions", default=16, show_default=True)
@click.option("--engine", "engines", type=click.Choice([*ENGINES, "duckdb"]), multiple=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, subjects: int, partitions: int, engines: tuple[str, ...], json_file: Path | None) -> None:
    """Print one row for each engine."""
    report: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        lake, folder, spec = Path(name, "lake"), Path(name, "snapshots"), spec_of(subjects)
        lake.mkdir()
        write_lake(lake, subjects=subjects, partitions=partitions)
        expected = Mixing(spec, "p", None)
        parts = read_by(IN_PROCESS, lake, folder).parts()
        whole = expected.total(part for _, part in IN_PROCESS.run(expected, parts[::-1], lambda _: None))
        for engine in engines or ("in-process", "dask"):
            if engine == "duckdb":
                report[engine] = engine_peers.duckdb_seconds(lake, [a.name for a in ATTRIBUTES], lower=-3, upper=3)
                continue
            report[engine], block = measure(engine, lake, folder, spec)
            if not np.array_equal(block, whole):
                raise SystemExit(f"{engine} makes another block")
    columns = list(dict.fromkeys(key for found in report.values() for key in found))
    print("\n".join(heading("engine", *columns)))
    for engine, found in report.items():
        print(row(engine, *(f"{found[key]:.1f}" if key in found else "" for key in columns)))
    if json_file is not None:
        json_file.write_text(json.dumps({"subjects": subjects, "cores": os.cpu_count(), "engines": report}) + "\n")


if __name__ == "__main__":
    main()
