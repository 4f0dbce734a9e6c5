"""Exact projection with a regenerated sign matrix against a plain float64 product with the matrix in memory.

python -m benchmarks.mixing [--quick] [--json FILE]

Both run in this process, in turns, and must agree. Where the matrix would not fit into half of the memory
that is available, fewer columns are held and multiplied once per chunk of X: the same work, with chunks still
far larger than any cache; agreement is then checked on the first chunk. Peak memory is traced (tracemalloc)
with rows made batch by batch, at n and at n/10.
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
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from commingle.shared.mechanisms.rows.projection import MAX_ABS_ENTRY, Projection
from commingle.shared.mechanisms.rows.signs import SignStream

SEED = bytes(range(32))
FULL = ((1_000_000, 1000, 10), (100_000, 2200, 10))
QUICK = ((4_000, 100, 10), (1_000, 220, 3))
BATCH = 4096


@dataclass(frozen=True, slots=True)
class Result:
    """One size; seconds are medians over paired runs, ratio is the median of the paired ratios."""

    n: int
    k: int
    d: int
    columns_in_memory: int
    gemm_seconds: float
    ours_seconds: float
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
        gemm_seconds=statistics.median(gemm for gemm, _ in pairs),
        ours_seconds=statistics.median(ours for _, ours in pairs),
        ratio=statistics.median(ours / gemm for gemm, ours in pairs),
        peak_bytes=_peak_bytes(n, k, d),
        peak_bytes_at_tenth=_peak_bytes(n // 10, k, d),
    )


def project(seed: bytes, k: int, ranks: NDArray[np.integer], q: NDArray[np.integer]) -> NDArray[np.int64]:
    """Y = S Q in one call: ranks (m,), q (m, d), result (k, d)."""
    projection = Projection(seed, k, q.shape[1])
    projection.add(ranks, q)
    return projection.total()


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark, print its table and, where asked, write the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mixing", description="Projection against GEMM.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    sizes, repeats = (QUICK, 3) if options.quick else (FULL, 7)
    results = [run(n, k, d, repeats=repeats) for n, k, d in sizes]
    print("        n     k   d   gemm s   ours s  ratio  peak MB  at n/10")
    for r in results:
        print(
            f"{r.n:>9} {r.k:>5} {r.d:>3} {r.gemm_seconds:>8.4f} {r.ours_seconds:>8.4f} {r.ratio:>6.2f} "
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


def _paired_seconds(n: int, k: int, d: int, *, columns: int, repeats: int) -> list[tuple[float, float]]:
    """(gemm, ours) for each pair, after both have agreed on what is in memory."""
    ranks, q = np.arange(n), _rows(n, d)
    x, b = q.astype(np.float64), _sign_matrix(k, columns)
    _agree(b @ x[:columns], project(SEED, k, ranks[:columns], q[:columns]))
    return [(_seconds(lambda: _gemm(b, x)), _seconds(lambda: project(SEED, k, ranks, q))) for _ in range(repeats)]


def _rows(n: int, d: int, *, start: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(start).integers(-MAX_ABS_ENTRY, MAX_ABS_ENTRY, (n, d), endpoint=True)


def _columns_that_fit(n: int, k: int) -> int:
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(n, available // 2 // (8 * k)))


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
    time.sleep(0.2)  # BLAS threads go on spinning after a product; they should not do so on the other's account
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _peak_bytes(n: int, k: int, d: int) -> int:
    tracemalloc.start()
    projection = Projection(SEED, k, d)
    for start in range(0, n, BATCH):
        ranks = np.arange(start, min(start + BATCH, n))
        projection.add(ranks, _rows(len(ranks), d, start=start))
    projection.total()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    main()
