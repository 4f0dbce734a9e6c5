"""The fault points themselves: harmless in earnest, all of them driven by tests and told in docs/faults.md."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from commingle.shared.runtime.coordinator_client import MessageKind
from commingle.shared.runtime.faults import VARIABLE, arm_from, reach
from tests.faults.test_kill import COORDINATOR_POINTS, PARTY_POINTS, REGRESSION_POINTS
from tests.world.consortium import Consortium
from tests.world.transport import answering, no_fault

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared", "party_agent", "coordinator", "services")
_DIES_AT_THE_SECOND = """
import os
from commingle.shared.runtime.faults import arm_from, reach
arm_from(os.environ)
for point in ("here", "there", "here", "here"):
    print(point, flush=True)
    reach(point)
"""


def reached_in_the_code() -> set[str]:
    sources = (path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    named = {name for source in sources for name in re.findall(r'faults\.reach\(f?"([^"]+)"\)', source)}
    return {name.replace("{kind}", kind) for name in named for kind in get_args(MessageKind)}


def named_here() -> set[str]:
    text = (Path(__file__).parent / "test_kill.py").read_text()
    lists = (point.partition(":")[0] for point in (*PARTY_POINTS, *REGRESSION_POINTS, *COORDINATOR_POINTS))
    return {*lists, *re.findall(r'"((?:party|coordinator)\.[a-z.]+)(?::\d+)?"', text)}


def test_without_the_variable_reaching_a_point_does_nothing() -> None:
    arm_from({})
    reach("party.debited")


@pytest.mark.slow
def test_process_dies_by_sigkill_when_it_reaches_its_point_for_the_nth_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DIES_AT_THE_SECOND],
        env={VARIABLE: "here:2"},
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split() == [b"here", b"there", b"here"]


def test_every_point_in_the_code_has_a_test_that_kills_there() -> None:
    assert reached_in_the_code() == named_here()


def test_every_point_in_the_code_is_documented() -> None:
    rows = re.findall(r"^\| (`[a-z.]+`(?:, `[a-z.]+`)*) \|", (ROOT / "docs" / "faults.md").read_text(), re.MULTILINE)
    documented = [point for row in rows for point in re.findall(r"[a-z.]+", row)]
    assert sorted(documented) == sorted(reached_in_the_code())


@pytest.mark.slow
def test_log_on_a_full_disk_does_not_end_the_work() -> None:
    script = (
        "import structlog\n"
        "from commingle.shared.runtime.telemetry import configure_logging\n"
        "configure_logging(service='test')\n"
        "for _ in range(1000):\n"
        "    structlog.get_logger().error('cannot be written', detail='x' * 100)\n"
        "print('alive')\n"
    )
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, stderr=full, check=False
        )
    assert done.stdout == b"alive\n"


def test_upload_that_a_proxy_acknowledged_in_the_coordinators_place_is_sent_again(pair: Consortium) -> None:
    release = pair.propose()
    for name in pair.homes:
        pair.step(name)
    pair.coordinator.before = answering(200, b"<h1>Please sign in</h1>", part="/blocks/", content_type="text/html")
    pair.step("clinic")
    charge = pair.charge("clinic", release)
    assert charge is not None
    assert (charge.state, pair.coordinator.received) == ("acked", {})
    pair.coordinator.before = no_fault
    for name in pair.homes:
        pair.step(name)
    assert pair.state(release) == "published"
    assert len(set(pair.coordinator.received["clinic"])) == 1
