"""Wheels and source archives of this tree."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(source: Path, target: str, into: Path) -> Path:
    hatchling(source, target, into)
    (made,) = into.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return made


def hatchling(source: Path, target: str, into: Path, **variables: str) -> str:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into)]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True, env=environment)
    return done.stdout + done.stderr


def built_once(temporary: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, from whichever worker of the run comes first: most of a build is its C compiler."""
    own = temporary.getbasetemp()
    of_all = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with (of_all / "wheel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = [*(of_all / "wheel").glob("*.whl")]
        return found[0] if found else build(ROOT, "wheel", of_all / "wheel")
