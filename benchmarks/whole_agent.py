"""A real agent's memory by the number of its rows: idle, while it registers its table, and during a release.

Processes are those of an installation: a coordinator, and one agent, or two for `moments`, with bounds trusted. Each
table is a Parquet file, written batch by batch, with ten columns of doubles (five if there are two agents) and an
identifier for each row, in no order. Peak memory is the kernel's (VmHWM, reset between phases), of the agent that needs
most. `anonymous` is the most memory without a file behind it (RssAnon, sampled 20 times a second); it leaves out pages
of libraries and of files that are read. CPU seconds are one agent's, from registration to publication; traffic is what
the first agent sends.
"""

import subprocess
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.consortium import Commingle, Consortium, cpu_seconds
from benchmarks.harness import Asked, Experiment, Report

COLUMNS = 10
K = 10_000
_BATCH = 1 << 17
_LOOK_SECONDS = 0.05
Work = Literal["sparse", "dense", "moments"]
WORKS: dict[Work, dict[str, Any]] = {
    "sparse": {"mechanism": "rmgm", "k": K, "projection": "sparse"},
    "dense": {"mechanism": "rmgm", "k": K},
    "moments": {"mechanism": "moments", "bounds": "trusted"},
}


@dataclass
class Watched:
    """A running agent, with the most anonymous memory seen, and the most bytes that it keeps to send in its release."""

    home: Path
    process: "subprocess.Popen[str]"
    anonymous: float = 0.0
    sent: int = 0
    over: Event = field(default_factory=Event)
    release: str = "none yet"

    def watch(self) -> None:
        while not self.over.wait(_LOOK_SECONDS):
            self.anonymous = max(self.anonymous, self._status("RssAnon:"))
            with suppress(OSError):  # a file that is deleted meanwhile
                kept = [p for p in self.home.rglob(f"{self.release}/*") if p.name in {"columns", "reply"} or p.suffix]
                self.sent = max(self.sent, sum(path.stat().st_size for path in kept if path.suffix != ".key"))

    def peak(self) -> float:
        """The most megabytes since the last call."""
        found = self._status("VmHWM:")
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")  # resets the peak: proc(5)
        return found

    def _status(self, name: str) -> float:
        return int(Path(f"/proc/{self.process.pid}/status").read_text().partition(name)[2].split()[0]) / 1024


def write_table(path: Path, n: int, columns: tuple[str, ...]) -> None:
    """Doubles in [-1, 1] and n identifiers in an order without meaning, never held together."""
    draw, step = np.random.default_rng(0), 1_000_003  # a prime, which divides no n here: each place is met once
    fields: list[pa.Field[Any]] = [pa.field("id", pa.string())]
    schema = pa.schema(fields + [pa.field(name, pa.float64()) for name in columns])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n, _BATCH):
            places = np.arange(start, min(start + _BATCH, n), dtype=np.int64) * step % n
            ids = pa.array([f"p{place:09}" for place in places.tolist()])
            writer.write_table(pa.table([ids, *draw.uniform(-1, 1, (len(columns), len(places)))], schema=schema))


def of_work(work: Work, n: int) -> dict[str, Any]:
    names = ("ward", "laboratory")[: 2 if work == "moments" else 1]
    members = {name: tuple(f"{name}_{i}" for i in range(COLUMNS // len(names))) for name in names}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        consortium = Consortium(Commingle(), Path(folder), members, by_hand=True)
        consortium.prepare()
        _, url = stack.enter_context(consortium.coordinator())
        running, http = stack.enter_context(consortium.agents()), stack.enter_context(consortium.asked(url))
        agents = [Watched(consortium.root / name, process) for name, process in running.items()]
        for agent in agents:
            Thread(target=agent.watch, daemon=True).start()
            stack.callback(agent.over.set)
        idle = max(agent.peak() for agent in agents)
        for name, columns in members.items():
            write_table(consortium.root / f"{name}.parquet", n, columns)
            consortium.register(name, consortium.root / f"{name}.parquet")
        registration = max(agent.peak() for agent in agents)

        def proposed(release: str) -> None:
            agents[0].release = release
            consortium.approve(release)

        consortium.release(http, proposed, n=n, epsilon=10, lifetime_hours=24, **WORKS[work])
        return {
            "work": work,
            "n": n,
            "idle_megabytes": idle,
            "registration_megabytes": registration,
            "release_megabytes": max(agent.peak() for agent in agents),
            "anonymous_megabytes": max(agent.anonymous for agent in agents),
            "cpu_seconds": max(cpu_seconds(agent.process.pid) for agent in agents),
            "sent_megabytes": agents[0].sent / 1e6,
        }


def measure(asked: Asked) -> Report:
    sizes, works = (12_000,) if asked.quick else asked.given["sizes"], asked.given["works"]
    return {"k": K, "results": [of_work(work, n) for work in works for n in sizes]}


OPTIONS = (
    click.Option(["--n", "sizes"], type=int, multiple=True, default=(100_000, 1_000_000), show_default=True),
    click.Option(["--work", "works"], type=click.Choice([*WORKS]), multiple=True, default=tuple(WORKS)),
)
EXPERIMENT = Experiment("whole_agent", __doc__, measure, options=OPTIONS)

if __name__ == "__main__":
    EXPERIMENT.command()
