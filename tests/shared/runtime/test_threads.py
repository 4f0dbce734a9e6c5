"""Every process that computes has one thread of linear algebra, unless a setting says otherwise."""

import json
import os
import subprocess
import sys

import pytest

from commingle.services.testing.processes import environment
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.pool import ProcessWorker
from commingle.shared.runtime.threads import threads

NAMES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
AS_A_COMMAND = """
import json, sys
from commingle.__main__ import start
sys.argv = ["commingle", "--version"]
try:
    start()
except SystemExit as ended:
    if ended.code:
        raise
import numpy, scipy.linalg
from threadpoolctl import threadpool_info
print(json.dumps([pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]))
"""


def pools() -> list[int]:
    """The threads of each library of linear algebra in the process that this is called in."""
    import numpy as np  # noqa: F401 - what is asked about
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in {*NAMES, "COMMINGLE_THREADS"}}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ("1", "1", "1")),
        ({"COMMINGLE_THREADS": "4"}, ("4", "4", "4")),
        ({"COMMINGLE_THREADS": "4", "OMP_NUM_THREADS": "2"}, ("4", "2", "4")),
        ({"OPENBLAS_NUM_THREADS": "8"}, ("8", "1", "1")),
    ],
)
def test_variables_are_one_or_the_setting_unless_they_are_set(
    environment: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert tuple(threads(environment)[name] for name in NAMES) == expected


@pytest.mark.parametrize("count", ["", "0", "-1", "many", "1.5", "²"])
def test_setting_that_is_no_number_of_threads_is_refused(count: str) -> None:
    with pytest.raises(SettingsError, match="COMMINGLE_THREADS"):
        threads({"COMMINGLE_THREADS": count})


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "expected"), [({}, 1), ({"COMMINGLE_THREADS": "2"}, 2)])
def test_command_that_was_started_has_one_thread_or_those_of_the_setting(
    environment: dict[str, str], expected: int
) -> None:
    command = [sys.executable, "-c", AS_A_COMMAND]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**clean(), **environment})
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) >= 2, "NumPy and SciPy bring one each"
    assert set(found) == {min(expected, os.cpu_count() or 1)}


@pytest.mark.slow
def test_command_refuses_a_setting_that_is_no_number_with_a_remedy() -> None:
    command, environment = [sys.executable, "-m", "commingle", "--version"], {**clean(), "COMMINGLE_THREADS": "all"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: COMMINGLE_THREADS is 'all'")


@pytest.mark.slow
def test_worker_that_computes_for_strangers_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    worker = ProcessWorker()
    try:
        assert set(worker.run(pools, ())) == {1}
    finally:
        worker.stop()


def test_processes_of_a_simulation_are_told_to_have_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    told = environment()
    assert [told[name] for name in NAMES] == ["1", "1", "1"]
