"""docs/quickstart.md for a newcomer: three CSV files, eleven commands, and browsers, between real processes."""

import csv
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import ViewportSize, expect, sync_playwright

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")]
N = 400
PHONE = ViewportSize(width=390, height=800)
DESK = ViewportSize(width=1000, height=800)
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
        names = ("ward", "laboratory", "registration")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
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
    with ExitStack() as stack:
        yield Clinics(folder, stack)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=60)


@contextmanager
def browsers() -> Iterator[Callable[[str], "Browser"]]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        opened: list[Browser] = []

        def open_at(address: str) -> Browser:
            opened.append(Browser(chromium, address))
            return opened[-1]

        yield open_at
        complaints = [said for one in opened for said in one.complaints]
        chromium.close()
        assert complaints == []


class Browser:
    """A page in a fresh profile. `complaints` is what the browser itself objects to."""

    def __init__(self, chromium: Chromium, address: str) -> None:
        self.page = chromium.new_context(viewport=DESK, accept_downloads=True).new_page()
        self.page.set_default_timeout(60_000)
        self.complaints: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(address)

    def fits_on_a_phone(self) -> bool:
        """Within five seconds: a page that is being loaded has no document for a moment, and then no styles."""
        self.page.set_viewport_size(PHONE)
        for _ in range(50):
            fits = self.page.evaluate("document.documentElement?.scrollWidth <= window.innerWidth")
            if fits:
                break
            self.page.wait_for_timeout(100)
        self.page.set_viewport_size(DESK)
        return bool(fits)


def link_of(three: Clinics, *command: str) -> str:
    found = three.start(*command).until(r"(http://\S+/enter/\S+)\s")
    return found[1]


def go_through(three: Clinics, open_at: "Callable[[str], Browser]", pictures: Path) -> None:
    url = three.found_consortium()

    hub = open_at(link_of(three, "coordinator", "console", "--home", "hub"))
    hub.page.get_by_text("Nothing has been proposed yet.").wait_for()
    hub.page.get_by_role("link", name="Members").click()
    for name in three.agents:
        hub.page.get_by_role("rowheader", name=name).wait_for()
    hub.page.get_by_role("link", name="Rounds").click()
    three.run("coordinator", "propose", "study.json", "--home", "hub", "--coordinator", url)
    hub.page.get_by_role("link", name="Length of stay").click()  # it has appeared by itself
    hub.page.get_by_text("It waits for the approval of").wait_for()
    hub.page.screenshot(path=pictures / "coordinator.png")

    for name in three.agents:
        decide(open_at(link_of(three, "party", "console", "--home", name)))
    hub.page.locator(".chip.good", has_text="published").wait_for()  # nobody has loaded the page again
    assert hub.page.get_by_text("It waits for").count() == 0
    hub.page.screenshot(path=pictures / "published.png")

    key = json.loads(three.run("party", "status", "--home", "ward", "--json"))["consortia"][0]["fingerprint"]
    serving = ("learner", "serve", "--coordinator", url, "--coordinator-key", key, "--port", "0")
    fit(open_at(three.start(*serving).announced()["url"]), pictures)


def decide(console: Browser) -> None:
    """A person finds the proposal, reads it and approves, by the keyboard alone."""
    page = console.page
    while not (found := page.get_by_role("link", name="Length of stay")).count():
        page.reload()
    found.focus()
    page.keyboard.press("Enter")
    page.get_by_label("Your name").wait_for()  # the page of the proposal, and not the list it was opened from
    page.get_by_label("Your name").focus()
    page.keyboard.type("Dr. Berg")
    page.get_by_label("I have read this page.").focus()
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("approved here").wait_for()
    page.get_by_text("approval by Dr. Berg").wait_for()


def fit(learner: Browser, pictures: Path) -> None:
    page = learner.page
    page.get_by_role("link", name="Length of stay").click()
    page.get_by_role("link", name="A linear model").click()
    page.get_by_label("Target: the attribute to explain").select_option("stay")
    expect(page.get_by_label("stay", exact=True)).to_be_disabled()
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("heading", name="Linear model of stay").wait_for()
    assert page.locator("svg .effect").count() == 2
    page.screenshot(path=pictures / "learner.png")
    with page.expect_download() as downloaded:
        page.get_by_role("link", name="table (CSV)").click()
    lines = Path(downloaded.value.path()).read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["term", "(intercept)", "age", "crp"]
    page.get_by_role("link", name="Interface").click()
    page.get_by_role("link", name="POST /v1/releases/{release}/fits").click()


def test_three_clinics_go_from_csv_files_to_a_fit_in_a_browser(tmp_path: Path) -> None:
    write_tables(tmp_path, n=N)
    write_study(tmp_path / "study.json", n=N, epsilon=2)
    with clinics(tmp_path) as three, browsers() as open_at:
        go_through(three, open_at, tmp_path)
