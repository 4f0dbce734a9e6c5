import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.keyed_join import _cpu_of_children, joins


def test_environment_without_the_peer_is_named_with_its_error() -> None:
    with pytest.raises(SystemExit, match=r"(?s)openmined-psi failed: .*private_set_intersection"):
        joins(Path(sys.executable), 10, 0.8)


def test_processor_time_is_that_of_whoever_descends_from_a_process() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:  # noqa: S607 - no path of our own
        found = _cpu_of_children(os.getpid())
        child.terminate()
    assert child.pid in found
    assert os.getpid() not in found
