"""How long one waits for the start of each command, for an agent, and for a release after the last approval.

Every figure is of real processes on real sockets. Commands have the least wall and processor seconds of some runs. A
release, of real agents at one coordinator, takes from the time when the last approval can be seen to the publication.
You can measure another installation beside this one in the same run: before=OTHER/.venv/bin/commingle
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from benchmarks.consortium import MECHANISMS, Commingle, Consortium, timed
from benchmarks.harness import Asked, Experiment, Report

_COLUMNS = 4  # of each party
MEMBERS = {name: tuple(f"{name}_{i}" for i in range(_COLUMNS)) for name in ("ward", "laboratory", "registration")}
_FIRST = next(iter(MEMBERS))


def least(work: Callable[[], object], runs: int) -> str:
    """The least wall and processor time of what runs in child processes that have ended."""
    found = [timed(work) for _ in range(runs)]
    return f"{min(w for w, _ in found):.2f} s ({min(c for _, c in found):.2f} s CPU)"


def prepared(commingle: Commingle, root: Path, rows: int) -> Consortium:
    consortium = Consortium(commingle, root, MEMBERS)
    consortium.prepare()
    for number, (name, columns) in enumerate(MEMBERS.items()):
        table = np.column_stack([np.arange(rows), np.random.default_rng(number).uniform(-1, 1, (rows, _COLUMNS))])
        shape, header = ["%d", *["%.6f"] * _COLUMNS], ",".join(["id", *columns])
        np.savetxt(root / f"{name}.csv", table, delimiter=",", fmt=shape, header=header, comments="")
        consortium.register(name, root / f"{name}.csv")
    return consortium


def once(commingle: Commingle, *words: str | Path) -> None:
    with commingle.reached(*words):
        pass


def of_releases(consortium: Consortium, *, rows: int, runs: int) -> dict[str, str]:
    """An agent's start, last approval to publication for each mechanism, and verify and fit of a release."""
    found, run, home = {}, consortium.commingle.run, consortium.home(_FIRST)
    with consortium.coordinator() as (_, url):
        start = partial(once, consortium.commingle, "party", "serve", *home)
        found["party serve, until it listens"] = least(start, runs)
        with consortium.agents(), consortium.asked(url) as http:
            for mechanism in MECHANISMS:
                asked: dict[str, Any] = {"mechanism": mechanism, "n": rows, "epsilon": 10}
                made = [consortium.release(http, **asked) for _ in range(min(runs, 3))]
                seconds = " / ".join(f"{s:.2f}" for s in sorted(s for _, s in made))
                found[f"{mechanism}, {rows:,} rows: last approval to publication"] = f"{seconds} s"
        target, out = f"{_FIRST}_0", consortium.root / "published"
        run("fit", url, "--release", made[-1][0], "--target", target, "--save", out)
    found["verify, a small release"] = least(lambda: run("verify", out), runs)
    found["fit, a small release"] = least(lambda: run("fit", out, "--target", target), runs)
    return found


def of_installation(commingle: Commingle, *, runs: int, rows: int) -> dict[str, str]:
    found = {
        f"commingle {group} --help": least(partial(commingle.run, *group.split(), "--help"), runs)
        for group in ("", "simulate", "plan", "fit", "verify", "members", "coordinator", "party", "learner")
    }
    with TemporaryDirectory() as root:
        return found | of_releases(prepared(commingle, Path(root), rows), rows=rows, runs=runs)


def measure(asked: Asked) -> Report:
    others = [given.rpartition("=") for given in asked.given["others"]]
    installed = [*(Commingle(label or "other", Path(path)) for label, _, path in others), Commingle()]
    rows, runs = 1_000 if asked.quick else asked.given["rows"], asked.times(1, 5)
    return {"installed": {each.label: of_installation(each, runs=runs, rows=rows) for each in installed}}


OPTIONS = (
    click.Argument(["others"], metavar="[LABEL=COMMAND]...", nargs=-1),
    click.Option(["--rows"], type=int, default=48_000, show_default=True),
)
EXPERIMENT = Experiment("latency", __doc__, measure, options=OPTIONS)

if __name__ == "__main__":
    EXPERIMENT.command()
