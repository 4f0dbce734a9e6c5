"""What only shows in a process of its own: what gets imported, printed, logged and returned."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
import httpx
import pytest
from fastapi import FastAPI

from commingle.__main__ import commingle, main
from commingle.services.testing.processes import environment
from commingle.shared.errors import CommingleError
from commingle.shared.runtime.cli import threads
from commingle.shared.runtime.errors import PortInUseError, SettingsError
from commingle.shared.runtime.pool import ProcessWorker
from commingle.shared.runtime.server import serve


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
def test_command_line_loads_no_room_but_shared() -> None:
    script = (
        "import sys, json, commingle.__main__\n"
        "from click.testing import CliRunner\n"
        "assert CliRunner().invoke(commingle.__main__.commingle, ['-h']).exit_code == 0\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = run("-c", script)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert "commingle.shared.runtime" in loaded
    assert not {"commingle.coordinator", "commingle.party_agent", "commingle.services", "benchmarks"} & loaded


@contextmanager
def failing_command(error: BaseException) -> Iterator[None]:
    @click.command("fail")
    @click.option("--json", "as_json", is_flag=True)
    def fail(**_: object) -> None:
        raise error

    commingle.add_command(fail)
    try:
        yield
    finally:
        del commingle.commands["fail"]


def exit_code(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


def test_fault_is_a_message_with_its_remedy_and_exit_code_one_and_with_json_a_document_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with failing_command(CommingleError("it broke", remedy="Mend it.")):
        assert exit_code("fail") == 1
        assert capsys.readouterr() == ("", "Error: it broke\n  Mend it.\n")
        assert exit_code("fail", "--json") == 1
    said = {"error": {"code": "fault", "message": "it broke", "remedy": "Mend it."}}
    assert json.loads(capsys.readouterr().out) == said


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()], ids=lambda error: type(error).__name__)
def test_interruption_is_exit_code_130(error: BaseException) -> None:
    with failing_command(error):
        assert exit_code("fail") == 130


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"]])
def test_unknown_command_or_option_is_exit_code_two(arguments: list[str]) -> None:
    assert exit_code(*arguments) == 2


@pytest.mark.parametrize(
    ("host", "port", "said", "option"),
    [
        ("127.0.0.1", None, "127.0.0.1:", "--port"),  # taken
        ("127.0.0.1", 70_000, "70000", "--port"),
        ("127.0.0.1", -1, "-1", "--port"),
        ("192.0.2.1", 0, r"192\.0\.2\.1", "--host"),  # another machine's
        ("nowhere.invalid", 0, r"nowhere\.invalid", "--host"),
    ],
)
def test_address_that_cannot_be_listened_on_is_our_error_that_names_it_and_the_option_to_change(
    host: str, port: int | None, said: str, option: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"{said}{used}" if port is None else said) as refused:
            serve(FastAPI(), host=host, port=used if port is None else port)
    assert option in refused.value.remedy
    assert "while attempting" not in str(refused.value)


SERVICE = """
import logging
from fastapi import FastAPI
from commingle.shared.runtime.telemetry import configure_logging
from commingle.shared.runtime.problem import install_problems
from commingle.shared.runtime.server import serve

app = FastAPI()
install_problems(app, {})

@app.get("/boom")
def boom() -> None:
    two_lines = chr(10).join(["one line", "another"])
    logging.getLogger("some library").warning(two_lines, exc_info=RuntimeError("SENTINEL of a patient"))
    raise RuntimeError("SENTINEL of a patient")

configure_logging(service="test")
serve(app, host="127.0.0.1", port=0)
"""


@pytest.mark.slow
def test_service_announces_its_address_serves_logs_no_message_of_a_fault_and_stops_when_told() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout
        announced: dict[str, str] = json.loads(process.stdout.readline())
        status = httpx.get(f"{announced['url']}/boom", timeout=60).status_code
        process.terminate()
        _, log = process.communicate(timeout=60)
    assert announced["event"] == "listening"
    assert announced["url"].startswith("http://127.0.0.1:")
    assert status == 500
    said = {each["event"]: each for each in map(json.loads, log.splitlines())}
    assert said["unexpected fault"]["level"] == "error"
    assert said[chr(10).join(["one line", "another"])]["library"] == "some library"
    assert "SENTINEL" not in log
    assert process.returncode in (0, -15)


@pytest.mark.slow
def test_process_of_a_command_leaves_out_what_only_other_programs_use() -> None:
    done = run(
        "-c",
        "from commingle.__main__ import leave_out_unused; leave_out_unused(); import pyarrow as pa, sys\n"
        "import httpx, structlog; print(pa.array([1.5]).to_pylist(), 'pandas' in sys.modules)",
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[1.5] False"), done.stderr


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
