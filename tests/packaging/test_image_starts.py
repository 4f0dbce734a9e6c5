"""The coordinator's image, built and started as compose does; skipped where there is no Docker engine."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
BASE = os.environ.get("PYTHON_IMAGE", "python:3.11-slim")
IMAGE = "commingle-coordinator:tested"
_SERVE = "commingle coordinator init --home /tmp/hub && exec commingle coordinator serve --home /tmp/hub --port 8000"
_START_SECONDS = 120.0


def docker(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)  # noqa: S607 - whichever
    assert done.returncode == 0 or not check, done.stderr
    return done


@pytest.fixture(scope="module")
def image() -> str:
    if shutil.which("docker") is None or docker("info", check=False).returncode != 0:
        pytest.skip("no Docker engine answers on this machine")
    if docker("image", "inspect", BASE, check=False).returncode != 0:
        pulled = docker("pull", BASE, check=False)
        if pulled.returncode != 0:
            pytest.skip(f"the base image is not here and no registry gives it: {pulled.stderr.strip()}")
    arguments = ("--build-arg", f"PYTHON_IMAGE={BASE}", "--target", "coordinator", "-t", IMAGE)
    docker("build", "-q", "-f", str(ROOT / "deploy" / "Dockerfile"), *arguments, str(ROOT))
    return IMAGE


@pytest.fixture(scope="module")
def container(image: str) -> Iterator[str]:
    """It serves, under the limits of compose."""
    limits = ("--read-only", "--tmpfs=/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true")
    command = ("run", "-d", "--init", *limits, "--pids-limit", "256", "--entrypoint", "/bin/sh", image, "-c", _SERVE)
    name = docker(*command).stdout.strip()
    try:
        yield name
    finally:
        docker("rm", "-f", name)


def test_image_serves_as_nobody_in_particular_on_a_file_system_it_cannot_write(container: str) -> None:
    ready = ("exec", container, "python", "-I", "/usr/local/lib/commingle/ready.py", "127.0.0.1:8000")
    until = time.monotonic() + _START_SECONDS
    while docker(*ready, check=False).returncode != 0:
        assert time.monotonic() < until, docker("logs", container).stderr
        time.sleep(0.5)
    assert docker("exec", container, "id", "-u").stdout.strip() == "10001"
    assert docker("exec", container, "touch", "/app/x", check=False).returncode != 0


def test_image_has_bytecode_of_all_that_it_loads(container: str) -> None:
    """Whoever runs it cannot write any: what was not compiled would be compiled at every start."""
    loaded = "import sys, commingle.coordinator.http.app as _; print(*(m.__cached__ for m in sys.modules.values() if "
    loaded += "getattr(m, '__cached__', None) and m.__file__.startswith('/app')), sep='\\n')"
    files = docker("exec", container, "python", "-c", loaded).stdout.split()
    assert len(files) > 100
    assert docker("exec", container, "ls", *files, check=False).returncode == 0


def test_container_ends_soon_and_in_order_when_it_is_told_to(container: str) -> None:
    started = time.monotonic()
    docker("stop", "-t", "30", container)
    assert time.monotonic() - started < 25
    assert docker("inspect", "-f", "{{.State.ExitCode}}", container).stdout.strip() in {"0", "143"}
