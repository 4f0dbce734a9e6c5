"""Seconds and memory of what a party computes from its rows, by the number of rows, which are made and never stored.

Each size is a process of its own. Ten numeric columns come as Arrow batches, as from a file, and are encoded, bounded
and added up by the product's own code: `sparse`, the block of rmgm sparsely mixed, k = 10,000; `moments`, a party's own
second moments, up to the 2^24 rows of an exchange; `dense`, the block of rmgm densely mixed, up to ten million rows.
Subjects are the ranks 0 to n - 1: what lists of ids cost is not in these figures. CPU seconds are without those of
making the rows; peak memory is the kernel's (VmHWM), beside its peak before it began. The slope is the one of
log seconds over log n. The same sizes in whole agents: `benchmarks.whole_agent`. Run it with OPENBLAS_NUM_THREADS=1.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.harness import Asked, Experiment, Report, heading, row
from benchmarks.panels import Panel, draw_panels
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.terms import PartyTerms
from commingle.shared.encoding import bounded_rows, encode_attribute
from commingle.shared.mechanisms.moments.exchange.products import own_moments
from commingle.shared.mechanisms.rows.sketch import mixed_rows
from tests.world.side import approved

SIZES = (100_000, 1_000_000, 10_000_000, 100_000_000)
COLUMNS = 10
K = 10_000
_MOST = {"dense": 10_000_000, "moments": 10_000_000}  # an exchange takes 2^24 rows at most
_BATCH = 1 << 14
_SEED = bytes(range(32))
_ATTRIBUTES = tuple(NumericAttribute(name=f"x{i}", lower=-1, upper=1) for i in range(COLUMNS))
_EVERYTHING = PartyTerms(name="all", attributes=_ATTRIBUTES)


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
        return bounded_rows(_EVERYTHING, fraction_bits=fraction_bits)(np.hstack(encoded))


def batches(n: int) -> Iterator[tuple[int, int]]:
    """Places of the first row of each batch and of the first after it."""
    return ((start, min(start + _BATCH, n)) for start in range(0, n, _BATCH))


def mix(source: Source, n: int, *, sparse: bool) -> None:
    """The block of rmgm before noise."""
    mixed = mixed_rows("sparse" if sparse else None, _SEED, k=K, d=COLUMNS)
    for start, stop in batches(n):
        mixed.add(np.arange(start, stop), source.rows(stop - start, fraction_bits=15))
    mixed.total()


def moments(source: Source, n: int) -> None:
    """A party's own second moments before noise."""
    exchange = approved(n, COLUMNS, 2).exchange

    def rows(start: int, stop: int) -> NDArray[np.int16]:
        return source.rows(stop - start, fraction_bits=14).astype(np.int16)

    own_moments(exchange, party=exchange.parties[0], rows=rows)


WORKS: dict[str, Callable[[Source, int], None]] = {
    "sparse": lambda source, n: mix(source, n, sparse=True),
    "dense": lambda source, n: mix(source, n, sparse=False),
    "moments": moments,
}


def peak_megabytes() -> float:
    """Of this process, so far."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def of_work(work: str, n: int) -> Result:
    """In this process, which should have done nothing else."""
    before, source, start = peak_megabytes(), Source(), time.process_time()
    WORKS[work](source, n)
    return Result(work, n, time.process_time() - start - source.seconds, peak_megabytes(), before)


def tell(work: str, n: int) -> None:
    """The same as JSON."""
    print(json.dumps(asdict(of_work(work, n))))


def in_a_process(work: str, n: int) -> dict[str, Any]:
    """The same in a process of its own."""
    words = f"from benchmarks.scale import tell; tell({work!r}, {n})"
    ended = subprocess.run([sys.executable, "-c", words], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def slopes(results: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], float]:
    """Of log CPU seconds over log n, by work and n, from the size before."""
    return {
        (b["work"], b["n"]): log(b["cpu_seconds"] / a["cpu_seconds"]) / log(b["n"] / a["n"])
        for a, b in pairwise(results)
        if a["work"] == b["work"] and min(a["cpu_seconds"], b["cpu_seconds"]) > 0
    }


def measure(asked: Asked) -> Report:
    """Every work and size."""
    sizes = (2_000, 40_000) if asked.quick else tuple(size for size in SIZES if size <= asked.given["largest"])
    results = [in_a_process(name, size) for name in WORKS for size in sizes if size <= _MOST.get(name, size)]
    return {"k": K, "columns": COLUMNS, "threads": os.environ.get("OPENBLAS_NUM_THREADS"), "results": results}


def lines(report: Report) -> list[str]:
    """One line for each process."""
    steep = slopes(report["results"])
    shown = heading("work", "rows", "CPU s", "ns a row", "slope", "peak MB", "before MB")
    for r in report["results"]:
        n, seconds = r["n"], r["cpu_seconds"]
        slope = f"{steep[r['work'], n]:.2f}" if (r["work"], n) in steep else ""
        megabytes = (f"{r[f'{when}_megabytes']:.0f}" for when in ("peak", "before"))
        shown.append(row(r["work"], f"{n:,}", f"{seconds:.2f}", f"{1e9 * seconds / n:,.0f}", slope, *megabytes))
    return shown


def draw(report: Report, folder: Path) -> None:
    """CPU seconds and peak memory over rows."""
    found, panels = report["results"], []
    for figure, label in (("cpu_seconds", "CPU seconds"), ("peak_megabytes", "peak memory, MB")):
        over = {work: [(r["n"], r[figure]) for r in found if r["work"] == work] for work in WORKS}
        panels.append(Panel("", "rows", label, over, {}))
    draw_panels(folder / "scale.png", panels)


OPTIONS = (click.Option(["--largest"], type=int, default=10_000_000, show_default=True, help="Rows at most."),)
EXPERIMENT = Experiment("scale", __doc__, measure, lines, draw, options=OPTIONS)

if __name__ == "__main__":
    EXPERIMENT.command()
