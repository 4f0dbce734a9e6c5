"""Fuzzing of everything that parses bytes from outside: nothing but a CommingleError may come out.

python -m tests.tools.fuzz [--seconds N] [--quick] [--seed N] [--target NAME] [--json FILE]

Mutational, without coverage feedback, from valid documents. Each target runs in a process of its own, so that the
crash of a native library is seen too. Inputs are numbered: the same seed, target and number give the same bytes, but
for `request`, whose nonce the operating system draws.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from commingle.shared.errors import CommingleError
from tests.tools.fuzz_mutations import Target, mutate
from tests.tools.fuzz_targets import targets

_GRACE_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Result:
    """One target.

    Attributes:
        accepted: inputs that were parsed in full; the others were refused with a CommingleError.
        faults: what else came out, one line for each place in the code, with the first input that led there.
        slowest_seconds: of one input.
    """

    target: str
    inputs: int
    accepted: int
    refused: int
    faults: tuple[str, ...]
    slowest_seconds: float
    peak_mib: int


def damaged(name: str, chosen: Target, *, seed: int, number: int) -> bytes:
    return mutate(Random(f"{seed}/{name}/{number}"), chosen.corpus)


def fuzz(name: str, *, seconds: float, seed: int, progress: Path) -> Result:
    """Run one target in this process; `progress` holds the number of the input under way."""
    chosen, faults = targets()[name], dict[str, str]()
    for document in chosen.corpus:
        chosen.run(document)  # what is not damaged is accepted
    inputs = accepted = refused = 0
    slowest, until = 0.0, time.perf_counter() + seconds
    with progress.open("wb", buffering=0) as file:
        while not inputs or time.perf_counter() < until:
            data = damaged(name, chosen, seed=seed, number=inputs)
            os.pwrite(file.fileno(), inputs.to_bytes(8, "big"), 0)
            begun = time.perf_counter()
            try:
                chosen.run(data)
                accepted += 1
            except CommingleError as error:
                refused += 1
                if not error.remedy:
                    faults.setdefault(f"no remedy: {error}", f"no remedy: {error}, input {inputs}")
            except Exception as error:  # noqa: BLE001 - finding these is the point
                where = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
                faults.setdefault(place, f"{place}, input {inputs}")
            slowest = max(slowest, time.perf_counter() - begun)
            inputs += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Result(name, inputs, accepted, refused, tuple(faults.values()), slowest, peak)


def apart(name: str, *, seconds: float, seed: int) -> Result:
    """The same in a process of its own, whose death or standstill is a fault too."""
    with tempfile.TemporaryDirectory() as folder:
        progress, report = Path(folder, "progress"), Path(folder, "report.json")
        command = [sys.executable, "-m", "tests.tools.fuzz", "--target", name, "--seconds", str(seconds)]
        command += ["--seed", str(seed), "--json", str(report), "--progress", str(progress)]
        try:
            ended = subprocess.run(command, timeout=seconds + _GRACE_SECONDS, stdout=subprocess.DEVNULL, check=False)
            how = f"the process ended with {ended.returncode}"
        except subprocess.TimeoutExpired:
            how = "the process stood still"
        if report.exists():
            [found] = json.loads(report.read_text())["results"]
            return Result(**{**found, "faults": tuple(found["faults"])})
        number = int.from_bytes(progress.read_bytes(), "big") if progress.exists() else 0
        return Result(name, number, 0, 0, (f"{how}, input {number}",), 0.0, 0)


def main(arguments: list[str] | None = None) -> None:
    """Fuzz, print the table, write the figures where asked, and leave with code 1 where there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.fuzz", description="Fuzzing of every parser.")
    parser.add_argument("--seconds", type=float, default=180, help="for all targets together")
    parser.add_argument("--quick", action="store_true", help="half a second each, to see that it runs")
    parser.add_argument("--seed", type=int, default=0, help="of the damage")
    parser.add_argument("--target", help="only this one")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--progress", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    names = [options.target] if options.target else list(targets())
    each = 0.5 if options.quick else options.seconds / len(names)
    if options.progress:
        results = [fuzz(options.target, seconds=each, seed=options.seed, progress=options.progress)]
    else:
        results = [apart(name, seconds=each, seed=options.seed) for name in names]
    print("target                  inputs  accepted   refused  slowest ms  peak MiB  faults")
    for r in results:
        print(
            f"{r.target:<20} {r.inputs:>9} {r.accepted:>9} {r.refused:>9} {r.slowest_seconds * 1e3:>11.1f} "
            f"{r.peak_mib:>9} {len(r.faults):>7}"
        )
        print("".join(f"    {fault}\n" for fault in r.faults), end="")
    if options.json:
        report = {"benchmark": "fuzz", "seed": options.seed, "results": [asdict(r) for r in results]}
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if not options.progress and any(r.faults for r in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
