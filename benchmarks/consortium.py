"""A consortium of any installation: its commands, and real processes on real sockets.

`commingle.testing` starts this installation; measurements compare another one with it.
"""

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx

from commingle.shared.documents.dsse import SigningKey, seal
from commingle.shared.documents.study import Study
from commingle.shared.forecast.forecast import with_sketch
from commingle.shared.release.checks import Member, build_spec
from commingle.shared.runtime.files import load_signing_key
from commingle.shared.runtime.request_signing import RequestSigner
from commingle.shared.runtime.settings import system_clock

MECHANISMS = ("rmgm", "dgm", "moments")
Words = str | Path
_TICKS = os.sysconf("SC_CLK_TCK")
_WAIT_SECONDS = 7200.0


@dataclass(frozen=True, slots=True)
class Commingle:
    label: str = "now"
    command: Path = field(default_factory=lambda: Path(sys.executable).with_name("commingle"))

    def run(self, *words: Words) -> str:
        return subprocess.run([self.command, *words], check=True, capture_output=True, text=True).stdout

    def json(self, *words: Words) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.run(*words, "--json"))

    @contextmanager
    def serving(
        self, *words: Words, log: "int | IO[str]" = subprocess.DEVNULL
    ) -> "Iterator[tuple[subprocess.Popen[str], dict[str, str]]]":
        """A server, and the first line that it prints: where it listens, or nothing if it has ended."""
        port = () if words[0] == "party" else ("--port", "0")
        command = [self.command, *words, *port]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            try:
                assert process.stdout is not None  # noqa: S101 - a pipe was asked for
                yield process, json.loads(process.stdout.readline() or "{}")
            finally:
                process.terminate()

    @contextmanager
    def reached(self, *words: Words) -> Iterator[str]:
        """The URL of a server, or the path of its socket."""
        with self.serving(*words) as (_, said):
            yield said.get("url") or said["socket"]


def cpu_seconds(pid: int) -> float:
    """User and system seconds of a process and of its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / _TICKS


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and processor seconds of children that have ended."""

    def used() -> float:
        times = os.times()
        return times.children_user + times.children_system

    began, before = time.perf_counter(), used()
    work()
    return time.perf_counter() - began, used() - before


def numeric(columns: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{"kind": "numeric", "name": name, "lower": -1, "upper": 1} for name in columns]


