"""The compose deployment as its operator and its recording proxy have it: started, asked, harmed and copied."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx

from commingle.party_agent.home.home import Home
from tests.faults.witness import Observed, Upload

PARTIES = ("registration", "laboratory", "ward")
ROOT, _PROJECT = Path(__file__).parents[2], "commingle-faults"
_FILES = ("-f", "docker-compose.yml", "-f", "tests/tools/compose_faults.yml")
_PROPOSE = """
import sys; sys.path.insert(0, "/usr/local/lib/commingle")
from hospital import connect
from commingle import Study
with connect("registration") as party:
    print(party.propose(Study.model_validate_json(sys.stdin.read()), key=sys.argv[1]).id)
"""
_OPEN_CHARGES = """
import sqlite3, sys
with sqlite3.connect(f"file:/var/lib/commingle/{sys.argv[1]}/ledger.sqlite?mode=ro", uri=True) as db:
    moves = db.execute("SELECT json_extract(body, '$.release'), json_extract(body, '$.kind') FROM entries ORDER BY seq")
    states = {release: kind for release, kind in moves if kind not in ("signed", "received", "rejoined")}
    print(sum(state in ("reserved", "debited", "stored") for state in states.values()))
"""
_LIMIT_FILES = """
import resource, sys
pid = int(open("/proc/1/task/1/children").read().split()[0])
hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if sys.argv[1] == "full" else hard, hard))
"""


class CommandError(Exception):
    """A docker command failed; what it said."""


def docker(*arguments: str, said: str = "", seconds: float = 120, environment: Mapping[str, str] | None = None) -> str:
    """Run a docker command, with more in its environment; what it prints. Raises CommandError."""
    try:
        done = subprocess.run(
            ["docker", *arguments],  # noqa: S607 - whichever the user has
            input=said,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=os.environ | (environment or {}),
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(str(error)) from error
    if done.returncode:
        raise CommandError(f"docker {' '.join(arguments[:4])}: {done.stderr.strip()}")
    return done.stdout


def compose(*arguments: str, seconds: float = 120) -> str:
    """Run a docker compose command on the deployment. Raises CommandError."""
    return docker("compose", "-p", _PROJECT, *_FILES, *arguments, seconds=seconds)


def container(service: str) -> str:
    """The name of a service's only container."""
    return f"{_PROJECT}-{service}-1"


def python(service: str, program: str, *arguments: str, said: str = "") -> str:
    """Run a program inside a service's container. Raises CommandError."""
    return docker("exec", "-i", container(service), "python", "-c", program, *arguments, said=said)


