"""Every page of every service in a real browser: at three widths and in both modes."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Page, sync_playwright

from commingle import ReleaseClient
from commingle.coordinator.http.console import create_console as coordinator_console
from commingle.party_agent.console.app import create_console as agent_console
from commingle.party_agent.edge.api import LocalApi
from commingle.party_agent.edge.app import create_app as local_api
from commingle.party_agent.edge.client import PartyClient
from commingle.services.learner.app import create_app as learner_app
from commingle.services.learner.source import ReleaseSource
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.runtime.pages.doors import LinkDoor, Session
from commingle.shared.runtime.server import Application, Served, listen, serving
from commingle.shared.runtime.settings import system_clock
from tests.world.consortium import BY_HAND, Consortium, consortium_of, strictly
from tests.world.released import (
    COORDINATOR,
    ServingCoordinator,
    published_numbers,
    published_regions,
    published_survival,
    published_tables,
)
from tests.world.transport import InProcess, pool_of_threads

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")]
WIDTHS = (390, 800, 1200)
HEIGHT = 800
LEAST_CONTRAST = 4.5  # WCAG 2.2, AA
CONTRASTS = """() => {
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const parse = s => s.match(/[\\d.]+/g).map(Number);
  const ground = e => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c.slice(0, 3); }
    return [255, 255, 255]; };
  return [...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && !e.disabled &&
    [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())).map(e => {
    const [a, b] = [light(parse(getComputedStyle(e).color).slice(0, 3)), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    return [ratio, e.className || e.tagName, e.textContent.slice(0, 40)]; });
}"""
OVERLAPS = """() => {
  const texts = [...document.querySelectorAll('svg text')].map(e => [e.textContent, e.getBoundingClientRect()]);
  const apart = (a, b) =>
    a.left >= b.right - 1 || b.left >= a.right - 1 || a.top >= b.bottom - 3 || b.top >= a.bottom - 3;
  return texts.flatMap(([one, a], i) =>
    texts.slice(i + 1).filter(([, b]) => !apart(a, b)).map(([two]) => `${one}, ${two}`));
}"""
PICTURES = os.environ.get("COMMINGLE_PICTURES", "")  # a folder for pictures of every page, to be looked at
STATED: dict[str, Any] = {
    "purpose": "Do older people cost more, once smoking is accounted for?",
    "requester": "Dr. Adams, Institute of Health Services Research",
    "ethics_reference": "EA1/123/26",
    "target": "charges",
}


@contextmanager
def browser() -> Iterator[Chromium]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def asked(consortium: Consortium, *, mechanism: Any = "rmgm", title: str) -> str:
    spec = consortium.spec(mechanism=mechanism, title=title, keyed=mechanism == "moments")
    return consortium.coordinator.propose(ReleaseSpec(**dict(spec) | STATED))


def console_of(served: list[Served], make: Any) -> tuple[str, str]:
    """Where a console is, and the link into it."""
    listener = listen(host="127.0.0.1", port=0)
    door = LinkDoor(Session(), address=f"127.0.0.1:{listener.getsockname()[1]}", command="")
    served.append(Served(make(door), listener))
    return door.origin, f"{door.origin}/enter/{door.link}"


@contextmanager
def services(root: Path) -> Iterator[dict[str, tuple[str, str, tuple[str, ...]]]]:
    """The address, the way in and the pages of each service."""
    consortium = consortium_of(root, "clinic", "insurer", policy=BY_HAND)
    consortium.clock_shows = system_clock()
    consortium.enrol_everybody()
    release = asked(consortium, title="Charges and age")
    with consortium.agents("insurer") as insurer:
        insurer.consortia[0].step(strictly)
    with ExitStack() as stack:
        agents = stack.enter_context(consortium.agents("clinic"))
        agents.consortia[0].step(strictly)
        way = InProcess(local_api(LocalApi(agents, loops=None, peer_is_operator=True)))
        served: list[Served] = []
        clinic = console_of(served, lambda door: agent_console(agents.home, door, lambda _: PartyClient.over(way)))
        hub = console_of(served, lambda door: coordinator_console(consortium.coordinator.hub.coordinator, door))
        learners = {name: learner(served, files) for name, files in learned().items()}
        stack.enter_context(serving(served))
        yield {
            "agent": (
                *clinic,
                ("/", f"/proposals/{release}", "/ledger", "/datasets", "/members", "/tokens", "/doctor", "/x"),
            ),
            "coordinator": (*hub, ("/", f"/rounds/{release}", "/members")),
            **learners,
        }


def learned() -> dict[str, tuple[Any, tuple[str, ...]]]:
    tables, survival = published_tables(), published_survival()
    fit = "/fit?target=age&attributes=smoker&attributes=readmitted"
    asked = ("", fit, "/describe?by=stage", "/table?row=stage&column=readmitted", "/glm?target=readmitted")
    pages = ("/", *(f"/releases/{tables[0]}{one}" for one in asked), "/docs", "/releases/none")
    curves = (
        "",
        "/describe",
        "/survival?by=stage",
        "/survival?by=stage&attributes=stage&attributes=site",
        "/synthesize?rows=50",
    )
    others = tuple(f"/releases/{survival[0]}{one}" for one in curves)
    numbers, regions = published_numbers(), published_regions()
    levels = ("", "/describe?by=Höchster Wohnsitz", "/table?row=Höchster Wohnsitz&column=died", "/glm")
    return {
        "learner": (tables, pages),
        "survival": (survival, others),
        "numbers": (numbers, tuple(f"/releases/{numbers[0]}{one}" for one in ("", "/fit", "/glm"))),
        "regions": (regions, tuple(f"/releases/{regions[0]}{one}" for one in levels)),
    }


def learner(served: list[Served], what: tuple[Any, tuple[str, ...]]) -> tuple[str, str, tuple[str, ...]]:
    files, pages = what
    fake = ServingCoordinator.serving(files)
    client = ReleaseClient("http://hub", transport=fake.transport, trusted_coordinator=COORDINATOR.fingerprint)
    app: Application = learner_app(ReleaseSource(client), pool=pool_of_threads())
    listener = listen(host="127.0.0.1", port=0)
    served.append(Served(app, listener))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    return address, address, pages


def faults_of(page: Page, address: str) -> Iterator[str]:
    wide = "[document.documentElement.scrollWidth, window.innerWidth]"
    width, window = page.evaluate(wide)
    if width > window:
        yield f"{address} is {width} wide at {window}"
    wide = "[...document.querySelectorAll('.many')].filter(e => e.scrollWidth > e.parentElement.clientWidth).length"
    if page.evaluate(wide):
        yield f"{address} has a table that scrolls sideways at {window}"
    yield from (f"{address}: {both} overlap at {window}" for both in page.evaluate(OVERLAPS))
    if page.viewport_size == {"width": WIDTHS[-1], "height": HEIGHT}:
        for ratio, which, text in page.evaluate(CONTRASTS):
            if ratio < LEAST_CONTRAST:
                yield f"{address}: {text!r} ({which}) has a contrast of {ratio:.2f}"


def opened(chromium: Chromium, way_in: str, objections: list[str]) -> Page:
    page = chromium.new_context().new_page()
    page.on("console", lambda said: objections.append(f"{page.url}: {said.text}"))
    page.on("pageerror", lambda error: objections.append(f"{page.url}: {error}"))
    page.goto(way_in)
    return page


def test_every_page_fits_can_be_read_and_has_no_fault_in_the_browser(tmp_path: Path) -> None:
    found: list[str] = []
    modes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    with services(tmp_path) as known, browser() as chromium:
        for name, (address, way_in, pages) in known.items():
            page = opened(chromium, way_in, found)
            for number, path in enumerate(pages):
                page.goto(address + path)
                for mode, width in product(modes, WIDTHS):
                    page.emulate_media(color_scheme=mode)
                    page.set_viewport_size({"width": width, "height": HEIGHT})
                    found += faults_of(page, f"{path} of {name}")
                    if PICTURES:
                        page.screenshot(path=f"{PICTURES}/{name}-{number}-{mode}-{width}.png", full_page=True)
    # a page that is refused is reported by the browser itself
    assert [one for one in found if "the server responded with a status of" not in one] == []


def test_level_of_one_attribute_is_not_asked_of_another() -> None:
    served: list[Served] = []
    address, way_in, pages = learner(served, learned()["learner"])
    with serving(served), browser() as chromium:
        page = opened(chromium, way_in, [])
        page.goto(f"{address}{pages[1]}/table?row=readmitted&column=stage&event=i&reference=yes")
        page.get_by_label("by their shares of").select_option("smoker")
        assert [page.locator(f"select[name={name}]").input_value() for name in ("event", "reference")] == ["", "yes"]
        page.get_by_label("Compare the levels of").select_option("stage")
        page.get_by_role("button", name="Ask").click()
        page.get_by_role("heading", name="stage by smoker").wait_for()
