"""A whole simulated consortium on a million subjects: seconds per stage and the peak memory of every process.

python -m benchmarks.million [--quick] [--json FILE]

Three parties with ten attributes between them, rmgm with k = 1000. Peak memory is the kernel's own figure (VmHWM), and
CPU seconds are too; both are those of this simulation's processes, by the `commingle` server that each runs; those that
run other commands are one role.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_POLL_SECONDS = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Use:
    """What a process used so far, and what it is for."""

    role: str
    megabytes: float
    cpu_seconds: float


def write_table(path: Path, *, subjects: int, features: int = 9) -> None:
    """Features and a target that is linear in them with R^2 about 0.5."""
    draw = np.random.default_rng(0)
    columns = {f"x{i}": draw.uniform(0, 1, subjects) for i in range(features)}
    signal = sum(column * weight for column, weight in zip(columns.values(), np.linspace(-1, 1, features), strict=True))
    columns["y"] = signal + draw.normal(0, np.std(signal), subjects)
    pq.write_table(pa.table(columns), path)


def run(table: Path, out: Path, *options: str) -> dict[str, Any]:
    """Simulate three parties, watching every process."""
    fixed = ["--table", str(table), "--target", "y", "--parties", "3", "--subjects", "listed", "--out", str(out)]
    command = [sys.executable, "-m", "commingle", "simulate", *fixed, *options]
    uses: dict[int, Use] = {}
    start = time.perf_counter()
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as simulation:
        while simulation.poll() is None:
            uses |= _uses(simulation.pid)
            time.sleep(_POLL_SECONDS)
    if simulation.returncode:
        raise SystemExit(f"the simulation ended with code {simulation.returncode}")
    wall = time.perf_counter() - start
    report = json.loads((out / "report.json").read_text())
    roles = {
        role: {
            "peak_megabytes": max(use.megabytes for use in uses.values() if use.role == role),
            "cpu_seconds": sum(use.cpu_seconds for use in uses.values() if use.role == role),
        }
        for role in sorted({use.role for use in uses.values()})
    }
    return {
        "wall_seconds": wall,
        "seconds": report["seconds"],
        "release_seconds": report["releases"][0]["seconds"],
        "processes": roles,
    }


def show(result: dict[str, Any]) -> None:
    """Print what `run` found."""
    print(f"  {'wall clock':<28}{result['wall_seconds']:>8.1f} s")
    for stage, seconds in result["seconds"].items():
        print(f"  {stage:<28}{seconds:>8.1f} s")
        if stage == "release":
            for part, of_it in result["release_seconds"].items():
                print(f"    of which {part:<17}{of_it:>8.1f} s")
    for role, used in result["processes"].items():
        print(f"  {role:<28}{used['peak_megabytes']:>8.0f} MB at most {used['cpu_seconds']:>8.1f} CPU seconds in all")


def _uses(simulation: int) -> dict[int, Use]:
    """By process id, of the simulation and of what descends from it: other simulations may run beside it."""
    stats, found = {}, {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stats[int(process.name)] = (process / "stat").read_text().rpartition(")")[2].split()
    for pid, fields in stats.items():
        with suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text().splitlines()
            role = "simulation" if pid == simulation else _role(pid) if _descends(pid, simulation, stats) else None
            peak = next((line.split()[1] for line in status if line.startswith("VmHWM:")), None)
            if role is not None and peak is not None:
                seconds = (int(fields[11]) + int(fields[12])) / _TICKS  # utime and stime
                found[pid] = Use(role, int(peak) / 1024, seconds)
    return found


def _descends(pid: int, simulation: int, stats: Mapping[int, Sequence[str]]) -> bool:
    parent = pid
    while parent in stats and parent != simulation:
        parent = int(stats[parent][1])
    return parent == simulation


def _role(pid: int) -> str:
    """A server's or worker's name, as in that of the file of its output: NUMBER-NAME.out; else it forks or watches."""
    return Path(f"/proc/{pid}/fd/1").readlink().stem.partition("-")[2] or "forking"


@click.command()
@click.option("--quick", is_flag=True, help="Few subjects, for CI.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, quick: bool, json_file: Path | None) -> None:
    """Print the figures and, if asked, write them as JSON."""
    subjects, k = (5_000, 100) if quick else (1_000_000, 1_000)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.parquet"
        write_table(table, subjects=subjects)
        options = ["--mechanism", "rmgm", "--k", str(k), "--epsilon", "10"]
        result = {"subjects": subjects, "k": k, **run(table, Path(folder) / "out", *options)}
    print(f"{subjects} subjects, k = {k}")
    show(result)
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