def eventually(holds: Callable[[], bool], *, seconds: float) -> bool:
    """Whether something comes to hold in that time; while it cannot be asked it does not."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(CommandError, httpx.HTTPError):
            if holds():
                return True
        time.sleep(0.5)
    return False


class Proxy:
    """The order port of `tests.tools.compose_proxy`."""

    def ask(self, **order: str | bool) -> dict[str, Any]:
        """Give an order; all uploads and faults so far."""
        port = int(os.environ.get("PROXY_PORT", "8001"))
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(json.dumps(order).encode() + b"\n")
            with connection.makefile() as answers:
                said: dict[str, Any] = json.loads(answers.readline())
        return said

    def uploads(self) -> list[Upload]:
        return [Upload(**each) for each in self.ask()["uploads"]]


def coordinator() -> Observed:
    return Observed(f"http://127.0.0.1:{os.environ.get('COORDINATOR_PORT', '8000')}")


def unfinished(asked: Observed) -> list[dict[str, Any]]:
    """Summaries of releases that are not over. Raises httpx.HTTPError."""
    found: list[dict[str, Any]] = asked.get("/v1/releases", over="false", limit=200).json()["items"]
    return found


def propose(study: dict[str, Any], *, key: str) -> str:
    """Propose a study over the registration's REST API; the release's id, the same for the same key."""
    return python("registration-system", _PROPOSE, key, said=json.dumps(study)).strip()


def withdraw(release: str, party: str) -> None:
    """A person at a party says no. Raises CommandError, also where the release is over."""
    words = ("--by", "data office", "--why", "fault run", "--yes")
    docker("exec", container(party), "commingle", "party", "reject", "--home", _home(party), release, *words)


def healthy(services: set[str]) -> bool:
    """Whether all of these run and say they are well."""
    rows = [json.loads(line) for line in compose("ps", "--format", "json").splitlines()]
    up = (row for row in rows if row["State"] == "running")
    return services <= {row["Service"] for row in up if row["Health"] in {"", "healthy"}}


def running() -> set[str]:
    return set(compose("ps", "--services", "--status", "running").split())


def nothing_open() -> bool:
    """Whether no ledger has a charge that is not settled."""
    return all(python(party, _OPEN_CHARGES, party).strip() == "0" for party in PARTIES)


def copy_homes(folder: Path) -> dict[str, Home]:
    """Stop the agents and copy their homes out of their volumes."""
    compose("stop", *PARTIES)
    for party in PARTIES:
        docker("cp", f"{container(party)}:{_home(party)}", str(folder / party))
    return {party: Home(folder / party) for party in PARTIES}


def studies() -> dict[str, Any]:
    """The demonstration's studies, by mechanism: of moments one attribute a clinic, as proofs take time."""
    cat = ("run", "--rm", "-T", "--no-deps", "--entrypoint", "cat", "propose")
    found = {m: json.loads(compose(*cat, f"/var/lib/commingle/study/{m}.json")) for m in ("rmgm", "moments")}
    for party in found["moments"]["parties"]:
        del party["attributes"][:-1]  # the last one of all is the target
    return found


def fingerprint() -> str:
    """Of the coordinator's key, as it was handed over to the learner."""
    return docker("exec", container("learner"), "cat", "/var/lib/commingle/study/coordinator_fingerprint").strip()


def _home(party: str) -> str:
    return f"/var/lib/commingle/{party}"


# What follows harms a service for that many seconds and puts right what no restart policy would: the operator's part.


def kill_process(service: str, _: float) -> None:
    """Kill what runs inside; Docker's restart policy starts it again."""
    docker("exec", container(service), "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")


def kill_container(service: str, seconds: float) -> None:
    """Docker takes `docker kill` for somebody's wish and does not restart."""
    docker("kill", "-s", "KILL", container(service))
    time.sleep(seconds)
    docker("start", container(service))


def stop(service: str, seconds: float) -> None:
    """In order, and started again."""
    docker("stop", container(service))
    time.sleep(seconds)
    docker("start", container(service))


def pause(service: str, seconds: float) -> None:
    docker("pause", container(service))
    time.sleep(seconds)
    docker("unpause", container(service))


def cut_off(service: str, seconds: float, *, network: str) -> None:
    docker("network", "disconnect", f"{_PROJECT}_{network}", container(service))
    time.sleep(seconds)
    docker("network", "connect", "--alias", service, f"{_PROJECT}_{network}", container(service))


def fill_disk(service: str, seconds: float) -> None:
    """No file of its process may grow (RLIMIT_FSIZE): what a user without rights on the host can do."""
    python(service, _LIMIT_FILES, "full")
    time.sleep(seconds)
    python(service, _LIMIT_FILES, "empty")


def kill_during_upload(service: str, _: float, *, proxy: Proxy, draw: Random) -> None:
    """Kill it while half of an upload has arrived. Raises CommandError where none comes by."""
    before = len(proxy.ask(fate="request halted half-way", of="uploads")["struck"])
    if not eventually(lambda: len(proxy.ask()["struck"]) > before, seconds=30):
        raise CommandError("no upload came by")
    time.sleep(draw.uniform(0, 1))
    kill_process(service, 0)
