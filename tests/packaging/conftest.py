"""The image, built where a Docker engine answers."""

import os
import shutil

import pytest

from tests.packaging.engine import ROOT, CommandError, docker

BASE = os.environ.get("PYTHON_IMAGE", "python:3.11-slim")
IMAGE, POSTGRES_IMAGE = "commingle:tested", "commingle-postgres:tested"
_BUILD_SECONDS = 1800.0


def _have(image: str) -> None:
    try:
        docker("image", "inspect", image)
    except CommandError:
        docker("pull", image)


@pytest.fixture(scope="session")
def image() -> str:
    if shutil.which("docker") is None:
        pytest.skip("there is no Docker on this machine")
    try:
        docker("info")
        _have(BASE)
    except CommandError as error:
        pytest.skip(f"no Docker engine answers, or it has no base image and no registry gives it: {error}")
    arguments = ("--build-arg", f"PYTHON_IMAGE={BASE}", "-t", IMAGE, str(ROOT))
    docker("build", "-q", "-f", str(ROOT / "deploy" / "Dockerfile"), *arguments, seconds=_BUILD_SECONDS)
    return IMAGE


@pytest.fixture(scope="session")
def postgres_image(image: str) -> str:
    """The official one where there is one."""
    del image  # whose engine answers
    official = os.environ.get("POSTGRES_IMAGE", "postgres:15")
    try:
        _have(official)
    except CommandError:
        folder = str(ROOT / "deploy" / "postgres-from-debian")
        arguments = ("--build-arg", f"PYTHON_IMAGE={BASE}", "-t", POSTGRES_IMAGE, folder)
        docker("build", "-q", *arguments, seconds=_BUILD_SECONDS)
        return POSTGRES_IMAGE
    return official
