"""Seconds and memory of what a party computes from its rows, by the number of rows, which are made and never stored.

OPENBLAS_NUM_THREADS=1 python -m benchmarks.scale [--quick] [--largest N] [--no-agents] [--json FILE] [--picture FILE]
OPENBLAS_NUM_THREADS=1 python -m benchmarks.scale --measured FILE --picture FILE

Each size is a process of its own. Ten numeric columns come as Arrow batches, as from a file, and are encoded, bounded
and added up by the product's own code: `sparse`, the block of rmgm sparsely mixed, k = 10,000; `moments`, a party's own
second moments, up to the 2^24 rows of an exchange; `dense`, the block of rmgm densely mixed, up to ten million rows.
Subjects are the ranks 0 to n - 1: what lists of ids cost is not in these figures. Beside them, each as far as it goes:
the same table in scikit-learn's `partial_fit` of a linear model, a batch at a time, and in its `LinearRegression` on a
pandas frame, importing included; and the products of three parties' columns, three each, exchanged by us in one process
(`exchange`, bounds trusted) and by MPyC in three. CPU seconds are without those of making the rows and those of all
processes; peak memory is the kernel's (VmHWM) of the largest, beside that of the process before it began. The slope is
that of log seconds over log n. Then the same sizes in whole agents (`benchmarks.whole_agent`). The picture shows
both by the number of rows, also of what an earlier run has measured (--measured, its --json).
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import whole_agent
from benchmarks.exchanged import approved
from benchmarks.mpyc_products import PARTIES, mpyc, ours
from benchmarks.reporting import heading, row
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.encoding import bounded_rows, encode_attribute
from commingle.shared.mechanisms.moments.exchange.submission import own_moments
from commingle.shared.mechanisms.rows.sketch import SKETCHES

SIZES = (100_000, 1_000_000, 10_000_000, 100_000_000)
COLUMNS = 10
K = 10_000
_MOST = {  # an exchange takes 2^24 rows at most, and MPyC what three processes can hold
    "dense": 10_000_000,
    "moments": 10_000_000,
    "pandas": 10_000_000,
    "exchange": 1_000_000,
    "MPyC": 100_000,
}
_LARGEST_AGENT = 10_000_000
_BATCH = 1 << 14
_SEED = bytes(range(32))
_ATTRIBUTES = tuple(NumericAttribute(name=f"x{i}", lower=-1, upper=1) for i in range(COLUMNS))


@dataclass(frozen=True, slots=True)
class Result:
    """One process: CPU seconds without those of making rows, and megabytes at most and before it began."""

    work: str
    n: int
    cpu_seconds: float
    peak_megabytes: float
    before_megabytes: float


class Source:
    """Made-up cells, a batch at a time, and how long making them took."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._draw = np.random.default_rng(0)

    def cells(self, m: int) -> list["pa.Array[Any]"]:
        """So many rows."""
        start = time.process_time()
        made = [pa.array(column) for column in self._draw.uniform(-1, 1, (COLUMNS, m))]
        self.seconds += time.process_time() - start
        return made

    def rows(self, m: int, *, fraction_bits: int) -> NDArray[np.int64]:
        """So many rows as integers, encoded and bounded."""
        encoded = [encode_attribute(a, c).columns for a, c in zip(_ATTRIBUTES, self.cells(m), strict=True)]
        return bounded_rows(None, fraction_bits=fraction_bits)(np.hstack(encoded))


def batches(n: int) -> Iterator[tuple[int, int]]:
    """Places of the first row of each batch and of the first after it."""
    return ((start, min(start + _BATCH, n)) for start in range(0, n, _BATCH))


def mix(source: Source, n: int, *, sparse: bool) -> None:
    """The block of rmgm before noise."""
    mixed = SKETCHES["sparse" if sparse else None].mixed_rows(_SEED, k=K, d=COLUMNS)
    for start, stop in batches(n):
        mixed.add(np.arange(start, stop), source.rows(stop - start, fraction_bits=15))
    mixed.total()


def moments(source: Source, n: int) -> None:
    """A party's own second moments before noise."""
    exchange = approved(n, COLUMNS, 2).exchange

    def rows(start: int, stop: int) -> NDArray[np.int16]:
        return source.rows(stop - start, fraction_bits=14).astype(np.int16)

    own_moments(exchange, party=exchange.parties[0], rows=rows)


def regress(source: Source, n: int) -> None:
    """Stochastic gradients over the same batches, no privacy."""
    from sklearn.linear_model import SGDRegressor  # noqa: PLC0415 - an extra

    model = SGDRegressor(random_state=0)
    for start, stop in batches(n):
        cells = np.column_stack([c.to_numpy() for c in source.cells(stop - start)])
        model.partial_fit(cells[:, :-1], cells[:, -1])


