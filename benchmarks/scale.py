"""Seconds and memory of a party's computations on its rows, by the number of rows, which are made and never stored.

Each size is a process of its own. Ten numeric columns come as Arrow batches, as from a file. The product's own code
encodes, bounds and adds them up: `sparse`, the block of rmgm sparsely mixed, k = 10,000; `moments`, a party's own
second moments, up to the 2^24 rows of an exchange; `dense`, the block of rmgm densely mixed, up to ten million rows.
Subjects are the ranks 0 to n - 1, so that figures leave out lists of ids. CPU seconds leave out the making of rows.
Peak memory is the kernel's (VmHWM), beside the peak before the work. `benchmarks.whole_agent` has the same sizes in
whole agents. Run it with OPENBLAS_NUM_THREADS=1.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.harness import Asked, Experiment, Panel, Report, draw_panels
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


class Source:
    """Made-up cells, a batch at a time, and the seconds of making them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._draw = np.random.default_rng(0)

    def cells(self, m: int) -> list["pa.Array[Any]"]:
        start = time.process_time()
        made = [pa.array(column) for column in self._draw.uniform(-1, 1, (COLUMNS, m))]
        self.seconds += time.process_time() - start
        return made

    def rows(self, m: int, *, fraction_bits: int) -> NDArray[np.int64]:
        encoded = [encode_attribute(a, c).columns for a, c in zip(_ATTRIBUTES, self.cells(m), strict=True)]
        return bounded_rows(_EVERYTHING, fraction_bits=fraction_bits)(np.hstack(encoded))


def batches(n: int) -> Iterator[tuple[int, int]]:
    """Places of the first row of each batch and of the first after it."""
    return ((start, min(start + _BATCH, n)) for start in range(0, n, _BATCH))


def mix(source: Source, n: int, *, sparse: bool) -> None:
    mixed = mixed_rows("sparse" if sparse else None, _SEED, k=K, d=COLUMNS)
    for start, stop in batches(n):
        mixed.add(np.arange(start, stop), source.rows(stop - start, fraction_bits=15))
    mixed.total()


def moments(source: Source, n: int) -> None:
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
    """The most that this process had so far."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def tell(work: str, n: int) -> None:
    """Do the work in this process, which should have done nothing else, and print what it took."""
    before, source, start = peak_megabytes(), Source(), time.process_time()
    WORKS[work](source, n)
    seconds = time.process_time() - start - source.seconds
    told = {"work": work, "n": n, "cpu_seconds": seconds, "peak_megabytes": peak_megabytes()}
    print(json.dumps(told | {"before_megabytes": before}))


def in_a_process(work: str, n: int) -> dict[str, Any]:
    words = f"from benchmarks.scale import tell; tell({work!r}, {n})"
    ended = subprocess.run([sys.executable, "-c", words], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def measure(asked: Asked) -> Report:
    sizes = (2_000, 40_000) if asked.quick else tuple(size for size in SIZES if size <= asked.given["largest"])
    results = [in_a_process(name, size) for name in WORKS for size in sizes if size <= _MOST.get(name, size)]
    return {"k": K, "columns": COLUMNS, "threads": os.environ.get("OPENBLAS_NUM_THREADS"), "results": results}


def draw(report: Report, folder: Path) -> None:
    found, panels = report["results"], []
    for figure, label in (("cpu_seconds", "CPU seconds"), ("peak_megabytes", "peak memory, MB")):
        over = {work: [(r["n"], r[figure]) for r in found if r["work"] == work] for work in WORKS}
        panels.append(Panel("", "rows", label, over, {}))
    draw_panels(folder / "scale.png", panels)


OPTIONS = (click.Option(["--largest"], type=int, default=10_000_000, show_default=True, help="Rows at most."),)
EXPERIMENT = Experiment("scale", __doc__, measure, draw=draw, options=OPTIONS)

if __name__ == "__main__":
    EXPERIMENT.command()
