"""A whole simulated consortium on a million subjects: seconds per stage and the peak memory of every process.

python -m benchmarks.million [--quick] [--json FILE]

Three parties with ten attributes between them, rmgm with k = 1000. Peak memory is the kernel's own figure (VmHWM) for
each `commingle` process while it runs.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_MAIN = "from shared.runtime.cli import main; main()"
_POLL_SECONDS = 0.1


def write_table(path: Path, *, subjects: int) -> None:
    """Nine features and a target that is linear in them with R^2 about 0.5."""
    draw = np.random.default_rng(0)
    columns = {f"x{i}": draw.uniform(0, 1, subjects) for i in range(9)}
    signal = sum(column * weight for column, weight in zip(columns.values(), np.linspace(-1, 1, 9), strict=True))
    columns["y"] = signal + draw.normal(0, np.std(signal), subjects)
    pq.write_table(pa.table(columns), path)


def run(table: Path, out: Path, *, k: int) -> dict[str, Any]:
    """Simulate, watching every process' memory."""
    options = ["--table", table, "--target", "y", "--parties", "3", "--mechanism", "rmgm", "--k", k, "--epsilon", "10"]
    command = [sys.executable, "-c", _MAIN, "simulate", *map(str, options), "--out", str(out)]
    peaks: dict[str, float] = {}
    start = time.perf_counter()
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as simulation:
        while simulation.poll() is None:
            for role, megabytes in _peaks():
                peaks[role] = max(peaks.get(role, 0.0), megabytes)
            time.sleep(_POLL_SECONDS)
    if simulation.returncode:
        raise SystemExit(f"the simulation ended with code {simulation.returncode}")
    report = json.loads((out / "report.json").read_text())
    return {"wall_seconds": time.perf_counter() - start, "seconds": report["seconds"], "peak_megabytes": peaks}


def _peaks() -> list[tuple[str, float]]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().decode(errors="replace")
            status = (process / "status").read_text()
        except OSError:
            continue
        role = next((r for r in ("party", "coordinator", "learner") if f'"{r}", "serve"' in arguments), None)
        high = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")), None)
        if role is not None and high is not None:
            found.append((role, int(high) / 1024))
    return found


@click.command()
@click.option("--quick", is_flag=True, help="Few subjects, for CI.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, quick: bool, json_file: Path | None) -> None:
    """Print the figures and, if asked, write them as JSON."""
    subjects, k = (5_000, 100) if quick else (1_000_000, 1_000)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.parquet"
        write_table(table, subjects=subjects)
        result = {"subjects": subjects, "k": k, **run(table, Path(folder) / "out", k=k)}
    print(f"n = {subjects}, k = {k}: {result['wall_seconds']:.1f} s in all")
    for stage, seconds in result["seconds"].items():
        print(f"  {stage:<24}{seconds:>8.1f} s")
    for role, megabytes in result["peak_megabytes"].items():
        print(f"  peak memory of {role:<12}{megabytes:>8.0f} MB")
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