def regress_at_once(source: Source, n: int) -> None:
    """Least squares on a frame of all rows, no privacy."""
    import pandas as pd  # noqa: PLC0415 - an extra
    from sklearn.linear_model import LinearRegression  # noqa: PLC0415 - an extra

    frame = pd.DataFrame({f"x{i}": column.to_numpy() for i, column in enumerate(source.cells(n))})
    LinearRegression().fit(frame.iloc[:, :-1], frame.iloc[:, -1])


WORKS: dict[str, Callable[[Source, int], None]] = {
    "sparse": lambda source, n: mix(source, n, sparse=True),
    "dense": lambda source, n: mix(source, n, sparse=False),
    "moments": moments,
    "scikit-learn": regress,
    "pandas": regress_at_once,
    "exchange": lambda _, n: _discard(ours(n, COLUMNS // PARTIES)),
    "MPyC": lambda _, n: _discard(mpyc(n, COLUMNS // PARTIES)),
}


def _discard(_: object) -> None:
    """Products have been compared with the exact ones."""


def peak_megabytes() -> float:
    """Of this process, so far, or of the largest of its children that ended."""
    status = Path("/proc/self/status").read_text()
    own = int(status.partition("VmHWM:")[2].split()[0])
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024


def cpu_seconds() -> float:
    """Of this process and of its children that ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def measure(work: str, n: int) -> Result:
    """In this process, which should have done nothing else."""
    before, source = peak_megabytes(), Source()
    start = cpu_seconds()
    WORKS[work](source, n)
    seconds = cpu_seconds() - start - source.seconds
    return Result(work, n, seconds, peak_megabytes(), before)


def in_a_process(work: str, n: int) -> Result:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale", "--work", work, "--n", str(n)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    return Result(**json.loads(ended.stdout))


def slopes(results: list[Result]) -> dict[tuple[str, int], float]:
    """Of log CPU seconds over log n, by work and n, from the size before."""
    return {
        (b.work, b.n): log(b.cpu_seconds / a.cpu_seconds) / log(b.n / a.n)
        for a, b in pairwise(results)
        if a.work == b.work and min(a.cpu_seconds, b.cpu_seconds) > 0
    }


def markdown(results: list[Result]) -> str:
    """One line for each process."""
    steep = slopes(results)
    lines = heading("work", "rows", "CPU s", "ns a row", "slope", "peak MB", "before MB")
    for r in results:
        slope = f"{steep[r.work, r.n]:.2f}" if (r.work, r.n) in steep else ""
        each = (f"{r.cpu_seconds:.2f}", f"{1e9 * r.cpu_seconds / r.n:,.0f}", slope)
        lines.append(row(r.work, f"{r.n:,}", *each, f"{r.peak_megabytes:.0f}", f"{r.before_megabytes:.0f}"))
    return "\n".join(lines)


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="Small tables, to see that it runs.")
@click.option("--largest", type=int, default=10_000_000, help="No more rows than that.")
@click.option("--work", type=click.Choice(list(WORKS)), help="Only this, in this process, as JSON.")
@click.option("--n", type=int, default=100_000, help="Rows of --work.")
@click.option("--agents/--no-agents", default=True, help="Whole agents, too.")
@click.option("--measured", type=click.Path(path_type=Path, exists=True), help="Measure nothing: figures of --json.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
@click.option("--picture", type=click.Path(path_type=Path))
def main(
    *,
    quick: bool,
    largest: int,
    work: str | None,
    n: int,
    agents: bool,
    measured: Path | None,
    json_file: Path | None,
    picture: Path | None,
) -> None:
    """Print the table, and write figures and picture where asked."""
    if work is not None:
        click.echo(json.dumps(asdict(measure(work, n))))
        return
    report = json.loads(measured.read_text()) if measured is not None else _report(quick, largest, agents=agents)
    if json_file is not None:
        json_file.write_text(json.dumps(report) + "\n", encoding="utf-8")
    if picture is not None:
        from benchmarks.scale_picture import draw  # noqa: PLC0415 - its memory is not to be measured

        draw(report, picture)


def _report(quick: bool, largest: int, *, agents: bool) -> dict[str, Any]:
    """Measured now, and printed."""
    sizes = (2_000, 40_000) if quick else tuple(size for size in SIZES if size <= largest)
    results = [in_a_process(name, size) for name in WORKS for size in sizes if size <= _MOST.get(name, size)]
    click.echo(markdown(results))
    wanted = [size for size in sizes if size <= _LARGEST_AGENT] if agents else []
    whole = [whole_agent.measure(name, size) for name in whole_agent.WORKS for size in wanted]
    if whole:
        click.echo(whole_agent.markdown(whole))
    report = {"benchmark": "scale", "k": K, "columns": COLUMNS, "results": [asdict(r) for r in results]}
    return report | {"agents": [asdict(one) for one in whole]}


if __name__ == "__main__":
    main()
