"""What keeps the tiers apart is a rule and not a list."""

import multiprocessing
import os
import re
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


def test_ci_runs_every_tier_and_make_test_the_fast_one() -> None:
    root = Path(__file__).parents[1]
    recipes = (root / "Makefile").read_text()
    runs = [line.strip() for line in recipes.splitlines() if "/pytest " in line]
    assert runs == ['$(BIN)/pytest $(if $(T),$(T),$(PARALLEL) -m "not slow")', "$(BIN)/pytest $(PARALLEL)"]
    assert re.search(r"^PARALLEL := -n \d --dist worksteal$", recipes, re.MULTILINE)
    steps = (root / ".ci" / "run").read_text().splitlines()
    assert [step for step in steps if step.startswith("make ")] == ["make lint", "make test-all"]
