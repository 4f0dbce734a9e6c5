"""Three clinics with a CSV each, from nothing to a consortium whose agents run: processes and what people type."""

import csv
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "registration": {"kind": "numeric", "name": "age", "lower": 18, "upper": 100, "unit": "years"},
    "laboratory": {"kind": "numeric", "name": "crp", "lower": 0, "upper": 300, "unit": "mg/l"},
    "ward": {"kind": "numeric", "name": "stay", "lower": 0, "upper": 30, "unit": "days"},
}
PURPOSE = "Do inflammation at admission and age tell how long a patient stays?"


def write_tables(folder: Path, *, n: int) -> None:
    """`NAME.csv` and `NAME.json`, its schema, for each clinic: stay = 0.05 age + 0.05 crp + noise."""
    draw = np.random.default_rng(5)
    age, crp = draw.uniform(18, 100, n), draw.uniform(0, 300, n)
    stay = np.clip(0.05 * age + 0.05 * crp + draw.normal(0, 2, n), 0, 30)
    for (name, attribute), values in zip(ATTRIBUTES.items(), (age, crp, stay), strict=True):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["patient", attribute["name"]])
            rows.writerows((f"p{i:06}", f"{value:.2f}") for i, value in enumerate(values))
        (folder / f"{name}.json").write_text(json.dumps([attribute]))


def write_study(path: Path, *, n: int, epsilon: float) -> None:
    parties = [{"name": name, "dataset": "main", "attributes": [a]} for name, a in ATTRIBUTES.items()]
    study = {"study": "Length of stay", "purpose": PURPOSE, "requester": "Dr. Adams, registration", "target": "stay"}
    terms = {"mechanism": "rmgm", "subjects": "listed", "epsilon": epsilon, "delta": 1e-5, "n": n, "lifetime_hours": 72}
    path.write_text(json.dumps(study | terms | {"parties": parties}))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@dataclass
class Running:
    """A command that runs: what it has said on standard error and what it is told."""

    process: subprocess.Popen[str]
    said: str = field(default="")

    def until(self, pattern: str) -> re.Match[str]:
        """Read on until it has said something like this, which is not read again."""
        assert self.process.stderr is not None
        while (found := re.search(pattern, self.said)) is None:
            piece = os.read(self.process.stderr.fileno(), 1 << 16).decode()
            assert piece, f"it ended and said: {self.said}"
            self.said += piece
        self.said = self.said[found.end() :]
        return found

    def tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def announced(self) -> dict[str, Any]:
        """The line in which a server says where it listens."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if '"listening"' in line:
                value: dict[str, Any] = json.loads(line)
                return value
        assert self.process.stderr is not None
        raise AssertionError(f"it ended and said: {self.said}{self.process.stderr.read()}")


@dataclass
class Clinics:
    """Everything that has been started in one folder."""

    folder: Path
    stack: ExitStack
    agents: dict[str, Running] = field(default_factory=dict)

    def run(self, *arguments: str) -> str:
        """A command to its end: what it printed."""
        command = [sys.executable, "-m", "commingle", *arguments]
        done = subprocess.run(command, cwd=self.folder, check=False, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *arguments: str) -> Running:
        """A command that goes on until the end of the test."""
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "commingle", *arguments]
        process = subprocess.Popen(command, cwd=self.folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.stack.callback(_end, process)
        return Running(process)

    def found_consortium(self) -> str:
        """Coordinator and three members that have heard each other's words; the coordinator's URL."""
        port = free_port()
        names = ("ward", "laboratory", "registration")
        url = f"http://127.0.0.1:{port}"
        made = json.loads(self.run("coordinator", "new-consortium", "--home", "hub", "--url", url, *names, "--json"))
        self.start("coordinator", "serve", "--home", "hub", "--port", str(port)).announced()
        for name in names:
            table = ("--source", f"{name}.csv", "--subject-id", "patient", "--schema", f"{name}.json", "--listed")
            line = made["invitations"][name]
            self.agents[name] = self.start(
                "party", "join", line, "--home", name, *table, "--epsilon-cap", "6", "--serve"
            )
        words = {name: shown_words(agent) for name, agent in self.agents.items()}
        assert len(set(words.values())) == 1
        for agent in self.agents.values():
            agent.tell(" ".join(word[:4] for word in words["ward"]))
        for agent in self.agents.values():
            agent.announced()
        return url


def shown_words(agent: Running) -> tuple[str, ...]:
    """What a party is asked to read to the others."""
    rows = agent.until(r"of their coordinator:\n\n((?:  [a-z ]+\n)+)\n")[1]
    agent.until("will do[^:]*: ")
    return tuple(rows.split())


@contextmanager
def clinics(folder: Path) -> Iterator[Clinics]:
    """Ends what it has started."""
    with ExitStack() as stack:
        yield Clinics(folder, stack)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=60)
