"""What answers of "Adult" cost three members: from the last approval to a learner's synthetic rows, bounds proved.

Made-up rows with the attributes of that census table, as many as it has: nine with as many levels, six numbers that are
cut into four intervals, five attributes at each member, listed subjects, epsilon 1. Processes as an installation runs
them: a coordinator and three agents, then a learner who fetches, verifies and counts a table, and one who counts a
table, fits a model or draws as many synthetic rows of all attributes from the saved release. Megabytes are the kernel's
peak of the largest agent during the release (VmHWM), CPU seconds those of all agents and the coordinator from proposal
to publication. The machine is what it is: `unit` is the CPU seconds that CPython takes for ten million additions,
before and after.
"""

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.consortium import Commingle, Consortium, cpu_seconds, timed
from benchmarks.harness import Asked, Experiment, Report
from benchmarks.whole_agent import Watched

ROWS = 48_842
MEMBERS: dict[str, dict[str, int]] = {
    "census": {"age": 4, "sex": 2, "race": 5, "native_country": 42, "fnlwgt": 4},
    "school": {"education": 16, "education_num": 4, "marital_status": 7, "relationship": 6, "hours_per_week": 4},
    "tax": {"workclass": 9, "occupation": 15, "capital_gain": 4, "capital_loss": 4, "income": 2},
}
NUMBERS = ("age", "fnlwgt", "education_num", "hours_per_week", "capital_gain", "capital_loss")
TABLE, MODEL = ("education", "income"), "age,sex,race,education_num,hours_per_week,capital_gain"


def unit() -> float:
    start, total = time.process_time(), 0
    for i in range(10_000_000):
        total += i
    return time.process_time() - start


def schema(levels: dict[str, int], *, cut: bool) -> list[dict[str, Any]]:
    """Attributes of one member, as it registers its numbers or as a study cuts them."""
    found: list[dict[str, Any]] = []
    for name, size in levels.items():
        kind = "numeric" if name in NUMBERS else "binary" if size == 2 else "categorical"
        bounds = {"lower": 0, "upper": size} | ({"cuts": list(range(1, size))} if cut else {})
        named = {"levels": [f"l{i}" for i in range(size)]}
        found.append({"kind": kind, "name": name, **(bounds if kind == "numeric" else named)})
    return found


def write_table(path: Path, levels: dict[str, int], n: int, draw: np.random.Generator) -> None:
    """People in any order; the k-th level is half as frequent as the first at k = 3."""
    columns: dict[str, Any] = {"id": [f"p{i:06}" for i in draw.permutation(n).tolist()]}
    for name, size in levels.items():
        shares = 1 / (2 + np.arange(size))
        drawn = draw.choice(size, n, p=shares / shares.sum())
        columns[name] = drawn + 0.5 if name in NUMBERS else [f"l{i}" for i in drawn.tolist()]
    pq.write_table(pa.table(columns), path)


def _timed(work: Callable[[], object]) -> dict[str, float]:
    return dict(zip(("seconds", "cpu_seconds"), timed(work), strict=True))


def measure(asked: Asked) -> Report:
    n, before = 2_000 if asked.quick else ROWS, unit()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        consortium = Consortium(Commingle(), Path(folder), {m: tuple(a) for m, a in MEMBERS.items()}, by_hand=True)
        consortium.prepare()
        coordinator, url = stack.enter_context(consortium.coordinator())
        running, http = stack.enter_context(consortium.agents()), stack.enter_context(consortium.asked(url))
        for name, levels in MEMBERS.items():
            write_table(consortium.root / f"{name}.parquet", levels, n, np.random.default_rng([61, len(name)]))
            consortium.register(name, consortium.root / f"{name}.parquet", schema(levels, cut=False))
        agents = [Watched(consortium.root / name, process) for name, process in running.items()]
        processes = [coordinator.pid, *(process.pid for process in running.values())]
        for agent in agents:
            agent.peak()
        used = -sum(map(cpu_seconds, processes))
        parties = [{"name": m, "dataset": "main", "attributes": schema(a, cut=True)} for m, a in MEMBERS.items()]
        asked_for: dict[str, object] = {"n": n, "mechanism": "moments", "parties": parties}
        release, seconds = consortium.release(http, consortium.approve, **asked_for)
        used += sum(map(cpu_seconds, processes))
        megabytes = max(agent.peak() for agent in agents)
        run, out, rows = consortium.commingle.run, consortium.root / "published", consortium.root / "rows.csv"
        learner = {
            "fetch, verify, table": _timed(lambda: run("table", url, *TABLE, "--release", release, "--save", out)),
            "table": _timed(lambda: run("table", out, *TABLE)),
            "fit": _timed(lambda: run("fit", out, "--target", "income", "--features", MODEL, "--family", "binomial")),
            "synthetic rows": _timed(lambda: run("synthesize", out, "--rows", str(n), "--out", rows)),
        }
        help_alone = _timed(lambda: run("table", "--help"))
    return {
        "rows": n,
        "columns": sum(size - 1 for levels in MEMBERS.values() for size in levels.values()),
        "release": {"seconds": seconds, "cpu_seconds": used, "megabytes": megabytes},
        "learner": learner,
        "help": help_alone,
        "unit": [before, unit()],
        "load": os.getloadavg()[0],
    }


EXPERIMENT = Experiment("adult", __doc__, measure)

if __name__ == "__main__":
    EXPERIMENT.command()
