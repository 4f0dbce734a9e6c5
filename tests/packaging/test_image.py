"""What the container image is built with."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_image_keeps_the_libraries_its_learner_answers_with() -> None:
    built = re.findall(r"uv sync (.*)", (ROOT / "deploy" / "Dockerfile").read_text())
    asked = set(re.findall(r'extra="(\w+)"', "".join(p.read_text() for p in (ROOT / "services/analysis").glob("*.py"))))
    assert asked == {"sklearn"}
    assert len(built) == 2  # the second one would remove what only the first one installs
    assert all(f"--extra {extra}" in line for line in built for extra in asked)


IMAGES = ROOT / "deploy" / "images.sh"
PINNED = f"python:3.11-slim@sha256:{'ab' * 32}", f"registry.example:5000/postgres:15@sha256:{'cd' * 32}"


def test_base_images_are_named_in_one_place_where_a_digest_can_be_put() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    assert {line.split()[1] for line in dockerfile.splitlines() if line.startswith("FROM ")} == {"${PYTHON_IMAGE}"}
    compose = (ROOT / "docker-compose.yml").read_text()
    images = re.findall(r"image: (.*)", compose)
    assert images == ["${COMMINGLE_IMAGE:-commingle:local}", "${POSTGRES_IMAGE:-postgres:15}"]
    assert 'PYTHON_IMAGE: "${PYTHON_IMAGE:-python:3.11-slim}"' in compose


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
