"""The image, started as compose does for a coordinator; skipped where there is no Docker engine."""

import time
from collections.abc import Iterator

import pytest

from tests.tools.compose_site import CommandError, docker, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_SERVE = "commingle coordinator init --home /tmp/hub && exec commingle coordinator serve --home /tmp/hub --port 8000"
_START_SECONDS = 120.0


@pytest.fixture(scope="module")
def container(image: str) -> Iterator[str]:
    limits = ("--read-only", "--tmpfs=/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true")
    command = ("run", "-d", "--init", *limits, "--pids-limit", "256", "--entrypoint", "/bin/sh", image, "-c", _SERVE)
    name = docker(*command).strip()
    try:
        yield name
    finally:
        docker("rm", "-f", name)


def test_image_serves_as_nobody_in_particular_on_a_file_system_it_cannot_write(container: str) -> None:
    ready = ("exec", container, "python", "-I", "/usr/local/lib/commingle/ready.py", "127.0.0.1:8000")
    assert eventually(lambda: not docker(*ready), seconds=_START_SECONDS)
    assert docker("exec", container, "id", "-u").strip() == "10001"
    with pytest.raises(CommandError, match="Read-only"):
        docker("exec", container, "touch", "/app/x")


def test_image_has_bytecode_of_all_that_it_loads(container: str) -> None:
    """Whoever runs it cannot write any: what was not compiled would be compiled at every start."""
    loaded = "import sys, commingle.coordinator.http.app as _; print(*(m.__cached__ for m in sys.modules.values() if "
    loaded += "getattr(m, '__cached__', None) and m.__file__.startswith('/app')), sep='\\n')"
    files = docker("exec", container, "python", "-c", loaded).split()
    assert len(files) > 100
    docker("exec", container, "ls", *files)


def test_container_ends_soon_and_in_order_when_it_is_told_to(container: str) -> None:
    started = time.monotonic()
    docker("stop", "-t", "30", container)
    assert time.monotonic() - started < 25
    assert docker("inspect", "-f", "{{.State.ExitCode}}", container).strip() in {"0", "143"}
