"""What the container image is built with."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()


def built(role: str) -> str:
    """How the environment of a role's image is made."""
    stage = DOCKERFILE.partition(f"FROM build AS build-{role}\n")[2].partition("\nFROM ")[0]
    (sync,) = re.findall(r"uv sync (.*)", stage)
    return str(sync)


def test_image_keeps_the_libraries_its_learner_answers_with() -> None:
    asked = set(re.findall(r'extra="(\w+)"', "".join(p.read_text() for p in (ROOT / "services/analysis").glob("*.py"))))
    assert asked == {"sklearn"}
    assert all(f"--extra {extra}" in built("learner") for extra in asked)


def test_only_the_agents_image_has_what_only_agents_read_with() -> None:
    roles = ("agent", "coordinator", "learner")
    left_out = {role: "--no-install-package adbc-driver-postgresql" in built(role) for role in roles}
    brought = {role for role in roles if "--extra postgresql" in built(role) and not left_out[role]}
    assert brought == {"agent"}
    for role in roles:
        assert f"COPY --from=build-{role} /app/.venv" in DOCKERFILE.partition(f"FROM runtime AS {role}\n")[2]


def test_loops_are_built_with_the_image_and_no_compiler_is_in_what_runs() -> None:
    building, _, running = DOCKERFILE.partition("AS runtime")
    assert "install -y --no-install-recommends gcc libc6-dev" in building
    assert "apt-get" not in running
    assert "hatch_build.py" in building
    assert "from commingle.shared.loops import level; level()" in (ROOT / "deploy" / "trim.sh").read_text()


def test_images_are_compiled_where_they_are_built() -> None:
    assert "UV_COMPILE_BYTECODE=1" in DOCKERFILE
    assert "PYTHONDONTWRITEBYTECODE=1" in DOCKERFILE  # whoever runs it cannot


COMPOSE = (ROOT / "docker-compose.yml").read_text()


def services() -> dict[str, str]:
    """The text of each service."""
    whole = COMPOSE.partition("\nservices:\n")[2].partition("\nnetworks:\n")[0]
    parts = re.split(r"^  (\w+):\n", whole, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_clinics_and_learners_do_not_reach_the_database() -> None:
    on = {name: re.findall(r"networks: \[(.*)\]", text) for name, text in services().items()}
    reached = {name for name, networks in on.items() if "database" in "".join(networks)}
    assert reached == {"postgres", "coordinator", "invites"}
    assert all(on[name] or "*clinic" in services()[name] or "network_mode: none" in services()[name] for name in on)
    assert "database: { internal: true }" in COMPOSE


def test_each_image_is_built_once() -> None:
    building = {name: re.findall(r"target: (\w+)", text) for name, text in services().items()}
    assert {name: targets for name, targets in building.items() if targets} == {
        "coordinator": ["coordinator"],
        "registration": ["agent"],
        "learner": ["learner"],
    }


def test_learner_believes_one_coordinator_only() -> None:
    assert "learner.sh" in services()["learner"]
    assert "--coordinator-key" in (ROOT / "deploy" / "compose" / "learner.sh").read_text()
    assert "coordinator_fingerprint" in (ROOT / "deploy" / "compose" / "keys.sh").read_text()


IMAGES = ROOT / "deploy" / "images.sh"
PINNED = f"python:3.11-slim@sha256:{'ab' * 32}", f"registry.example:5000/postgres:15@sha256:{'cd' * 32}"


def test_base_images_are_named_in_one_place_where_a_digest_can_be_put() -> None:
    bases = {line.split()[1] for line in DOCKERFILE.splitlines() if line.startswith("FROM ")}
    assert bases == {"${PYTHON_IMAGE}", "build", "runtime"}
    assert set(re.findall(r"image: (.*)", COMPOSE)) == {
        "${COORDINATOR_IMAGE:-commingle-coordinator:local}",
        "${AGENT_IMAGE:-commingle-agent:local}",
        "${LEARNER_IMAGE:-commingle-learner:local}",
        "${POSTGRES_IMAGE:-postgres:15}",
    }
    assert 'PYTHON_IMAGE: "${PYTHON_IMAGE:-python:3.11-slim}"' in COMPOSE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("python", "postgres", "passes"),
    [
        (*PINNED, True),
        ("python:3.11-slim", PINNED[1], False),
        (PINNED[0], "postgres:15", False),
        (PINNED[0], f"postgres:15@sha256:{'cd' * 31}", False),
        (PINNED[0], "", False),
    ],
)
def test_deployment_with_an_image_that_is_not_named_by_its_digest_is_refused(
    tmp_path: Path, python: str, postgres: str, passes: bool
) -> None:
    (tmp_path / "images.env").write_text(f"PYTHON_IMAGE={python}\nPOSTGRES_IMAGE={postgres}\n")
    for file, expected in ((tmp_path / "images.env", passes), (tmp_path / "none.env", False)):
        environment = os.environ | {"COMMINGLE_IMAGES": str(file)}
        checked = subprocess.run(["/bin/sh", IMAGES, "check"], env=environment, capture_output=True, check=False)
        assert (checked.returncode == 0) is expected, checked.stderr
