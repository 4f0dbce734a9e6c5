import json
import signal
import subprocess
import sys

import httpx
import pytest

from commingle.__main__ import main
from tests.world.released import COORDINATOR, ServingCoordinator, published
from tests.world.transport import on_a_socket


@pytest.mark.slow
def test_served_learner_fits_a_release_of_a_real_coordinator_address(tmp_path: object) -> None:
    release_id, files = published()
    with on_a_socket(ServingCoordinator.serving((release_id, files)).answer) as coordinator:
        command = [sys.executable, "-m", "commingle", "learner", "serve"]
        options = ["--coordinator", coordinator, "--coordinator-key", COORDINATOR.fingerprint]
        options += ["--cache", str(tmp_path), "--port", "0"]
        with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                url = json.loads(process.stdout.readline())["url"]
                assert httpx.get(f"{url}/readyz", timeout=60).json()["coordinator"] == "reachable"
                body = {"target": "age", "features": ["bmi"]}
                fitted = httpx.post(f"{url}/v1/releases/{release_id}/fits", json=body, timeout=60).json()
                assert fitted["target"] == "age"
            finally:
                process.send_signal(signal.SIGTERM)
            process.wait(60)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--coordinator", "hub"), "not an address"),
        (("--coordinator", "https://hub", "--coordinator-key", "x"), "not a key's fingerprint"),
        (("--coordinator", "https://hub", "--host", "203.0.113.1"), "cannot listen"),
    ],
)
def test_settings_that_cannot_be_are_one_error(
    options: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["learner", "serve", *options])
    assert ended.value.code == 1
    assert expected in capsys.readouterr().err
