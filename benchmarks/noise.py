"""Values per processor second of the noise sampler, beside OpenDP's for the same law in the same run.

python -m benchmarks.noise [--quick] [--json FILE]

Scales: the smallest; that of a party's four columns in a `dgm` release at epsilon 1; one as `moments` has. Both draw in
one thread. The first call for a scale makes its histogram, which is timed apart. The figure is the ratio.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import opendp.prelude as dp

from benchmarks.reporting import heading, row
from commingle.shared.dp.histogram import histogram
from commingle.shared.dp.noise import Sampler, rounded_gaussian

SIGMAS = (1, 530_204, 10**10)


def opendp_gaussian(sigma: int, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The same draws by OpenDP."""
    dp.enable_features("contrib")  # its sampler is proved, but still listed there
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return np.asarray(dp.m.make_gaussian(*space, scale=float(sigma))([0] * count), np.int64)


def seconds(work: Callable[[], object], runs: int = 3) -> float:
    """Processor seconds, the least of some runs."""
    found = []
    for _ in range(runs):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def measure(sigma: int, *, ours: int, theirs: int) -> dict[str, float]:
    """One scale: values per second of both samplers over these counts, their ratio, seconds for a histogram."""

    def rate(draw: Sampler, count: int) -> float:
        return count / seconds(lambda: draw(sigma, count))

    rounded_gaussian(sigma, 1)
    per_second, peer = rate(rounded_gaussian, ours), rate(opendp_gaussian, theirs)
    return {
        "sigma": sigma,
        "per_second": per_second,
        "opendp_per_second": peer,
        "times_faster": per_second / peer,
        "histogram_seconds": seconds(lambda: histogram.__wrapped__(sigma)),
    }


@click.command()
@click.option("--quick", is_flag=True, help="Few draws, for CI.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, quick: bool, json_file: Path | None) -> None:
    """Print the table and, if asked, write it as JSON."""
    counts = (200_000, 5_000) if quick else (5_000_000, 100_000)
    results = [measure(sigma, ours=counts[0], theirs=counts[1]) for sigma in SIGMAS]
    print(*heading("sigma", "values a second", "OpenDP", "times faster", "histogram"), sep="\n")
    for each in results:
        rates = (f"{each[name]:,.0f}" for name in ("per_second", "opendp_per_second", "times_faster"))
        print(row(str(each["sigma"]), *rates, f"{1000 * each['histogram_seconds']:.1f} ms"))
    if json_file is not None:
        json_file.write_text(json.dumps({"results": results}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
