"""How long one waits: the start of each command, an agent until it is ready, a release after the last approval.

python -m benchmarks.latency                                     # this environment's `commingle`
python -m benchmarks.latency before=OTHER/.venv/bin/commingle    # another beside it, in the same run

Every figure is a real process on real sockets. Commands: least wall and processor seconds of some runs. A release: real
agents over one coordinator, from the moment at which the last approval can be seen to that of the publication.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import httpx
import numpy as np

from benchmarks.reporting import heading, row

_PARTIES = ("ward", "laboratory", "registration")
_COLUMNS = 4  # of each party
_MECHANISMS = ("rmgm", "dgm", "moments")
_WAIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Subject:
    """One installed `commingle` to be measured."""

    label: str
    command: Path

    def run(self, *arguments: str | Path) -> str:
        """Run a command to its end; its standard output."""
        return subprocess.run([self.command, *arguments], check=True, capture_output=True, text=True).stdout

    def json(self, *arguments: str | Path) -> Any:  # noqa: ANN401 - JSON
        """What a command prints with --json."""
        return json.loads(self.run(*arguments, "--json"))

    @contextmanager
    def serving(self, *arguments: str | Path) -> Iterator[str]:
        """A serving process and its URL, the first line it prints, or the path of its socket."""
        port = () if arguments[0] == "party" else ("--port", "0")
        command = [self.command, *arguments, *port]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                assert process.stdout is not None  # noqa: S101 - a pipe was asked for
                said = json.loads(process.stdout.readline())
                yield said.get("url", said.get("socket"))
            finally:
                process.terminate()


@dataclass(frozen=True, slots=True)
class Cost:
    """The least of several runs, in seconds."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} s ({self.cpu:.2f} s CPU)"


def least(work: Callable[[], object], runs: int) -> Cost:
    """The least wall and processor time of what runs in child processes that have ended."""
    found = []
    for _ in range(runs):
        wall, before = time.perf_counter(), os.times()
        work()
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        found.append((time.perf_counter() - wall, cpu))
    return Cost(min(w for w, _ in found), min(c for _, c in found))


