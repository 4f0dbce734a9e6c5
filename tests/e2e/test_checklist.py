"""docs/checklist.md as an operator walks it: an empty folder with the wheel, one shell, and nothing but the page."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from uv import find_uv_bin

from tests.world.wheel import ROOT, built_once

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PAGE = (ROOT / "docs" / "checklist.md").read_text()
MARK = "\x1e"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def lines() -> list[tuple[str, str]]:
    """Each command with what a reader then sees of it, which may be nothing."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    pieces = [line.partition("#>") for block in blocks for line in block.splitlines()]
    return [(command.strip(), seen.strip()) for command, _, seen in pieces]


@pytest.fixture
def folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    shutil.copy(built_once(tmp_path_factory), tmp_path)
    return tmp_path


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a machine that has nothing of ours; the libraries are those that are locked."""
    locked = tmp_path_factory.mktemp("locked") / "locked.txt"
    export = ("export", "--locked", "--no-dev", "--no-emit-project", "--no-hashes", "--quiet", "--output-file")
    subprocess.run([find_uv_bin(), *export, str(locked)], cwd=ROOT, check=True)
    ours = ("COMMINGLE_", "PYTHONPATH", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = os.pathsep.join(p for p in kept["PATH"].split(os.pathsep) if Path(p) != Path(sys.executable).parent)
    sooner = {"PIP_COMPILE": "0"}  # modules that no line imports
    return {**kept, **sooner, "PATH": path, "PIP_CONSTRAINT": str(locked)}


@pytest.fixture
def walked(folder: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each line showed, up to one that failed."""
    steps = "".join(f"printf '{MARK}'\n{command}\n" for command, _ in lines())
    script = ("set -e\n" + steps).replace("8000", str(free_port()))
    shown = tmp_path_factory.mktemp("shown") / "shown.txt"  # no pipe: services that a failure leaves keep it open
    with (
        shown.open("w") as out,
        subprocess.Popen(
            ["/bin/bash", "-c", script],
            cwd=folder,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as shell,
    ):
        try:
            shell.wait(timeout=1000)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    return shown.read_text().split(MARK)[1:]


def test_every_line_of_the_checklist_does_what_it_says(walked: list[str]) -> None:
    assert len(lines()) > 30
    for (command, seen), shown in zip(lines(), walked, strict=False):
        assert seen in re.sub(r"\s+", " ", shown), f"{command}\nshowed\n{shown}"
    assert len(walked) == len(lines()), f"{lines()[len(walked) - 1][0]}\nfailed:\n{walked[-1]}"
