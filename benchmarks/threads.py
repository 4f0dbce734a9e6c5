"""What one thread of linear algebra in each process costs, beside one for each processor, which is what libraries take.

python -m benchmarks.threads [--quick] [--processors N] [--json FILE]

Each piece of work is done alone, and by twice as many processes at a time as there are processors, as where several
agents or other programs share a machine: a block densely mixed and a party's own second moments (`benchmarks.scale`),
and fits of `measurement_error` (`benchmarks.learner`). The figures are ratios of one run, the least of three turns: the
seconds of the slowest and the CPU seconds of all, with a thread for each processor over those with one. Above 1, one is
better.
`--processors`: so many threads, of which OpenBLAS takes no more than there are processors, and twice as many processes.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from benchmarks.reporting import heading, row, write_json
from commingle.shared.runtime.threads import SETTING, threads

_FEW = 1000
_TURNS = 3


def mixing(n: int) -> None:
    """A block of rmgm before noise."""
    from benchmarks.scale import WORKS, Source  # noqa: PLC0415 - loads NumPy, in a process whose threads are set

    WORKS["dense"](Source(), n)


def moments(n: int) -> None:
    """A party's own second moments before noise, of twenty times as many rows."""
    from benchmarks.scale import WORKS, Source  # noqa: PLC0415 - as above

    WORKS["moments"](Source(), 20 * n)


def fitting(n: int) -> None:
    """Fits, one for each fifty."""
    from benchmarks.learner import ATTRIBUTES, published  # noqa: PLC0415 - as above
    from commingle.services.fit import FitRequest, PreparedMoments, fit_prepared  # noqa: PLC0415
    from commingle.shared.documents.schema import NumericAttribute  # noqa: PLC0415

    attributes = tuple(NumericAttribute(name=f"x{i}", lower=-1, upper=1) for i in range(ATTRIBUTES))
    prepared = PreparedMoments.of(published(1000)[1], attributes)
    for _ in range(n // 50):
        fit_prepared(prepared, FitRequest(target="x0", estimator="measurement_error"))


WORKS: dict[str, Callable[[int], None]] = {"mixing": mixing, "moments": moments, "fitting": fitting}


def once(work: str, n: int, *, each: int, processes: int) -> tuple[float, float]:
    """Seconds that the slowest of so many processes took, and CPU seconds of all; each with so many threads."""
    command = [sys.executable, "-m", "benchmarks.threads", "--work", work, "--n", str(n)]
    environment = {**os.environ, **threads({SETTING: str(each)})}
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    said = [process.communicate()[0] for process in running]
    if sum(process.returncode for process in running):
        raise RuntimeError(f"{work} failed")
    passed, used = zip(*(json.loads(line) for line in said), strict=True)
    return max(passed), sum(used)


def timed(work: str, n: int) -> tuple[float, float]:
    """In a process of its own: seconds, and CPU seconds, without those of loading."""
    WORKS[work](_FEW)
    start, used = time.perf_counter(), time.process_time()
    WORKS[work](n)
    return time.perf_counter() - start, time.process_time() - used


def measure(n: int, *, processors: int) -> list[dict[str, Any]]:
    """Each work, alone and side by side: the ratios, and what they are of; the least of some turns."""
    found = []
    for work in WORKS:
        for processes in (1, 2 * processors):
            taken: dict[int, list[tuple[float, float]]] = {1: [], processors: []}
            for each in sorted(taken) * _TURNS:
                taken[each].append(once(work, n, each=each, processes=processes))
            one, many = ([min(kind) for kind in zip(*taken[each], strict=True)] for each in (1, processors))
            ratios = {"seconds": many[0] / one[0], "cpu": many[1] / one[1]}
            found.append({"work": work, "processes": processes, "one": one, "many": many, **ratios})
    return found


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes, for CI.")
@click.option("--processors", type=int, default=os.cpu_count() or 1, show_default=True)
@click.option("--work", type=click.Choice(list(WORKS)), hidden=True)
@click.option("--n", type=int, default=200_000, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, quick: bool, processors: int, work: str | None, n: int, json_file: Path | None) -> None:
    """Measure the works with one thread and with one for each processor, and print the ratios."""
    if work is not None:
        click.echo(json.dumps(timed(work, n)))
        return
    found = measure(20_000 if quick else n, processors=processors)
    lines = heading("work", "processes", "ratio of seconds", "ratio of CPU", "one thread: s", "one thread: CPU s")
    for each in found:
        figures = (each["seconds"], each["cpu"], *each["one"])
        lines.append(row(each["work"], str(each["processes"]), *(f"{figure:.2f}" for figure in figures)))
    click.echo("\n".join(lines))
    write_json({"processors": processors, "results": found}, json_file)


if __name__ == "__main__":
    main()
