"""What the container image is built with."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_image_keeps_the_libraries_its_learner_answers_with() -> None:
    built = re.findall(r"uv sync (.*)", (ROOT / "deploy" / "Dockerfile").read_text())
    asked = set(re.findall(r'extra="(\w+)"', "".join(p.read_text() for p in (ROOT / "services/analysis").glob("*.py"))))
    assert asked == {"sklearn"}
    assert len(built) == 2  # the second one would remove what only the first one installs
    assert all(f"--extra {extra}" in line for line in built for extra in asked)
