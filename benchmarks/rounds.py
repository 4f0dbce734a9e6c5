"""Releases one after the other in a running consortium: how many a minute, requests and processor seconds of each.

python -m benchmarks.rounds [--members 3] [--rows 48000] [--mechanism rmgm] [--releases 30] [--json FILE]

Real processes on loopback, as `commingle simulate` starts them: a coordinator over SQLite, and an agent with a column
for every member. A release is proposed as soon as the one before is published; the first two are not counted. Requests
are those of agents, as the coordinator counts them. Processor seconds are those of the coordinator and of all agents.
"""

import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import httpx
import numpy as np
import pyarrow as pa
from rich.console import Console

from benchmarks.reporting import heading, row, write_json
from commingle.services.simulation.consortium import Context, Folders, start, write_party_files
from commingle.services.simulation.dataset import PartyShare, StudyTable
from commingle.services.simulation.processes import Processes
from commingle.services.simulation.progress import Stages
from commingle.services.simulation.releases import DATASET, Allowance
from commingle.services.tables.reading import Table
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import MechanismName
from commingle.shared.documents.study import Member, Study, StudyParty, build_spec
from commingle.shared.runtime.files import load_signing_key
from commingle.shared.runtime.request_signing import RequestSigner
from commingle.shared.runtime.settings import system_clock

