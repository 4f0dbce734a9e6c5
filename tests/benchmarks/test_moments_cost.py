import os
import subprocess
import sys
from pathlib import Path

from benchmarks.million import _uses


def test_process_of_a_simulation_goes_by_the_name_of_its_output(tmp_path: Path) -> None:
    waiting = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (tmp_path / "003-coordinator.out").open("wb") as out, subprocess.Popen(waiting, stdout=out) as server:
        found = _uses(os.getpid())
        server.kill()
    assert (found[server.pid].role, found[os.getpid()].role) == ("coordinator", "simulation")
    assert found[os.getpid()].megabytes > 1


def test_processes_that_are_not_its_own_are_not_counted() -> None:
    assert set(_uses(-1)) == set()
