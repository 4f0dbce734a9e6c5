"""How many faults a consortium survives: many rounds in virtual time, every promise checked after each.

python -m tests.tools.faults [--rounds N] [--seed S] [--json FILE]

Real agents over real ledgers and a real coordinator run under faults drawn from a seed (tests/faults/world.py says
which). A promise that does not hold ends the run with the seed that shows it.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import structlog

from tests.faults.simulation import simulate
from tests.faults.world import Outcome

_ROUNDS_IN_ONE_CONSORTIUM = 15
_MEMORY = Path("/dev/shm")  # noqa: S108 - ledgers are synced at every commit, and this is not about disks


def run(rounds: int, *, seed: int) -> Outcome:
    """That many rounds, fifteen to a consortium."""
    total = Outcome()
    for start in range(0, rounds, _ROUNDS_IN_ONE_CONSORTIUM):
        root = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
        number = seed + start // _ROUNDS_IN_ONE_CONSORTIUM
        try:
            total.add(simulate(number, rounds=min(_ROUNDS_IN_ONE_CONSORTIUM, rounds - start), root=root))
        except BaseException as error:
            error.add_note(f"in the consortium of seed {number}")
            raise
        finally:
            shutil.rmtree(root)
    return total


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark, print its table and, where asked, write the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.faults", description="Rounds under random faults.")
    parser.add_argument("--rounds", type=int, default=300, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the first consortium; the others count up")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    began = time.perf_counter()
    outcome = run(options.rounds, seed=options.seed)
    seconds = time.perf_counter() - began
    for title, counts in (
        (f"{outcome.faults.total()} faults survived", outcome.faults),
        ("of which kills at these fault points", outcome.killed_at),
        (f"{outcome.states.total()} rounds recorded, by final state", outcome.states),
        ("work done meanwhile", outcome.work),
    ):
        _print(title, counts)
    print(f"{seconds:.0f} s; nothing was under-counted, sent twice differently, left open or mended by hand")
    if options.json:
        report = {
            "benchmark": "faults",
            "cpus": os.cpu_count(),
            "seed": options.seed,
            "rounds": options.rounds,
            "seconds": round(seconds, 1),
            "faults_survived": outcome.faults.total(),
            "faults": outcome.faults,
            "killed_at": outcome.killed_at,
            "states": {str(state): count for state, count in outcome.states.items()},
            "work": outcome.work,
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _print(title: str, counts: Counter[str]) -> None:
    print(title)
    for kind, count in counts.most_common():
        print(f"{count:>9}  {kind}")


if __name__ == "__main__":
    main()
