"""Interfaces as clients see them: descriptions lint clean, and a client in TypeScript is made, compiled and run."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commingle.testing import Consortium
from tests.packaging.openapi import FOLDER

SERVICES = ["coordinator", "learner", "party-agent"]
CLIENT = Path(__file__).parent / "clients"
# `default` holds what every refusal is; the rule asks for a status of its own
SKIPPED = ("--skip-rule", "operation-4xx-response")
# what has a default need not be given in a request
OPTIONAL = ("--default-non-nullable", "false")
TABLES = {
    "clinic": {"subject": [f"s{i}" for i in range(400)], "age": [float(20 + i % 40) for i in range(400)]},
    "ward": {"subject": [f"s{i}" for i in range(400)], "stay": [float(i % 40) / 4 for i in range(400)]},
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the tools and the client."""
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("clients") / "made"
    if npm is None:
        pytest.skip("npm is not installed")
    shutil.copytree(CLIENT, folder)
    installed = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder, capture_output=True, check=False
    )
    if installed.returncode:
        pytest.skip(f"npm installs nothing here: {installed.stderr.decode()[-300:]}")
    yield folder
    shutil.rmtree(folder)


def run(tools: Path, tool: str, *words: str | Path) -> str:
    command = [tools / "node_modules" / ".bin" / tool, *words]
    done = subprocess.run(command, cwd=tools, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("service", SERVICES)
def test_description_lints_without_errors_and_warnings(tools: Path, service: str) -> None:
    found = json.loads(run(tools, "redocly", "lint", "--format", "json", *SKIPPED, FOLDER / f"{service}.json"))
    assert [problem["message"] for problem in found["problems"]] == []


def test_client_in_typescript_compiles_and_reads_what_python_reads(tools: Path) -> None:
    for service in SERVICES:
        run(tools, "openapi-typescript", FOLDER / f"{service}.json", "-o", f"{service}.ts", *OPTIONAL)
    run(tools, "tsc")
    with Consortium(TABLES, processes=True) as consortium:
        learner, agent = consortium.learner(), consortium.agents["ward"]
        release = consortium.release(consortium.study(epsilon=20.0))
        done = subprocess.run(
            [shutil.which("node") or "", "client.js", consortium.coordinator.url, learner(), agent.url, agent.token],
            cwd=tools,
            env={"NODE_EXTRA_CA_CERTS": str(agent.ca_file)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["release"] == release.id
    assert said["coefficients"] == pytest.approx(release.fit("stay", ["age"]).coefficients.tolist())
    assert "age" in said["remedy"]
    assert said["state"] == "published"
