"""Agents of an earlier version with today's coordinator, and today's agents with a coordinator of that version.

The earlier code comes from the history of this checkout, and runs with today's libraries.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.world.consortium import SCHEMAS, rows_of, write_csv

ROOT = Path(__file__).parents[2]
EARLIER = "61c600d"
"""A version that landed, whose exchange is another one."""
NAMES = ("clinic", "insurer")
_KINDS = ["rmgm", "moments"]
_POLICY = {"auto_approve": [{"proposer": "*", "mechanisms": _KINDS, "max_rho": 1000}], "max_epsilon": 5}
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Version:
    """Code of one version."""

    code: Path

    def _start(self, *arguments: object, **options: Any) -> "subprocess.Popen[str]":
        paths = {"PYTHONPATH": os.pathsep.join(map(str, (self.code / ".dev", self.code)))}
        command = [sys.executable, "-m", "commingle", *map(str, arguments)]
        return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, env=os.environ | paths, **options)

    def run(self, *arguments: object) -> Any:
        """What a command prints as JSON."""
        with self._start(*arguments, "--json", cwd=self.code) as process:
            printed, _ = process.communicate()
        assert process.returncode == 0, printed
        return json.loads(printed)

    @contextmanager
    def serving(self, *arguments: object, log: Path) -> Iterator[str]:
        """A server, and where it listens."""
        with log.open("w") as file, self._start(*arguments, stderr=file, cwd=self.code) as process:
            assert process.stdout is not None
            try:
                said = json.loads(process.stdout.readline() or "{}")
                yield said.get("url", "")
            finally:
                process.terminate()


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Version:
    code = tmp_path_factory.mktemp("earlier")
    archive = subprocess.run(["git", "-C", ROOT, "archive", EARLIER], capture_output=True, check=False)  # noqa: S607
    if archive.returncode != 0:
        pytest.skip(f"the history of this checkout does not have {EARLIER}: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "x", "-C", code], input=archive.stdout, check=True)  # noqa: S607 - a tool
    return Version(code)


def set_up(root: Path, hub: Version, agents: Version, stack: ExitStack) -> tuple[str, Path]:
    """A coordinator of one version and its members of another, all running; its URL and home."""
    home = root / "hub"
    hub.run("coordinator", "init", "--home", home)
    url = stack.enter_context(hub.serving("coordinator", "serve", "--home", home, "--port", 0, log=root / "hub.log"))
    (root / "policy.json").write_text(json.dumps(_POLICY))
    prints: dict[str, str] = {}
    for name in NAMES:
        linkage = ("--linkage-key", root / "linkage.key") if prints else ()
        own = ("--home", root / name)
        options = ("--name", name, "--policy", root / "policy.json", "--epsilon-cap", 100, *linkage)
        prints[name] = agents.run("party", "init", *own, *options)["fingerprint"]
        invite = hub.run("coordinator", "invite", "--home", home, "--party", name)["invite"]
        agents.run("party", "enrol", *own, "--coordinator", url, "--invite", invite)
        if not linkage:
            (key,) = (root / name).rglob("linkage.key")
            shutil.copy(key, root / "linkage.key")  # its mode too
        (root / f"{name}.json").write_text(json.dumps([a.model_dump(mode="json") for a in SCHEMAS[name]]))
        source = ("--source", write_csv(root / f"{name}.csv", rows_of(name)), "--subject-id", "subject")
        agents.run("party", "datasets", "add", "main", *own, *source, "--schema", root / f"{name}.json")
    for name, other in zip(NAMES, reversed(NAMES), strict=True):
        agents.run("party", "pin", "--home", root / name, f"{other}={prints[other]}")
    for name in NAMES:
        stack.enter_context(agents.serving("party", "serve", "--home", root / name, log=root / f"{name}.log"))
    return url, home


def published(url: str, release: str) -> bool:
    until = time.monotonic() + _PATIENCE_SECONDS
    while (state := httpx.get(f"{url}/v1/releases/{release}").json()["state"]) in {
        "proposed",
        "approved",
        "collecting",
    }:
        assert time.monotonic() < until, state
        time.sleep(0.2)
    return bool(state == "published")


@pytest.mark.parametrize("which", ["old agents", "old coordinator"])
def test_versions_publish_releases_together_and_charge_nothing_for_an_exchange_of_another_one(
    tmp_path: Path, earlier: Version, which: str
) -> None:
    today = Version(ROOT)
    hub, agents = (today, earlier) if which == "old agents" else (earlier, today)
    parties = [
        {"name": n, "dataset": "main", "attributes": [a.model_dump(mode="json") for a in SCHEMAS[n]]} for n in NAMES
    ]
    terms = {"adjacency": "replace_one", "epsilon": 1, "delta": 1e-5, "n": 40}  # the earlier one lists subjects
    with ExitStack() as stack:
        url, home = set_up(tmp_path, hub, agents, stack)

        def proposed(mechanism: str) -> str:
            study = {"study": mechanism, "mechanism": mechanism, **terms, "parties": parties}
            (tmp_path / "study.json").write_text(json.dumps(study))
            asked = ("coordinator", "propose", tmp_path / "study.json", "--home", home, "--coordinator", url)
            return str(hub.run(*asked)["id"])

        assert published(url, proposed("rmgm"))
        exchange = proposed("moments")
        assert published(url, proposed("rmgm"))
        assert httpx.get(f"{url}/v1/releases/{exchange}").json()["state"] in {"proposed", "rejected"}
        for name in NAMES:
            charges = agents.run("party", "ledger", "--home", tmp_path / name)["charges"]
            assert len(charges) == 2
            assert exchange not in {charge["release"] for charge in charges}
