"""An upgrade as ADR 32 promises it: stop, install, start, one after the other with releases under way; and back again.

There is one version, so the other is this tree's wheel, which calls itself by another number.
"""

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from commingle.services.testing.consortium import Consortium
from commingle.services.testing.nodes import Agent, Node
from commingle.services.testing.processes import ServerProcess
from commingle.shared import __version__
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import decode
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.release.rounds import State
from tests.world.command import eventually
from tests.world.wheel import built_once

pytestmark = pytest.mark.slow

LATER = f"{__version__}.post1"
SUBJECTS = [f"p{i}" for i in range(200)]
TABLES = {
    "ward": {"subject": SUBJECTS, "age": [float(20 + i % 60) for i in range(200)]},
    "laboratory": {"subject": SUBJECTS, "crp": [float(i % 7) for i in range(200)]},
}
BY_HAND = {"max_epsilon": 100.0, "max_delta": 1e-5, "mechanisms": ["moments"]}


@dataclass(frozen=True)
class Installed:
    """Another version on this machine."""

    program: Path

    def json(self, *words: object) -> Any:
        command = [str(self.program), *map(str, words), "--json"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    @contextmanager
    def serving(self, node: Node) -> Iterator[None]:
        """In the place of a node that is stopped, with its home and at its address."""
        assert isinstance(node.server, ServerProcess)
        command = [str(self.program), *map(str, node.server.command)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                assert process.stdout is not None
                assert json.loads(process.stdout.readline())["event"] == "listening"
                yield
            finally:
                process.terminate()


@pytest.fixture
def later(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder, program = tmp_path / "later", tmp_path / "commingle"
    zipfile.ZipFile(built_once(tmp_path_factory)).extractall(folder)
    about = folder / "commingle" / "shared" / "__init__.py"
    about.write_text(about.read_text().replace(f'"{__version__}"', f'"{LATER}"'))
    start = (
        f"import sys\nsys.path.insert(0, {str(folder)!r})\nfrom commingle.__main__ import start\nsys.exit(start())\n"
    )
    program.write_text(f"#!{sys.executable}\n{start}")
    program.chmod(0o755)
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert said.split()[-1] == LATER
    return Installed(program)


@dataclass
class Drill:
    """A consortium whose members and coordinator are each of one of two versions."""

    consortium: Consortium
    later: Installed
    upgraded: dict[str, ExitStack]

    def upgrade(self, node: Node) -> None:
        node.kill()
        stack = self.upgraded[str(node.home)] = ExitStack()
        stack.enter_context(self.later.serving(node))

    def roll_back(self, node: Node) -> None:
        self.upgraded.pop(str(node.home)).close()
        node.start()

    def propose(self) -> str:
        return self.consortium.propose(self.consortium.study(epsilon=10.0))

    def approve(self, agent: Agent, release: str) -> None:
        with agent.client() as client:
            eventually(lambda: release in {one.id for one in client.proposals()}, what="it is not proposed")
            client.approve(release, by="Dr. Adams")

    def software(self) -> str:
        return str(httpx.get(f"{self.consortium.coordinator.url}/v1/coordinator").json()["software"])

    def published(self, release: str) -> str:
        """By which software, once every signature holds."""
        assert self.consortium.wait(release) is State.PUBLISHED
        with self.consortium.client() as client:
            client.fetch(release)
        told = httpx.get(f"{self.consortium.coordinator.url}/v1/releases/{release}/manifest").content
        return decode(Manifest, decode(SignedDocument, told).envelope.payload_bytes).software


def spent(ledger: Any) -> Any:
    return {charge["release"]: charge["rho"] for charge in ledger["charges"]}


@contextmanager
def drill_of(later: Installed) -> Iterator[Drill]:
    with Consortium(TABLES, keyed=False, processes=True, links=False, policy=BY_HAND) as consortium:
        drill = Drill(consortium, later, {})
        try:
            yield drill
        finally:
            for stack in drill.upgraded.values():
                stack.close()


def test_consortium_is_upgraded_one_by_one_with_releases_under_way_and_goes_back(
    later: Installed, tmp_path: Path
) -> None:
    with drill_of(later) as drill:
        hub, (ward, laboratory) = drill.consortium.coordinator, drill.consortium.agents.values()
        command = drill.consortium.command
        first = drill.propose()
        drill.approve(ward, first)
        kept = [tmp_path / "hub.tar", tmp_path / "ward.tar"]
        command("coordinator", "backup", kept[0], "--home", hub.home)
        command("party", "backup", kept[1], "--home", ward.home)

        drill.upgrade(hub)
        drill.upgrade(ward)
        drill.approve(laboratory, first)  # of the earlier version still
        assert drill.published(first) == drill.software() == f"commingle {LATER}"

        second = drill.propose()
        drill.approve(laboratory, second)
        drill.upgrade(laboratory)
        drill.approve(ward, second)
        assert drill.published(second) == f"commingle {LATER}"

        third = drill.propose()
        drill.approve(ward, third)
        new = tmp_path / "ward-later.tar"
        later.json("party", "backup", new, "--home", ward.home)
        for node in (ward, hub, laboratory):
            drill.roll_back(node)
        drill.approve(laboratory, third)
        assert drill.published(third) == drill.software() == f"commingle {__version__}"
        ledger = spent(command("party", "ledger", "--home", ward.home))
        assert set(ledger) == {first, second, third}

    # what one version backed up restores in the other
    later.json("coordinator", "restore", kept[0], "--home", tmp_path / "hub")
    assert later.json("coordinator", "doctor", "--home", tmp_path / "hub")["healthy"] is True
    later.json("party", "restore", kept[1], "--home", tmp_path / "ward")
    assert spent(later.json("party", "ledger", "--home", tmp_path / "ward")) == {first: ledger[first]}
    earlier = Installed(Path(sys.executable).with_name("commingle"))
    earlier.json("party", "restore", new, "--home", tmp_path / "again")
    assert spent(earlier.json("party", "ledger", "--home", tmp_path / "again")) == ledger
