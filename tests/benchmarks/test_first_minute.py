import subprocess
import sys

import pytest

from benchmarks.first_minute import CASES, Figures, timed, unit_seconds

BUSY = "import time\nwhile time.process_time() < 0.2: pass\n"


@pytest.mark.skipif(sys.platform != "linux", reason="orphans become children of another process on Linux only")
def test_processor_seconds_of_a_process_that_outlives_its_parent_count() -> None:
    leave = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BUSY!r}])"
    assert 0.2 < (timed("", lambda: subprocess.run([sys.executable, "-c", leave], check=True)).cpu or 0) < 3


def test_what_is_not_known_is_no_figure() -> None:
    assert Figures("a demo", 1.0, 2.0).row(0.5) == "| a demo | 1.00 | 2.00 | 4.0 | 0.500 |"
    assert Figures("a picture", 1.0, None).row(0.5) == "| a picture | 1.00 | - | - | 0.500 |"


def test_unit_is_measured_here() -> None:
    assert 0.05 < unit_seconds() < 30
    assert [*CASES] == ["install", "starts", "demo", "release", "fit", "verify"]
