"""docs/quickstart.md as a newcomer follows it: three CSV files, ten commands, and browsers, between real processes."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import ViewportSize, expect, sync_playwright

from tests.world.clinics import Clinics, clinics, write_study, write_tables

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")]
N = 400
PHONE = ViewportSize(width=390, height=800)
DESK = ViewportSize(width=1000, height=800)


@contextmanager
def browsers() -> Iterator[Callable[[str], "Browser"]]:
    """Opens a browser of its own at an address."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        opened: list[Browser] = []

        def open_at(address: str) -> Browser:
            opened.append(Browser(chromium, address))
            return opened[-1]

        yield open_at
        complaints = [said for one in opened for said in one.complaints]
        chromium.close()
        assert complaints == []


class Browser:
    """A page in a fresh profile. `complaints` is what the browser itself objects to."""

    def __init__(self, chromium: Chromium, address: str) -> None:
        self.page = chromium.new_context(viewport=DESK, accept_downloads=True).new_page()
        self.page.set_default_timeout(60_000)
        self.complaints: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(address)

    def fits_on_a_phone(self) -> bool:
        """Within five seconds: a page that is being loaded has no document for a moment, and then no styles."""
        self.page.set_viewport_size(PHONE)
        for _ in range(50):
            fits = self.page.evaluate("document.documentElement?.scrollWidth <= window.innerWidth")
            if fits:
                break
            self.page.wait_for_timeout(100)
        self.page.set_viewport_size(DESK)
        return bool(fits)


def link_of(three: Clinics, *command: str) -> str:
    found = three.start(*command).until(r"(http://\S+/enter/\S+)\s")
    return found[1]


def go_through(three: Clinics, open_at: "Callable[[str], Browser]", pictures: Path) -> None:
    url = three.found_consortium()

    hub = open_at(link_of(three, "coordinator", "console", "--home", "hub"))
    hub.page.get_by_text("Nothing has been proposed yet.").wait_for()
    hub.page.get_by_role("link", name="Members").click()
    for name in three.agents:
        hub.page.get_by_role("rowheader", name=name).wait_for()
    hub.page.get_by_role("link", name="Rounds").click()
    three.run("coordinator", "propose", "study.json", "--home", "hub", "--coordinator", url)
    hub.page.get_by_role("link", name="Length of stay").click()  # it has appeared by itself
    hub.page.get_by_text("It waits for the approval of").wait_for()
    hub.page.screenshot(path=pictures / "coordinator.png")

    for name in three.agents:
        decide(open_at(link_of(three, "party", "console", "--home", name)))
    hub.page.locator(".chip.good", has_text="published").wait_for()  # nobody has loaded the page again
    assert hub.page.get_by_text("It waits for").count() == 0
    hub.page.screenshot(path=pictures / "published.png")

    key = json.loads(three.run("party", "status", "--home", "ward", "--json"))["consortia"][0]["fingerprint"]
    serving = ("learner", "serve", "--coordinator", url, "--coordinator-key", key, "--port", "0")
    fit(open_at(three.start(*serving).announced()["url"]), pictures)


def decide(console: Browser) -> None:
    """A person finds the proposal, reads it and approves, by the keyboard alone."""
    page = console.page
    while not (found := page.get_by_role("link", name="Length of stay")).count():
        page.reload()
    found.focus()
    page.keyboard.press("Enter")
    page.get_by_label("Your name").wait_for()  # the page of the proposal, and not the list it was opened from
    page.get_by_label("Your name").focus()
    page.keyboard.type("Dr. Berg")
    page.get_by_label("I have read this page.").focus()
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("approved here").wait_for()
    page.get_by_text("approval by Dr. Berg").wait_for()


def fit(learner: Browser, pictures: Path) -> None:
    page = learner.page
    page.get_by_role("link", name="Length of stay").click()
    page.get_by_label("Label, what is to be explained").select_option("stay")
    expect(page.get_by_label("stay", exact=True)).to_be_disabled()
    page.get_by_role("button", name="Fit").click()
    page.get_by_role("heading", name="Linear model of stay").wait_for()
    assert page.locator("svg .effect").count() == 2
    page.screenshot(path=pictures / "learner.png")
    with page.expect_download() as downloaded:
        page.get_by_role("link", name="table (CSV)").click()
    lines = Path(downloaded.value.path()).read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["term", "(intercept)", "age", "crp"]
    page.get_by_role("link", name="Interface").click()
    page.get_by_role("link", name="POST /v1/releases/{release}/fits").click()


def test_three_clinics_go_from_csv_files_to_a_fit_in_a_browser(tmp_path: Path) -> None:
    write_tables(tmp_path, n=N)
    write_study(tmp_path / "study.json", n=N, epsilon=2)
    with clinics(tmp_path) as three, browsers() as open_at:
        go_through(three, open_at, tmp_path)
