"""What only shows in a process of its own: what gets imported, printed, logged and returned."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
import httpx
import pytest
from click.testing import CliRunner
from fastapi import FastAPI

from commingle.__main__ import commingle, main
from commingle.shared.errors import CommingleError
from commingle.shared.runtime.cli import LazyGroup
from commingle.shared.runtime.errors import PortInUseError
from commingle.shared.runtime.server import serve


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
def test_command_line_loads_no_room_but_shared() -> None:
    script = (
        "import sys, json, commingle.__main__\n"
        "from click.testing import CliRunner\n"
        "assert CliRunner().invoke(commingle.__main__.commingle, ['--help']).exit_code == 0\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = run("-c", script)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert "commingle.shared.runtime" in loaded
    assert not {"commingle.coordinator", "commingle.party_agent", "commingle.services", "benchmarks"} & loaded


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_command_with_its_purpose(flag: str) -> None:
    result = CliRunner().invoke(commingle, [flag])
    assert result.exit_code == 0
    for name in ("simulate", "fit", "verify", "coordinator", "party", "learner"):
        assert f"  {name} " in result.output


@pytest.mark.slow
def test_module_answers_with_its_version() -> None:
    done = run("-m", "commingle", "--version")
    assert done.returncode == 0
    assert done.stdout.startswith("commingle, version ")


def test_lazy_group_imports_a_command_when_it_is_asked_for() -> None:
    group = LazyGroup(name="group", commands_at={"later": ("no.such.module", "Comes later.")})
    context = click.Context(group)
    assert group.list_commands(context) == ["later"]
    assert group.get_command(context, "unknown") is None
    with pytest.raises(ModuleNotFoundError):
        group.get_command(context, "later")


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
    ("host", "port", "said"),
    [
        ("127.0.0.1", None, "127.0.0.1:"),  # taken
        ("127.0.0.1", 70_000, "70000"),
        ("127.0.0.1", -1, "-1"),
        ("192.0.2.1", 0, r"192\.0\.2\.1"),  # another machine's
    ],
)
def test_address_that_cannot_be_listened_on_is_our_error_that_names_it(host: str, port: int | None, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"{said}{used}" if port is None else said):
            serve(FastAPI(), host=host, port=used if port is None else port)


SERVICE = """
from fastapi import FastAPI
from commingle.shared.runtime.middleware import configure_logging
from commingle.shared.runtime.problem import install_problems
from commingle.shared.runtime.server import serve

app = FastAPI()
install_problems(app, {})

@app.get("/boom")
def boom() -> None:
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
    assert "unexpected fault" in log
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
