"""A real agent's memory by the number of its rows: idle, while its table is registered, and during a release.

python -m benchmarks.whole_agent [--n N] [--work sparse|dense|moments] [--json FILE]

Processes as an installation runs them: a coordinator, and one agent, or two for `moments`, with bounds trusted. Each
table is a Parquet file with ten columns of doubles (five where there are two agents) and identifiers in no order, as
many as rows, written batch by batch. Peak memory is the kernel's (VmHWM, reset between phases) of the agent that needs
most, and `anonymous` the most that was seen of what no file stands behind (RssAnon, looked at twenty times a second):
pages of libraries and of files that are read are in the first and not in the second. CPU seconds are one agent's, from
registration to publication; traffic is what it sent.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal

import click
import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.reporting import heading, row, write_json
from benchmarks.rounds import cpu_seconds
from commingle.shared.runtime.files import create_secret

COLUMNS = 10
K = 10_000
_BATCH = 1 << 17
_LOOK_SECONDS = 0.05
_PATIENCE_SECONDS = 7200.0
_OVER = frozenset({"published", "rejected", "expired", "aborted"})
_COMMAND = (sys.executable, "-m", "commingle")
Work = Literal["sparse", "dense", "moments"]
WORKS: tuple[Work, ...] = ("sparse", "dense", "moments")


@dataclass(frozen=True, slots=True)
class Measured:
    """One agent; megabytes at most."""

    work: Work
    n: int
    idle_megabytes: float
    registration_megabytes: float
    release_megabytes: float
    anonymous_megabytes: float
    cpu_seconds: float
    sent_megabytes: float


@dataclass
class Watched:
    """A running agent, and the most anonymous memory that was seen of it."""

    home: Path
    process: "subprocess.Popen[str]"
    anonymous: float = 0.0
    over: Event = field(default_factory=Event)

    def watch(self) -> None:
        """Until it is over."""
        while not self.over.wait(_LOOK_SECONDS):
            self.anonymous = max(self.anonymous, self._status("RssAnon:"))

    def peak(self) -> float:
        """Megabytes at most since this was asked last."""
        found = self._status("VmHWM:")
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")  # resets the peak: proc(5)
        return found

    def _status(self, name: str) -> float:
        return int(Path(f"/proc/{self.process.pid}/status").read_text().partition(name)[2].split()[0]) / 1024


def write_table(path: Path, n: int, columns: list[str]) -> None:
    """Doubles in [-1, 1] and n identifiers in an order without meaning, never held together."""
    draw, step = np.random.default_rng(0), 1_000_003  # a prime, which divides no n here: each place is met once
    fields = [pa.field("id", pa.string())]
    schema = pa.schema(fields + [pa.field(name, pa.float64()) for name in columns])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n, _BATCH):
            places = np.arange(start, min(start + _BATCH, n), dtype=np.int64) * step % n
            ids = pa.array([f"p{place:09}" for place in places.tolist()])
            writer.write_table(pa.table([ids, *draw.uniform(-1, 1, (len(columns), len(places)))], schema=schema))


def run(*words: str | Path) -> Any:  # noqa: ANN401 - JSON
    """What a command prints with --json."""
    return json.loads(subprocess.run([*_COMMAND, *words, "--json"], check=True, capture_output=True).stdout)


@contextmanager
def serving(*words: str | Path) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """A server, and its URL or socket."""
    with subprocess.Popen([*_COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None  # noqa: S101 - a pipe was asked for
            said = json.loads(process.stdout.readline())
            yield process, said.get("url", said.get("socket"))
        finally:
            process.terminate()


def measure(work: Work, n: int) -> Measured:
    """One release of one consortium."""
    names = ("ward", "laboratory")[: 2 if work == "moments" else 1]
    schemas = {
        name: [
            {"kind": "numeric", "name": f"{name}_{i}", "lower": -1, "upper": 1} for i in range(COLUMNS // len(names))
        ]
        for name in names
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        root = Path(folder)
        hub = root / "hub"
        run("coordinator", "init", "--home", hub, "--name", "hub")
        _, url = stack.enter_context(serving("coordinator", "serve", "--home", hub, "--port", "0"))
        _prepare(root, names, url)
        agents = []
        for name in names:
            process, _ = stack.enter_context(serving("party", "serve", "--home", root / name))
            agents.append(Watched(root / name, process))
            Thread(target=agents[-1].watch, daemon=True).start()
            stack.callback(agents[-1].over.set)
        idle = max(agent.peak() for agent in agents)
        for name, schema in schemas.items():
            path = root / f"{name}.parquet"
            write_table(path, n, [str(column["name"]) for column in schema])
            (root / f"{name}.json").write_text(json.dumps(schema))
            told = ("--source", path, "--subject-id", "id", "--schema", root / f"{name}.json", "--listed")
            run("party", "datasets", "add", "main", "--home", root / name, *told)
        registration = max(agent.peak() for agent in agents)
        sent = _release(root, url, work, n, schemas)
        return Measured(
            work,
            n,
            idle,
            registration,
            max(agent.peak() for agent in agents),
            max(agent.anonymous for agent in agents),
            max(cpu_seconds(agent.process.pid) for agent in agents),
            sent / 1e6,
        )


def _prepare(root: Path, names: tuple[str, ...], url: str) -> None:
    """Homes, members and pins."""
    policy = {"max_epsilon": 100.0, "max_delta": 1e-5, "mechanisms": ["rmgm", "moments"], "trusted_bounds": True}
    (root / "policy.json").write_text(json.dumps(policy))
    create_secret(root / "linkage.key")
    options = ("--policy", root / "policy.json", "--epsilon-cap", "1000", "--linkage-key", root / "linkage.key")
    keys = {
        name: run("party", "init", "--home", root / name, "--name", name, *options)["fingerprint"] for name in names
    }
    for name in names:
        invite = run("coordinator", "invite", "--home", root / "hub", "--party", name)["invite"]
        run("party", "enrol", "--home", root / name, "--coordinator", url, "--invite", invite)
        if others := [f"{other}={key}" for other, key in keys.items() if other != name]:
            run("party", "pin", "--home", root / name, *others)


def _release(root: Path, url: str, work: Work, n: int, schemas: dict[str, list[dict[str, Any]]]) -> int:
    """From proposal to publication; bytes that the first party has sent."""
    study = {"study": work, "subjects": "listed", "epsilon": 10, "delta": 1e-5, "n": n, "lifetime_hours": 24}
    kind = {"mechanism": "moments", "bounds": "trusted"} if work == "moments" else {"mechanism": "rmgm", "k": K}
    sketch = {"projection": "sparse"} if work == "sparse" else {}
    parties = [{"name": name, "dataset": "main", "attributes": schema} for name, schema in schemas.items()]
    (root / "study.json").write_text(json.dumps({**study, **kind, **sketch, "parties": parties}))
    release = run("coordinator", "propose", root / "study.json", "--home", root / "hub", "--coordinator", url)["id"]
    for name in schemas:
        _approve(root / name, release)
    until, state, sent = time.monotonic() + _PATIENCE_SECONDS, "proposed", 0
    own = root / next(iter(schemas))
    with httpx.Client(base_url=url, timeout=60) as http:
        while state not in _OVER and time.monotonic() < until:
            time.sleep(0.2)
            state = http.get(f"/v1/releases/{release}").raise_for_status().json()["state"]
            kept = [path for path in own.rglob(f"{release}/*") if path.name in {"columns", "reply"} or path.suffix]
            sent = max(sent, sum(path.stat().st_size for path in kept if path.suffix != ".key"))
    if state != "published":
        raise SystemExit(f"the release ended as {state}")
    return sent


def _approve(home: Path, release: str) -> None:
    """Once the agent has seen it."""
    while release not in {item["id"] for item in run("party", "proposals", "--home", home)["items"]}:
        time.sleep(_LOOK_SECONDS)
    run("party", "approve", release, "--home", home, "--yes")


def markdown(results: list[Measured]) -> str:
    """One line for each."""
    lines = heading("agent", "rows", "idle MB", "registering MB", "release MB", "anonymous MB", "CPU s", "sent MB")
    for r in results:
        each = (r.idle_megabytes, r.registration_megabytes, r.release_megabytes, r.anonymous_megabytes)
        lines.append(
            row(r.work, f"{r.n:,}", *(f"{m:.0f}" for m in each), f"{r.cpu_seconds:.1f}", f"{r.sent_megabytes:.1f}")
        )
    return "\n".join(lines)


@click.command(help=__doc__)
@click.option("--n", "sizes", type=int, multiple=True, default=(100_000, 1_000_000), show_default=True)
@click.option("--work", "works", type=click.Choice(WORKS), multiple=True, default=WORKS)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, sizes: tuple[int, ...], works: tuple[Work, ...], json_file: Path | None) -> None:
    """Print the table, and write the figures where asked."""
    results = [measure(work, n) for work in works for n in sizes]
    click.echo(markdown(results))
    write_json({"benchmark": "whole agent", "k": K, "results": [asdict(r) for r in results]}, json_file)


if __name__ == "__main__":
    main()
