"""The exact projections, signs made on the way, against a plain float64 product with the matrix in memory.

OPENBLAS_NUM_THREADS=1 python -m benchmarks.mixing [--quick] [--json FILE]

All run in this process, in turns, and dense ones must agree. Seconds are of processor time, of all threads. Where the
matrix would not fit into 2 GB, or half of the memory that is available, fewer columns are held and multiplied once per
chunk of X: the same work, with chunks still far larger than any cache; agreement is then checked on the first chunk.
Peak memory is traced (tracemalloc) with rows made batch by batch, at n and at n/10, of the compiled projection.
"""

import argparse
import json
import os
import resource
import statistics
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from commingle.shared.mechanisms.rows.compiled_projection import CompiledProjection
from commingle.shared.mechanisms.rows.mixed_rows import MAX_ABS_ENTRY, MixedRows
from commingle.shared.mechanisms.rows.projection import Projection
from commingle.shared.mechanisms.rows.signs import SignStream
from commingle.shared.mechanisms.rows.sparse import SparseProjection

SEED = bytes(range(32))
FULL = ((100_000, 2200, 10), (1_000_000, 1000, 10), (1_000_000, 10_000, 10))
QUICK = ((4_000, 100, 10), (1_000, 220, 3))
BATCH = 4096
MOST_BYTES = 2 << 30

Kind = Callable[[bytes, int, int], MixedRows]


@dataclass(frozen=True, slots=True)
class Result:
    """One size; seconds are medians over paired runs, ratio the median of those of the compiled one to the product."""

    n: int
    k: int
    d: int
    columns_in_memory: int
    gemm_seconds: float
    numpy_seconds: float
    compiled_seconds: float
    sparse_seconds: float
    ratio: float
    peak_bytes: int
    peak_bytes_at_tenth: int


def run(n: int, k: int, d: int, *, repeats: int) -> Result:
    """Time one size in `repeats` pairs and measure the peak memory of ours."""
    columns = _columns_that_fit(n, k)
    pairs = _paired_seconds(n, k, d, columns=columns, repeats=repeats)
    return Result(
        n=n,
        k=k,
        d=d,
        columns_in_memory=columns,
        gemm_seconds=statistics.median(pair[0] for pair in pairs),
        numpy_seconds=statistics.median(pair[1] for pair in pairs),
        compiled_seconds=statistics.median(pair[2] for pair in pairs),
        sparse_seconds=statistics.median(pair[3] for pair in pairs),
        ratio=statistics.median(compiled / gemm for gemm, _, compiled, _ in pairs),
        peak_bytes=_peak_bytes(n, k, d),
        peak_bytes_at_tenth=_peak_bytes(n // 10, k, d),
    )


def project(kind: Kind, k: int, ranks: NDArray[np.integer], q: NDArray[np.integer]) -> NDArray[np.int64]:
    """Y = S Q: ranks (m,), q (m, d), result (k, d)."""
    projection = kind(SEED, k, q.shape[1])
    for start in range(0, len(q), 16 * BATCH):
        projection.add(ranks[start : start + 16 * BATCH], q[start : start + 16 * BATCH])
    return projection.total()


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark, print its table and, where asked, write the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mixing", description="Projection against GEMM.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    sizes, repeats = (QUICK, 3) if options.quick else (FULL, 3)
    results = [run(n, k, d, repeats=repeats) for n, k, d in sizes]
    print("        n     k   d   gemm s  NumPy s  comp. s sparse s  ratio  peak MB  at n/10")
    for r in results:
        print(
            f"{r.n:>9} {r.k:>5} {r.d:>3} {r.gemm_seconds:>8.4f} {r.numpy_seconds:>8.4f} {r.compiled_seconds:>8.4f} "
            f"{r.sparse_seconds:>8.4f} {r.ratio:>6.2f} "
            f"{r.peak_bytes / 1e6:>8.2f} {r.peak_bytes_at_tenth / 1e6:>8.2f}"
        )
    if options.json:
        report = {
            "benchmark": "mixing",
            "cpus": os.cpu_count(),
            "numpy": np.__version__,
            "process_peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "results": [asdict(r) for r in results],
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _paired_seconds(n: int, k: int, d: int, *, columns: int, repeats: int) -> list[tuple[float, ...]]:
    """(product, NumPy, compiled, sparse) for each run, after the dense ones have agreed on what is in memory."""
    ranks, q = np.arange(n), _rows(n, d)
    x, b = q.astype(np.float64), _sign_matrix(k, columns)
    kinds: tuple[Kind, ...] = (Projection, CompiledProjection, SparseProjection)
    for kind in kinds[:2]:
        _agree(b @ x[:columns], project(kind, k, ranks[:columns], q[:columns]))
    return [
        (_seconds(lambda: _gemm(b, x)), *(_seconds(partial(project, kind, k, ranks, q)) for kind in kinds))
        for _ in range(repeats)
    ]


def _rows(n: int, d: int, *, start: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(start).integers(-MAX_ABS_ENTRY, MAX_ABS_ENTRY, (n, d), endpoint=True)


def _columns_that_fit(n: int, k: int) -> int:
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(n, min(MOST_BYTES, available // 2) // (8 * k)))


def _sign_matrix(k: int, n: int) -> NDArray[np.float64]:
    """S, (k, n), filled in place so that there is only one copy of it."""
    stream, b = SignStream(SEED), np.empty((k, n))
    for start in range(0, n, BATCH):
        ranks = np.arange(start, min(start + BATCH, n))
        bits = np.unpackbits(stream.packed(ranks, k), axis=1, count=k)
        b[:, start : start + len(ranks)] = 1 - 2 * bits.T.astype(np.int8)
    return b


def _gemm(b: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """B X, in chunks that reuse B where B holds fewer columns than X has rows."""
    width = b.shape[1]
    total = b @ x[:width]
    for start in range(width, len(x), width):
        chunk = x[start : start + width]
        total += b[:, : len(chunk)] @ chunk
    return total


def _agree(expected: NDArray[np.float64], ours: NDArray[np.int64]) -> None:
    if not np.array_equal(expected, ours):  # both are exact: integers below 2^53
        raise SystemExit("the two products differ")


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _peak_bytes(n: int, k: int, d: int) -> int:
    tracemalloc.start()
    projection = CompiledProjection(SEED, k, d)
    for start in range(0, n, BATCH):
        ranks = np.arange(start, min(start + BATCH, n))
        projection.add(ranks, _rows(len(ranks), d, start=start))
    projection.total()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    main()
