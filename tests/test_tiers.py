"""What keeps the tiers apart is a rule and not a list."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run([sys.executable, "--version"], check=True),
        lambda: os.posix_spawn(sys.executable, [sys.executable, "--version"], {}),
        lambda: os.system("true"),  # noqa: S605, S607 - it must not get that far
        os.fork,
        lambda: multiprocessing.get_context("fork").Process(target=int).start(),
    ],
    ids=["subprocess", "posix_spawn", "system", "fork", "multiprocessing"],
)
def test_fast_test_cannot_start_a_process(start: Callable[[], object]) -> None:
    with pytest.raises(BaseException, match=r"needs @pytest\.mark\.slow") as refused:
        start()
    assert not isinstance(refused.value, Exception), "what is tested would swallow it"


@pytest.mark.slow
def test_slow_test_can(capfd: pytest.CaptureFixture[str]) -> None:
    subprocess.run([sys.executable, "--version"], check=True)
    assert capfd.readouterr().out.startswith("Python")


def test_make_and_ci_run_every_tier() -> None:
    """No test is in neither: one tier is the marker, the other its absence."""
    root = Path(__file__).parents[1]
    recipes = (root / "Makefile").read_text()
    assert '-m "not slow"' in recipes
    assert "-m slow" in recipes
    steps = (root / ".ci" / "run").read_text().splitlines()
    assert [step for step in steps if step.startswith("make ")] == ["make lint", "make test", "make test-slow"]
