from pathlib import Path

import httpx
import pytest

from benchmarks.consortium import Commingle
from commingle.__main__ import main
from tests.world.released import COORDINATOR, ServingCoordinator, published
from tests.world.transport import on_a_socket


@pytest.mark.slow
def test_served_learner_fits_a_release_of_a_real_coordinator_address(tmp_path: Path) -> None:
    release_id, files = published()
    with on_a_socket(ServingCoordinator.serving((release_id, files)).answer) as coordinator:
        options = ("--coordinator", coordinator, "--coordinator-key", COORDINATOR.fingerprint, "--cache", tmp_path)
        with Commingle().reached("learner", "serve", *options) as url:
            assert httpx.get(f"{url}/readyz", timeout=60).json()["coordinator"] == "reachable"
            body = {"target": "age", "features": ["bmi"]}
            fitted = httpx.post(f"{url}/v1/releases/{release_id}/fits", json=body, timeout=60).json()
            assert fitted["target"] == "age"


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


@pytest.mark.parametrize("command", [["learner", "serve", "--coordinator", "https://hub"], ["members", "https://hub"]])
def test_cache_that_is_no_folder_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--cache", __file__])
    assert ended.value.code == 2
    assert "is a file" in capsys.readouterr().err
