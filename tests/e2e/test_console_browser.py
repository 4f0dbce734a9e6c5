"""`commingle party console` as a person meets it: the command, its link, and a real browser."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commingle.shared.runtime.settings import system_clock
from tests.party_agent.test_cli import at
from tests.world.consortium import BY_HAND, consortium_of
from tests.world.transport import on_a_socket

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")]


def seen(link: str, profile: Path) -> str:
    """The page a fresh browser ends up at, as its script has left it."""
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--dump-dom")
    done = subprocess.run([str(BROWSER), *options, link], check=True, capture_output=True, text=True, timeout=120)
    return done.stdout


def test_link_of_the_command_opens_the_console_once_in_a_browser(tmp_path: Path) -> None:
    consortium = consortium_of(tmp_path, "clinic", "insurer", policy=BY_HAND)
    consortium.clock_shows = system_clock()
    consortium.propose(title="Length of stay")
    consortium.step("clinic")
    home = str(consortium.homes["clinic"].root)
    with on_a_socket(consortium.coordinator.handle) as url:
        at(consortium, url)
        command = [sys.executable, "-m", "commingle", "party", "console", "--home", home]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr is not None
            said = "".join(running.stderr.readline() for _ in range(4))
            [link] = re.findall(r"http://\S+", said)
            try:
                first, second = seen(link, tmp_path / "first"), seen(link, tmp_path / "second")
            finally:
                running.terminate()
    assert "Waiting for this party" in first
    assert "Length of stay" in first
    assert "It works once" in second
    assert "Length of stay" not in second