@dataclass(frozen=True, slots=True)
class Consortium:
    """A coordinator and its members, each with the names of its columns.

    Attributes:
        by_hand: whether releases wait for `approve`; otherwise policies approve the coordinator's proposals.
    """

    commingle: Commingle
    root: Path
    members: Mapping[str, tuple[str, ...]]
    by_hand: bool = False

    @property
    def hub(self) -> Path:
        return self.root / "hub"

    def home(self, name: str) -> tuple[Words, ...]:
        return "--home", self.root / name

    def prepare(self) -> None:
        """Make keys, policies, invites and pins; nothing runs afterwards."""
        proposer = self.commingle.json("coordinator", "init", "--home", self.hub, "--name", "hub")["fingerprint"]
        rule = {"proposer": proposer, "max_rho": 1e6, "mechanisms": MECHANISMS}
        allowed = {"max_epsilon": 100.0, "max_delta": 1e-5, "mechanisms": MECHANISMS, "trusted_bounds": True}
        policy = self.root / "policy.json"
        policy.write_text(json.dumps({**allowed, "max_cells": 10**9, "auto_approve": [] if self.by_hand else [rule]}))
        keys: dict[str, str] = {}
        for name in self.members:
            linkage = ("--linkage-key", self.root / next(iter(keys)) / "keys" / "linkage.key") if keys else ()
            options = ("--name", name, "--epsilon-cap", "10000", "--policy", policy, *linkage)
            keys[name] = self.commingle.json("party", "init", *self.home(name), *options)["fingerprint"]
        with self.commingle.reached("coordinator", "serve", "--home", self.hub) as url:
            for name in self.members:
                invite = self.commingle.json("coordinator", "invite", "--home", self.hub, "--party", name)["invite"]
                self.commingle.run("party", "enrol", *self.home(name), "--coordinator", url, "--invite", invite)
                if others := [f"{other}={key}" for other, key in keys.items() if other != name]:
                    self.commingle.run("party", "pin", *self.home(name), *others)

    def register(self, name: str, table: Path) -> None:
        """Register a member's table of numbers in [-1, 1], whose subjects are in the column `id`."""
        file = self.root / f"{name}.json"
        file.write_text(json.dumps(numeric(self.members[name])))
        source = ("--source", table, "--subject-id", "id", "--schema", file, "--listed")
        self.commingle.run("party", "datasets", "add", "main", *self.home(name), *source)

    @contextmanager
    def coordinator(self) -> "Iterator[tuple[subprocess.Popen[str], str]]":
        """Start the coordinator and tell members its address, which changes at every start."""
        with self.commingle.serving("coordinator", "serve", "--home", self.hub) as (process, said):
            for name in self.members:
                (path,) = (self.root / name / "consortia").glob("*/coordinator.json")
                path.write_text(json.dumps(json.loads(path.read_text()) | {"url": said["url"]}))
            yield process, said["url"]

    @contextmanager
    def agents(self) -> "Iterator[dict[str, subprocess.Popen[str]]]":
        with ExitStack() as stack:
            serving = {name: self.commingle.serving("party", "serve", *self.home(name)) for name in self.members}
            yield {name: stack.enter_context(agent)[0] for name, agent in serving.items()}

    @contextmanager
    def asked(self, url: str) -> Iterator[httpx.Client]:
        key = self.key
        auth = RequestSigner(key, audience=key.fingerprint)
        anew = httpx.Limits(max_keepalive_connections=0)  # a kept connection may end while members are waited for
        with httpx.Client(base_url=url, auth=auth, limits=anew, timeout=_WAIT_SECONDS) as http:
            yield http

    @property
    def key(self) -> SigningKey:
        (path,) = self.hub.rglob("signing.key")
        return load_signing_key(path)

    def release(
        self, http: httpx.Client, proposed: Callable[[str], object] = str, **facts: object
    ) -> tuple[str, float]:
        """A release of this study, and the seconds from its last approval to its publication.

        `proposed` gets its id first; it approves the release if policies do not.
        """
        parties = [{"name": p, "dataset": "main", "attributes": numeric(own)} for p, own in self.members.items()]
        usual = {"study": "benchmark", "subjects": "listed", "epsilon": 1.0, "delta": 1e-5, "parties": parties}
        study = with_sketch(Study.model_validate_json(json.dumps({**usual, **facts})))
        page = http.get("/v1/parties", params={"limit": 200}).raise_for_status().json()
        members = {item["name"]: Member(item["signing_key"], item["sealing_key"]) for item in page["items"]}
        seed, now = secrets.token_bytes(32), system_clock()
        spec = build_spec(study, members=members, proposer=self.key.fingerprint, seed=seed, now=now)
        body = seal(spec, key=self.key).to_json()
        headers = {"Content-Type": "application/json"}
        release = http.post("/v1/releases", content=body, headers=headers).raise_for_status().json()["id"]
        proposed(release)
        event, approved = dict[str, Any](), 0.0
        with http.stream("GET", f"/v1/releases/{release}/events") as events:
            for line in events.iter_lines():
                if line.startswith("data: "):
                    event = json.loads(line[6:])
                    approved = time.monotonic() if event["kind"] == "approval" else approved
        if event["state"] != "published":
            raise SystemExit(f"the release ended as {event['state']}")
        return release, time.monotonic() - approved

    def approve(self, release: str) -> None:
        """Approve by hand, once each agent has seen the release."""
        for name in self.members:
            while release not in {
                i["id"] for i in self.commingle.json("party", "proposals", *self.home(name))["items"]
            }:
                time.sleep(0.05)
            self.commingle.run("party", "approve", release, *self.home(name), "--yes")
