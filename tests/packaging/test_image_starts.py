"""The image, started as compose does for a coordinator; skipped where there is no Docker engine."""

import json
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.conftest import BASE
from tests.packaging.engine import ROOT, CommandError, docker, eventually
from tests.packaging.published import publish

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


def test_published_image_is_small_signed_and_lists_what_it_consists_of(image: str, tmp_path: Path) -> None:
    del image  # built already
    made = publish("images", "IMAGES", tmp_path, f"PYTHON_IMAGE={BASE}", "IMAGE=commingle:published")
    docker("image", "rm", "commingle:published")
    docker("load", "--input", str(made / "commingle.tar"))  # what a site without a network does
    assert int(docker("image", "inspect", "-f", "{{.Size}}", "commingle:published")) < 420e6
    locked = {(one["name"], one["version"]) for one in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    components = json.loads((made / "sbom.cdx.json").read_text())["components"]
    libraries = {one["name"]: one["version"] for one in components if one["purl"].startswith("pkg:pypi/")}
    assert {"commingle", "numpy", "psycopg", "opentelemetry-api"} <= libraries.keys()
    assert libraries.items() <= locked
    debian = {one["name"] for one in components if one["purl"].startswith("pkg:deb/")}
    assert "libc6" in debian
    assert not debian & {"apt", "perl-base", "passwd", "python3-pip"}
    base = json.loads((made / "provenance.json").read_text())["predicate"]["buildDefinition"]["resolvedDependencies"][2]
    assert base["digest"]["sha256"] == docker("image", "inspect", "-f", "{{.Id}}", BASE).strip().removeprefix("sha256:")


def test_container_ends_soon_and_in_order_when_it_is_told_to(container: str) -> None:
    started = time.monotonic()
    docker("stop", "-t", "30", container)
    assert time.monotonic() - started < 25
    assert docker("inspect", "-f", "{{.State.ExitCode}}", container).strip() in {"0", "143"}