@dataclass(frozen=True, slots=True)
class Consortium:
    """A coordinator and its members, enrolled and registered, none of them running."""

    subject: Subject
    root: Path
    rows: int

    @property
    def hub(self) -> Path:
        """The coordinator's home."""
        return self.root / "hub"

    def prepare(self) -> None:
        """Keys, policies, invites, pins and tables."""
        fingerprint = self.subject.json("coordinator", "init", "--home", self.hub, "--name", "hub")["fingerprint"]
        rule = {"proposer": fingerprint, "max_rho": 100.0, "mechanisms": _MECHANISMS}
        policy = {"max_epsilon": 100.0, "max_delta": 1e-5, "mechanisms": _MECHANISMS, "auto_approve": [rule]}
        (self.root / "policy.json").write_text(json.dumps(policy))
        keys: dict[str, str] = {}
        for name in _PARTIES:
            linkage = () if not keys else ("--linkage-key", self.root / _PARTIES[0] / "keys" / "linkage.key")
            options = ("--name", name, "--epsilon-cap", "1000", "--policy", self.root / "policy.json", *linkage)
            keys[name] = self.subject.json("party", "init", "--home", self.root / name, *options)["fingerprint"]
        with self.subject.serving("coordinator", "serve", "--home", self.hub) as url:
            for number, name in enumerate(_PARTIES):
                invite = self.subject.json("coordinator", "invite", "--home", self.hub, "--party", name)["invite"]
                home = ("--home", self.root / name)
                self.subject.run("party", "enrol", *home, "--coordinator", url, "--invite", invite)
                pins = [f"{other}={key}" for other, key in keys.items() if other != name]
                self.subject.run("party", "pin", *home, *pins)
                self._register(name, number)

    def _register(self, name: str, number: int) -> None:
        draw = np.random.default_rng(number)
        names = [f"{name}_{i}" for i in range(_COLUMNS)]
        table = np.column_stack([np.arange(self.rows), draw.uniform(-1, 1, (self.rows, _COLUMNS))])
        format_of = ["%d", *["%.6f"] * _COLUMNS]
        header = ",".join(["id", *names])
        np.savetxt(self.root / f"{name}.csv", table, delimiter=",", fmt=format_of, header=header, comments="")
        schema = [{"kind": "numeric", "name": column, "lower": -1, "upper": 1} for column in names]
        (self.root / f"{name}.json").write_text(json.dumps(schema))
        source = (
            "--source",
            self.root / f"{name}.csv",
            "--subject-id",
            "id",
            "--schema",
            self.root / f"{name}.json",
            "--listed",
        )
        self.subject.run("party", "datasets", "add", "main", "--home", self.root / name, *source)

    def _study(self, mechanism: str) -> Path:
        parties = [
            {"name": p, "dataset": "main", "attributes": json.loads((self.root / f"{p}.json").read_text())}
            for p in _PARTIES
        ]
        study = {
            "study": mechanism,
            "mechanism": mechanism,
            "subjects": "listed",
            "epsilon": 10,
            "delta": 1e-5,
            "n": self.rows,
        }
        path = self.root / f"study-{mechanism}.json"
        path.write_text(json.dumps({**study, "parties": parties}))
        return path

    def _readdress(self, url: str) -> None:
        """The coordinator listens elsewhere after every start."""
        for name in _PARTIES:
            (path,) = (self.root / name / "consortia").glob("*/coordinator.json")
            path.write_text(json.dumps(json.loads(path.read_text()) | {"url": url}))

    def measure(self, runs: int, *, releases: int) -> dict[str, str]:
        """Start of an agent; from last approval to publication for each mechanism; verify and fit of a release."""
        found = {}
        with ExitStack() as stack:
            url = stack.enter_context(self.subject.serving("coordinator", "serve", "--home", self.hub))
            self._readdress(url)
            ready = least(lambda: self._start_agent_once(_PARTIES[0]), runs)
            found["party serve, until it listens"] = str(ready)
            for name in _PARTIES:
                stack.enter_context(self.subject.serving("party", "serve", "--home", self.root / name))
            http = stack.enter_context(httpx.Client(base_url=url, timeout=60))
            for mechanism in _MECHANISMS:
                seconds = [self._seconds_to_publication(http, mechanism) for _ in range(releases)]
                shown = " / ".join(f"{s:.2f}" for s in sorted(seconds))
                found[f"{mechanism}, {self.rows:,} rows: last approval to publication"] = f"{shown} s"
            release = http.get("/v1/releases", params={"state": "published", "limit": 1}).json()["items"][0]["id"]
            target, out = f"{_PARTIES[0]}_0", self.root / "published"
            fit = ("fit", url, "--release", release, "--target", target)
            self.subject.run(*fit, "--save", out)
        found["verify, a small release"] = str(least(lambda: self.subject.run("verify", out), runs))
        found["fit, a small release"] = str(least(lambda: self.subject.run("fit", out, "--target", target), runs))
        return found

    def _start_agent_once(self, name: str) -> None:
        with self.subject.serving("party", "serve", "--home", self.root / name):
            pass

    def _seconds_to_publication(self, http: httpx.Client, mechanism: str) -> float:
        last = http.get("/v1/events", params={"after": 0}).json()["last"]
        path = self._study(mechanism)
        own = ("--home", self.hub, "--coordinator", str(http.base_url))
        release = self.subject.json("coordinator", "propose", path, *own)["id"]
        approved, until = 0.0, time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < until:
            page = http.get("/v1/events", params={"after": last, "wait_seconds": 20}).json()
            last = page["last"]
            for event in (e for e in page["items"] if e["release"] == release):
                if event["kind"] == "approval":
                    approved = time.monotonic()
                elif event["state"] == "published":
                    return time.monotonic() - approved
                elif event["state"] in {"aborted", "rejected", "expired"}:
                    raise SystemExit(f"the release ended as {event['state']}")
        raise SystemExit("the release was not published in time")


def measure(subject: Subject, *, runs: int, rows: int) -> dict[str, str]:
    """All figures of one installation, by what was measured."""
    found = {
        f"{' '.join(arguments)} --help": str(least(lambda a=arguments: subject.run(*a, "--help"), runs))  # type: ignore[misc] # bound now
        for arguments in ((), ("party",), ("coordinator",), ("learner",), ("simulate",))
    }
    with TemporaryDirectory() as root:
        consortium = Consortium(subject, Path(root), rows)
        consortium.prepare()
        found |= consortium.measure(runs, releases=min(runs, 3))
    return found


def _subject(given: str) -> Subject:
    label, _, path = given.rpartition("=")
    return Subject(label or "now", Path(path))


@click.command()
@click.argument("others", metavar="[LABEL=COMMAND]...", nargs=-1)
@click.option("--runs", default=5, show_default=True)
@click.option("--rows", default=48_000, show_default=True)
def main(others: tuple[str, ...], runs: int, rows: int) -> None:
    """Print one table, a column for each installation."""
    own = Subject("now", Path(sys.executable).with_name("commingle"))
    subjects = [*map(_subject, others), own]
    columns = [measure(subject, runs=runs, rows=rows) for subject in subjects]
    print(*heading("", *(s.label for s in subjects)), sep="\n")
    for what in columns[-1]:
        print(row(what, *(column.get(what, "-") for column in columns)))


if __name__ == "__main__":
    main()
