import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commingle.services.errors import ProcessError
from commingle.services.testing.processes import Processes

pytestmark = pytest.mark.slow
SERVER = ("learner", "serve", "--coordinator", "http://127.0.0.1:9", "--port", "0")
PARENT = f"""
import sys, time
from pathlib import Path
from commingle.services.testing.processes import Processes
with Processes(Path(sys.argv[1])) as processes:
    server = processes.start("learner", {SERVER!r})
    print(server.process.pid, flush=True)
    processes.address(server)
    print("listening", flush=True)
    time.sleep(300)
"""


def _gone(pid: int, *, within_seconds: float) -> bool:
    deadline = time.monotonic() + within_seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


def test_leaving_the_context_by_an_exception_stops_servers(tmp_path: Path) -> None:
    servers = []

    def start_and_fail() -> None:
        with Processes(tmp_path) as processes:
            servers.append(processes.start("learner", SERVER))
            assert processes.address(servers[0]).startswith("http://127.0.0.1:")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        start_and_fail()
    assert servers[0].process.exitcode is not None


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_killing_the_parent_outright_leaves_no_child(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert parent.stdout.readline() == "listening\n"
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        assert _gone(child, within_seconds=60)


def test_command_that_fails_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes, pytest.raises(ProcessError, match=r"job failed\n    Usage(.|\n)*nonsense"):
        processes.run({"job": [("nonsense",)]})


def test_jobs_share_workers_and_keep_their_answers_apart(tmp_path: Path) -> None:
    homes = {name: ("--home", tmp_path / name) for name in "abcd"}
    commands = {
        name: [("coordinator", "init", *home), ("coordinator", "invite", *home, "--party", name)]
        for name, home in homes.items()
    }
    with Processes(tmp_path / "logs") as processes:
        found = processes.run(commands)
        again = processes.run({"e": [("coordinator", "invite", *homes["a"], "--party", "e")]})
    assert [answers[1]["party"] for answers in found.values()] == list("abcd")
    assert again["e"][0]["party"] == "e"
    # a fork that shared its random numbers with another would make the same keys
    assert len({answers[0]["fingerprint"] for answers in found.values()}) == len(homes)
    assert len(list((tmp_path / "logs").glob("*-commands.log"))) <= (os.cpu_count() or 1)


def test_server_that_ends_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        server = processes.start("server", ("nonsense",))
        with pytest.raises(ProcessError, match=r"server ended with code 2"):
            processes.address(server)
        with pytest.raises(ProcessError, match=r"No such command"):
            processes.check()


def test_children_are_forked_from_a_process_of_one_thread_that_has_loaded_every_command() -> None:
    script = (
        "import json, os, sys, threading\n"
        "from commingle.services.testing import preloaded\n"
        "print(json.dumps([threading.active_count(), sorted(sys.modules)]))"
    )
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    threads, loaded = json.loads(run.stdout)
    assert threads == 1
    assert {"commingle.coordinator.http.app", "commingle.party_agent.cli.serve", "numpy", "pyarrow"} <= set(loaded)
