"""From a proposal to a fit over keyed subjects, beside private set intersections that only join the same parties.

python -m benchmarks.keyed_join [--python E/bin/python] [--subjects N] [--overlap SHARE] [--quick] [--json FILE]

E is an environment of its own, as the peer wants an older protobuf: python3.11 -m venv E && E/bin/pip install
openmined-psi. Without it only ours is timed.

Ours: `commingle simulate`, processes that talk HTTP; N subjects at each of three parties, the share of which any other
one holds too. Seconds run from the proposal until the publication is fetched and verified, and until fits by all
estimators are back; CPU seconds are of all servers in that time. The peer: the first party joins with the second, and
who is left with the third, in one process, without a network; afterwards they know whom they share. It computes no fit.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from benchmarks.million import write_table
from benchmarks.reporting import heading, row, write_json

_TRAINING_SHARE = 0.8
_JOINS = """
import json, sys, time
import private_set_intersection.python as psi
n, share = int(sys.argv[1]), float(sys.argv[2])
first = [f"p{i:08}" for i in range(n)]
others = [[*(i for i in first if (int(i[1:]) * p) % 100 < 100 * share), *(f"{p}-{i:08}" for i in range(n))][:n]
          for p in (7, 11)]
def joined(own, other):
    client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
    setup = server.CreateSetupMessage(1e-9, len(own), other, psi.DataStructure.RAW)
    request = client.CreateRequest(own)
    response = server.ProcessRequest(request)
    sent = sum(len(message.SerializeToString()) for message in (setup, request, response))
    return [own[i] for i in client.GetIntersection(setup, response)], sent
wall, cpu = time.perf_counter(), time.process_time()
left, total = first, 0
for other in others:
    left, sent = joined(left, other)
    total += sent
right = set(left) == set(first) & set(others[0]) & set(others[1])
print(json.dumps({"right": right, "joined": len(left), "bytes": total,
                  "seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}))
"""
_TIMEOUT_SECONDS = 1800


def joins(python: Path, subjects: int, overlap: float) -> dict[str, Any]:
    """The peer, timed by itself; SystemExit where it fails or does not find who is shared."""
    command = [str(python), "-c", _JOINS, str(subjects), str(overlap)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    if done.returncode:
        raise SystemExit(f"openmined-psi failed: {done.stderr[-500:]}")
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if not report.pop("right"):
        raise SystemExit("openmined-psi does not find who is shared")
    return report


def ours(mechanism: str, subjects: int, overlap: float) -> dict[str, Any]:
    """One simulated release and its fits."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.parquet"
        write_table(table, subjects=round(subjects / overlap / _TRAINING_SHARE))
        asked = ("--table", table, "--target", "y", "--parties", "3", "--mechanism", mechanism, "--overlap", overlap)
        command = [sys.executable, "-m", "commingle", "simulate", *map(str, asked), "--json", "--out", folder]
        used, before = dict[int, float](), None
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as simulation:
            for line in simulation.stderr or ():  # a stage each, as JSON
                used |= _cpu_of_children(simulation.pid)
                if before is None and json.loads(line).get("stage") == "release":
                    before = sum(used.values())
                if json.loads(line).get("stage") == "picture":
                    break
            printed, _ = simulation.communicate()
    if simulation.returncode or before is None:
        raise SystemExit(f"the simulation ended with code {simulation.returncode}")
    seconds = json.loads(printed)["seconds"]
    return {
        "published": seconds["release"],
        "fitted": seconds["release"] + seconds["fit"],
        "cpu": sum(used.values()) - before,
    }


def _cpu_of_children(simulation: int) -> dict[int, float]:
    """User and system seconds so far of all processes that descend from this one and run, by id."""
    parents, used = dict[int, int](), dict[int, float]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        used[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    family = {simulation}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return {child: used[child] for child in family - {simulation}}


@click.command()
@click.option("--python", type=click.Path(exists=True, path_type=Path), help="Of the peer's environment.")
@click.option("--subjects", type=int, default=5_000, show_default=True, help="Of each party.")
@click.option("--overlap", type=click.FloatRange(0, 1, min_open=True), default=0.8, show_default=True)
@click.option("--quick", is_flag=True, help="Few subjects, for CI.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, python: Path | None, subjects: int, overlap: float, quick: bool, json_file: Path | None) -> None:
    """Print the table as Markdown."""
    subjects = 500 if quick else subjects
    lines = heading("", "seconds to publication", "to a fit", "CPU seconds")
    report: dict[str, Any] = {"benchmark": "keyed_join", "subjects": subjects, "overlap": overlap}
    for mechanism in ("rmgm", "moments"):
        report[mechanism] = found = ours(mechanism, subjects, overlap)
        lines.append(row(mechanism, *(f"{found[name]:.1f}" for name in ("published", "fitted", "cpu"))))
    if python is not None:
        report["openmined-psi"] = found = joins(python, subjects, overlap)
        lines.append(row("openmined-psi, the join alone", f"{found['seconds']:.1f}", "-", f"{found['cpu']:.1f}"))
    print("\n".join(lines))
    write_json(report, json_file)


if __name__ == "__main__":
    main()
