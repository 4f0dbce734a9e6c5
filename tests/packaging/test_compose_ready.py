"""The health check of the demonstration's clinics."""

import subprocess
import sys
from pathlib import Path

import pytest

from commingle.party_agent.edge.app import LocalApi, create_app
from commingle.party_agent.edge.loop import Loops
from commingle.shared.runtime.errors import UnreachableError
from tests.world.consortium import consortium_of
from tests.world.local_api import serving_at

SCRIPT = Path(__file__).parents[2] / "deploy" / "compose" / "ready.py"


def ready(folder: Path) -> bool:
    done = subprocess.run([sys.executable, SCRIPT, folder], check=False, capture_output=True)
    return done.returncode == 0


@pytest.mark.slow
def test_clinic_is_ready_while_its_agent_is(tmp_path: Path) -> None:
    consortium = consortium_of(tmp_path, "clinic")
    assert not ready(tmp_path)
    with consortium.agents("clinic") as agents:
        loops = Loops(agents)
        with serving_at(agents.home.socket, create_app(LocalApi(agents, loops, peer_is_operator=True))):
            assert ready(tmp_path)
            loops.all[0].trouble = UnreachableError("no answer", remedy="Check the network.")
            assert not ready(tmp_path)
