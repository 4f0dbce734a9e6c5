"""What the container image is built with."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()


def test_image_has_the_libraries_that_its_roles_answer_with() -> None:
    assert set(re.findall(r"--extra (\w+)", DOCKERFILE)) == {"postgresql", "sso", "otel"}
    learner = [p.read_text() for folder in ("analysis", "learner") for p in (ROOT / "services" / folder).glob("*.py")]
    assert "MissingExtraError" not in "".join(learner)


def test_loops_are_built_with_the_image_and_no_compiler_is_in_what_runs() -> None:
    building, _, running = DOCKERFILE.rpartition("\nFROM ")
    assert "install -y --no-install-recommends gcc libc6-dev" in building
    assert "apt-get" not in running
    assert "hatch_build.py" in building
    assert "\nlevel()" in (ROOT / "deploy" / "trim.sh").read_text()


COMPOSE = (ROOT / "docker-compose.yml").read_text()


def services() -> dict[str, str]:
    whole = COMPOSE.partition("\nservices:\n")[2].partition("\nnetworks:\n")[0]
    parts = re.split(r"^  ([\w-]+):(?: [&#].*)?\n", whole, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_clinics_and_learners_do_not_reach_the_database() -> None:
    on = {name: re.findall(r"networks: \[(.*)\]", text) for name, text in services().items()}
    reached = {name for name, networks in on.items() if "database" in "".join(networks)}
    assert reached == {"postgres", "coordinator", "invites"}
    assert all(on[name] or "*clinic" in services()[name] or "network_mode: none" in services()[name] for name in on)
    assert "database: { internal: true }" in COMPOSE


def test_the_one_image_is_built_once() -> None:
    assert [name for name, text in services().items() if "build:" in text] == ["keys"]


def test_no_service_depends_on_one_that_up_does_not_start() -> None:
    """`down` would leave its container, which then names networks that are gone."""
    tools = {name for name, text in services().items() if "profiles:" in text or "*propose" in text}
    assert tools == {"propose", "fit"}
    assert not [name for name, text in services().items() if re.search(r"^      (propose|fit):", text, re.MULTILINE)]


def test_learner_believes_one_coordinator_only() -> None:
    assert "learner.sh" in services()["learner"]
    assert "--coordinator-key" in (ROOT / "deploy" / "compose" / "learner.sh").read_text()
    assert "coordinator_fingerprint" in (ROOT / "deploy" / "compose" / "keys.sh").read_text()


IMAGES = ROOT / "deploy" / "images.sh"
PINNED = f"python:3.11-slim@sha256:{'ab' * 32}", f"registry.example:5000/postgres:15@sha256:{'cd' * 32}"


def test_base_images_are_named_in_one_place_where_a_digest_can_be_put() -> None:
    bases = {line.split()[1] for line in DOCKERFILE.splitlines() if line.startswith("FROM ")}
    assert bases == {"${PYTHON_IMAGE}", "scratch"}
    assert set(re.findall(r"image: (.*)", COMPOSE)) == {
        "${COMMINGLE_IMAGE:-commingle:local}",
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


@pytest.mark.slow
@pytest.mark.parametrize("given", ["", "PYTHON_IMAGE=local:1"])
def test_published_image_is_of_a_base_that_is_pinned_unless_another_is_named(tmp_path: Path, given: str) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "images.env").write_text(f"PYTHON_IMAGE={PINNED[0]}\n")
    command = ["make", "-n", "-f", str(ROOT / "Makefile"), "-o", ".venv/.ready", "images", *given.split()]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert ("sh deploy/images.sh check" in told) is not bool(given)
    assert (f"materials.py images images {PINNED[0].replace('@sha256:', '=')} >" in told) is not bool(given)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["dist", "images"])
def test_release_outside_a_checkout_is_refused_before_anything_is_built(tmp_path: Path, target: str) -> None:
    command = ["make", "-f", str(ROOT / "Makefile"), "-o", ".venv/.ready", target]
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert f"make {target} works in a git checkout only" in done.stdout


@pytest.mark.slow
def test_provenance_without_the_digest_of_what_went_in_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "deploy" / "materials.py"), "images", str(tmp_path), "python:3.11-slim="]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (made.returncode, made.stdout) == (1, "")
    assert "no SHA-256 of python:3.11-slim" in made.stderr