_TICKS = os.sysconf("SC_CLK_TCK")
_UNCOUNTED = 2
_PATIENCE_SECONDS = 600.0
_COUNTED = re.compile(
    r'^commingle_coordinator_requests_total\{method="(\w+)",route="([^"]+)",status="\d+"\} (\S+)', re.MULTILINE
)
_OVER = frozenset({"published", "rejected", "expired", "aborted"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What is measured."""

    members: int
    rows: int
    mechanism: MechanismName

    def table(self) -> StudyTable:
        """Made-up rows, a column for each member."""
        draw, names = np.random.default_rng(self.members), [f"member-{number:02}" for number in range(self.members)]
        shares = [PartyShare(name, (NumericAttribute(name=f"{name}-x", lower=0, upper=1),)) for name in names]
        columns = {share.attributes[0].name: pa.array(draw.uniform(0, 1, self.rows)) for share in shares}
        subjects = np.array([f"s{number}" for number in range(self.rows)])
        return StudyTable(Table(subjects, columns), tuple(shares), shares[0].attributes[0].name)

    def study(self, number: int, table: StudyTable) -> Study:
        """One release of it."""
        parties = [StudyParty(name=share.name, dataset=DATASET, attributes=share.attributes) for share in table.parties]
        return Study(
            study=f"release {number}",
            mechanism=self.mechanism,
            subjects="listed",
            k=1000 if self.mechanism == "rmgm" else None,
            epsilon=1.0,
            delta=1e-5,
            lifetime_hours=1,
            n=self.rows,
            parties=tuple(parties),
        )


@dataclass
class Running:
    """A consortium that runs, and what this program asked of it itself."""

    asked: Asked
    table: StudyTable
    http: httpx.Client
    key: SigningKey
    processes: dict[str, int]

    def release(self, number: int) -> None:
        """From proposal to publication."""
        page = self.http.get("/v1/parties", params={"limit": 200}).raise_for_status().json()
        members = {item["name"]: Member(item["signing_key"], item["sealing_key"]) for item in page["items"]}
        spec = build_spec(
            self.asked.study(number, self.table),
            members=members,
            proposer=self.key.fingerprint,
            seed=secrets.token_bytes(32),
            now=system_clock(),
        )
        body = seal(spec, kind="spec", key=self.key).to_json()
        headers = {"Content-Type": "application/json"}
        answer = self.http.post("/v1/releases", content=body, headers=headers).raise_for_status().json()
        with self.http.stream("GET", f"/v1/releases/{answer['id']}/events", timeout=_PATIENCE_SECONDS) as events:
            *_, last = (json.loads(line[6:]) for line in events.iter_lines() if line.startswith("data: "))
        if last["state"] != "published":
            raise SystemExit(f"the release ended as {last['state']}")

    def requests(self) -> dict[str, int]:
        """Answered so far, by method and route, without those above."""
        found: dict[str, int] = {}
        for method, route, count in _COUNTED.findall(self.http.get("/metrics").raise_for_status().text):
            found[f"{method} {route}"] = found.get(f"{method} {route}", 0) + int(float(count))
        own = {"GET /v1/parties", "POST /v1/releases", "GET /v1/releases/{release}/events", "GET /metrics"}
        return {route: count for route, count in found.items() if route not in own}

    def cpu(self) -> dict[str, float]:
        """Processor seconds so far, of the coordinator and of all agents."""
        used = {name: cpu_seconds(pid) for name, pid in self.processes.items()}
        coordinator = used.pop("coordinator")
        return {"coordinator": coordinator, "agents": sum(used.values())}


def cpu_seconds(pid: int) -> float:
    """Of a process and of its children that ended, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / _TICKS


@contextmanager
def running(asked: Asked) -> Iterator[Running]:
    """Start it."""
    allowance = Allowance(1e4, 2.0, 1e-5, 1e4, 10**9, (asked.mechanism,), listed=True)
    table = asked.table()
    with tempfile.TemporaryDirectory() as root, Processes(Path(root) / "logs") as processes:
        folders = Folders(Path(root))
        write_party_files(table, table.table, folders, seed=1)
        consortium = start(table, allowance, Context(folders, processes, Stages(Silent())))
        (path,) = folders.coordinator.rglob("signing.key")
        key = load_signing_key(path)
        pids = {name: pid for name, pid in processes.pids().items() if name not in {"commands", "learner"}}
        auth, transport = RequestSigner(key, audience=key.fingerprint), httpx.HTTPTransport()
        with httpx.Client(base_url=consortium.coordinator, auth=auth, transport=transport, timeout=60) as http:
            yield Running(asked, table, http, key, pids)


class Silent:
    """Says nothing of how far the preparations are."""

    def begin(self, name: str, text: str) -> None: ...

    def step(self, text: str, done: int, total: int) -> None: ...

    def end(self, name: str, seconds: float) -> None: ...

    def notice(self, text: str) -> None: ...

    def show(self, name: str, text: Callable[[Console], None]) -> None: ...

    def close(self) -> None: ...


def measure(asked: Asked, *, releases: int, uncounted: int = _UNCOUNTED) -> dict[str, Any]:
    """What a release takes, on average of those after the first, which are not counted."""
    with running(asked) as consortium:
        for number in range(uncounted):
            consortium.release(number)
        requests, cpu, began = consortium.requests(), consortium.cpu(), time.perf_counter()
        for number in range(releases):
            consortium.release(uncounted + number)
        seconds = time.perf_counter() - began
        after, used = consortium.requests(), consortium.cpu()
    routes = {route: (after[route] - requests.get(route, 0)) / releases for route in after}
    return {
        "members": asked.members,
        "rows": asked.rows,
        "mechanism": asked.mechanism,
        "releases_per_minute": 60 * releases / seconds,
        "requests": sum(routes.values()),
        "routes": {route: count for route, count in routes.items() if count},
        "cpu_seconds": {name: (used[name] - cpu[name]) / releases for name in used},
    }


@click.command()
@click.option("--members", default=3, show_default=True)
@click.option("--rows", default=48_000, show_default=True)
@click.option("--mechanism", type=click.Choice(["rmgm", "dgm", "moments"]), default="rmgm", show_default=True)
@click.option("--releases", default=30, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, members: int, rows: int, mechanism: MechanismName, releases: int, json_file: Path | None) -> None:
    """Print a row of docs/results.md, and requests by route."""
    found = measure(Asked(members, rows, mechanism), releases=releases)
    cpu = found["cpu_seconds"]
    names = (
        "members x rows",
        "mechanism",
        "releases a minute",
        "requests each",
        "a member",
        "CPU s: coordinator",
        "agents",
    )
    print(*heading(*names), sep="\n")
    cells = (f"{found['releases_per_minute']:.0f}", f"{found['requests']:.0f}", f"{found['requests'] / members:.1f}")
    print(row(f"{members} x {rows:,}", mechanism, *cells, f"{cpu['coordinator']:.2f}", f"{cpu['agents']:.2f}"))
    for route, count in sorted(found["routes"].items(), key=lambda pair: -pair[1]):
        print(f"  {count:8.1f}  {route}")
    write_json(found, json_file)


if __name__ == "__main__":
    main()
