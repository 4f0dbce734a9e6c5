"""`commingle party console` as a person meets it: the command, its link, and a real browser."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from commingle.shared.runtime.settings import system_clock
from tests.e2e.test_first_fit import DESK, PHONE, Browser, browsers
from tests.party_agent.cli.test_cli import at
from tests.world.consortium import BY_HAND, Consortium, consortium_of
from tests.world.transport import on_a_socket

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")]


def seen(link: str, profile: Path) -> str:
    """The page a fresh browser ends up at, as its script has left it."""
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--dump-dom")
    done = subprocess.run([str(BROWSER), *options, link], check=True, capture_output=True, text=True, timeout=120)
    return done.stdout


@contextmanager
def console(consortium: Consortium, *options: str) -> Iterator[str]:
    """The link that `party console` prints, as long as it runs."""
    home = str(consortium.homes["clinic"].root)
    command = [sys.executable, "-m", "commingle", "party", "console", "--home", home, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        said = "".join(running.stderr.readline() for _ in range(4))
        try:
            yield re.findall(r"http://\S+", said)[0]
        finally:
            running.terminate()


def asked(consortium: Consortium) -> str:
    """A proposal that waits, in the present."""
    consortium.clock_shows = system_clock()
    release = consortium.propose(title="Length of stay")
    consortium.step("clinic")
    return release


def test_link_of_the_command_opens_the_console_once_in_a_browser(consortium: Consortium, tmp_path: Path) -> None:
    asked(consortium)
    with on_a_socket(consortium.coordinator.handle) as url:
        at(consortium, url)
        with console(consortium) as link:
            first, second = seen(link, tmp_path / "first"), seen(link, tmp_path / "second")
    assert "One proposal waits for your decision" in first
    assert "Length of stay" in first
    assert "It works once" in second
    assert "Length of stay" not in second


def test_schema_is_drafted_and_two_people_approve_in_browsers(tmp_path: Path) -> None:
    policy = BY_HAND.model_copy(update={"approvals": 2})
    consortium = consortium_of(tmp_path, "clinic", "insurer", policy=policy)
    release = asked(consortium)
    table = tmp_path / "stays.csv"
    table.write_text("patient,age,glucose,ward\np1,54,5.8,north\np2,71,6.1,south\n")
    with on_a_socket(consortium.coordinator.handle) as url, browsers() as open_at:
        at(consortium, url)
        with console(consortium) as link:
            draft(operators := open_at(link), table, tmp_path)
            decide(operators, by="Dr. Adams")
            operators.page.get_by_text("waiting, 1 of 2 approvals here").wait_for()
            operators.page.screenshot(path=tmp_path / "first-approval.png", full_page=True)
            with console(consortium, "--person", "Dr. Berg") as second:
                decide(open_at(second), by=None)
            operators.page.reload()
            operators.page.get_by_text("approved, 2 of 2 approvals here").wait_for()
        assert release in consortium.coordinator.releases()
        assert list(consortium.coordinator.found(release).approvals) == ["clinic"]
    tokens = consortium.homes["clinic"].root / "tokens.json"
    assert "Dr. Berg" not in tokens.read_text()  # the link ended with its console


def draft(console: Browser, table: Path, pictures: Path) -> None:
    """The owner has columns proposed, corrects them and registers."""
    page = console.page
    page.get_by_role("link", name="Data sets").click()
    page.get_by_label("Name in studies").fill("stays")
    page.get_by_label("File on this machine").fill(str(table))
    page.get_by_label("Column that identifies").fill("patient")
    listed = "is not protected: all members hold the same people"  # as `main` is
    page.get_by_label("Who is in the table").select_option(label=listed)
    page.get_by_role("button", name="Draft").click()
    page.get_by_text("No row was read.").wait_for()
    assert page.get_by_label("from", exact=True).nth(0).input_value() == "0"
    page.get_by_label("unit").nth(1).fill("mmol/l")
    page.get_by_role("button", name="Propose again").click()
    page.get_by_text("public knowledge of glucose").wait_for()
    page.get_by_label("to", exact=True).nth(0).fill("100")
    page.screenshot(path=pictures / "draft.png", full_page=True)
    assert console.fits_on_a_phone()
    page.set_viewport_size(PHONE)
    page.screenshot(path=pictures / "draft-on-a-phone.png", full_page=True)
    page.set_viewport_size(DESK)
    page.get_by_label("I took no bound and no level from the rows.").check()
    page.get_by_role("button", name="Read and register").click()
    page.get_by_text("a number from 0 to 100 years").wait_for()


def decide(console: Browser, *, by: str | None) -> None:
    page = console.page
    page.get_by_role("link", name="Proposals").click()
    page.get_by_role("link", name="Length of stay").click()
    if by is not None:
        page.get_by_label("Your name").fill(by)
    page.get_by_label("I have read this page.").check()
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("heading", name="Decision").wait_for()
