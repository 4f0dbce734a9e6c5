"""Releases one after the other in a running consortium: how many a minute, requests and processor seconds of each.

Real processes on loopback: a coordinator over SQLite, and an agent with a column for every member. A release is
proposed as soon as the one before is published; the first two are not counted. Requests are those of agents, as the
coordinator counts them. Processor seconds are those of the coordinator and of all agents.
"""

import re
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import httpx

from benchmarks.consortium import MECHANISMS, Commingle, Consortium, cpu_seconds
from benchmarks.harness import Asked, Experiment, Report
from benchmarks.whole_agent import write_table

_COUNTED = re.compile(
    r'^commingle_coordinator_requests_total\{method="(\w+)",route="([^"]+)",status="\d+"\} (\S+)', re.MULTILINE
)
_UNCOUNTED = 2
_OWN = {"GET /v1/parties", "POST /v1/releases", "GET /v1/releases/{release}/events", "GET /metrics"}


def requests(http: httpx.Client) -> Counter[str]:
    """Answered requests so far by method and route, without this program's own."""
    found = Counter[str]()
    for method, route, count in _COUNTED.findall(http.get("/metrics").raise_for_status().text):
        found[f"{method} {route}"] += int(float(count))
    return Counter({route: count for route, count in found.items() if route not in _OWN})


def of_consortium(members: int, rows: int, mechanism: str, *, releases: int) -> dict[str, Any]:
    k = 1000 if mechanism == "rmgm" else None
    facts: dict[str, Any] = {"mechanism": mechanism, "n": rows, "k": k, "lifetime_hours": 1}
    held = {f"member-{number:02}": (f"x{number}",) for number in range(members)}
    with TemporaryDirectory() as root:
        consortium = Consortium(Commingle(), Path(root), held)
        consortium.prepare()
        for name, columns in held.items():
            write_table(Path(root) / f"{name}.parquet", rows, columns)
            consortium.register(name, Path(root) / f"{name}.parquet")
        with consortium.coordinator() as (hub, url), consortium.agents() as agents, consortium.asked(url) as http:
            pids = {"coordinator": [hub.pid], "agents": [agent.pid for agent in agents.values()]}
            for _ in range(_UNCOUNTED):
                consortium.release(http, **facts)
            counted, began = requests(http), time.perf_counter()
            cpu = {name: sum(map(cpu_seconds, of)) for name, of in pids.items()}
            for _ in range(releases):
                consortium.release(http, **facts)
            seconds, routes = time.perf_counter() - began, requests(http)
            used = {name: (sum(map(cpu_seconds, of)) - cpu[name]) / releases for name, of in pids.items()}
    routes.subtract(counted)
    return {
        "members": members,
        "rows": rows,
        "mechanism": mechanism,
        "releases_per_minute": 60 * releases / seconds,
        "requests": routes.total() / releases,
        "routes": {route: count / releases for route, count in routes.most_common() if count},
        "cpu_seconds": used,
    }


def measure(asked: Asked) -> Report:
    members, rows, mechanism = (asked.given[name] for name in ("members", "rows", "mechanism"))
    return of_consortium(members, 2_000 if asked.quick else rows, mechanism, releases=asked.times(1, 30))


OPTIONS = (
    click.Option(["--members"], type=int, default=3, show_default=True),
    click.Option(["--rows"], type=int, default=48_000, show_default=True),
    click.Option(["--mechanism"], type=click.Choice(MECHANISMS), default="rmgm", show_default=True),
)
EXPERIMENT = Experiment("rounds", __doc__, measure, options=OPTIONS)

if __name__ == "__main__":
    EXPERIMENT.command()
