"""The coordinator's console in a browser's place: who gets in, and that rounds and members are shown as they are."""

from collections.abc import Iterator
from html import unescape

import httpx
import pytest

from commingle.coordinator.http.console import create_console
from commingle.coordinator.http.views import release_details
from commingle.shared.runtime.oidc import Provider
from commingle.shared.runtime.pages.doors import LinkDoor, Session, SsoDoor
from commingle.shared.runtime.server import Served, listen, serving
from tests.world.coordinator import Hub, Parties
from tests.world.exchange import Relayed
from tests.world.pages import Tags
from tests.world.provider import browser as browser_at
from tests.world.provider import signing_provider, sso_settings
from tests.world.transport import InProcess

ADDRESS = "127.0.0.1:8901"
ORIGIN = f"http://{ADDRESS}"


@pytest.fixture
def door() -> LinkDoor:
    return LinkDoor(Session(), address=ADDRESS, command="commingle coordinator console")


@pytest.fixture
def browser(hub: Hub, door: LinkDoor) -> Iterator[httpx.Client]:
    app = create_console(hub.coordinator, door)
    with httpx.Client(transport=InProcess(app), base_url=ORIGIN, headers={"Origin": ORIGIN}) as client:
        yield client


@pytest.fixture
def inside(browser: httpx.Client, door: LinkDoor) -> httpx.Client:
    assert browser.get(f"/enter/{door.link}").status_code == 303
    return browser


def test_nothing_is_shown_without_the_session_or_under_another_name(
    browser: httpx.Client, door: LinkDoor, hub: Hub, parties: Parties
) -> None:
    release = hub.proposed(parties)
    for path in ("/", "/members", f"/rounds/{release.id}", "/nowhere"):
        assert browser.get(path).status_code == 403
    browser.get(f"/enter/{door.link}")
    assert browser.get("/members").status_code == 200
    assert browser.get("/members", headers={"Host": "rebound.example:8901"}).status_code == 403
    browser.post("/leave", data={"csrf": door.only.csrf})
    assert browser.get("/members").status_code == 403


def test_every_page_loads_nothing_from_elsewhere(inside: httpx.Client, hub: Hub, parties: Parties) -> None:
    release = hub.proposed(parties)
    for path in ("/", "/members", f"/rounds/{release.id}", "/rounds/none", "/?cursor=x"):
        answer = inside.get(path)
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; ")
        assert all(address.startswith(("/", "#")) for address in Tags(answer.text).addresses)
    assert inside.get("/rounds/none").status_code == 404


def test_round_is_followed_from_proposal_to_publication(inside: httpx.Client, hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    proposed = hub.proposed(parties)
    path = f"/rounds/{proposed.id}"
    assert path in inside.get("/").text
    assert "waits for the approval of clinic, registry." in inside.get(path).text
    hub.approve(proposed, "clinic", clinic.approval(proposed))
    page = inside.get(path).text
    assert "waits for the approval of registry." in page
    assert "approval of <b>clinic</b></li>" in page  # by which nothing has changed yet
    hub.approve(proposed, "registry", registry.approval(proposed))
    hub.upload(proposed, "clinic", hub.block(proposed, clinic))
    page = inside.get(path).text
    assert "waits for the block of registry." in page
    assert "approval of <b>registry</b>: now approved</li>" in page
    hub.reject(proposed, "registry", registry.rejection(proposed))
    page = unescape(inside.get(path).text)
    assert "It ended:" in page
    assert "It waits" not in page
    assert '<span class="chip bad">aborted</span>' in inside.get("/").text


def test_exchange_is_followed_message_by_message(hub: Hub, exchanging: Relayed) -> None:
    with hub.store.read() as tx:
        row = tx.releases.get(exchanging.proposed.id)
    assert row is not None
    assert release_details(row).waits_for.startswith("It waits for the columns of clinic")


def test_people_sign_on_if_their_group_may_read(hub: Hub, parties: Parties) -> None:
    listener = listen(host="127.0.0.1", port=0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with signing_provider(secret=False) as provider:
        door = SsoDoor(Provider(sso_settings(provider.issuer, url)))
        with serving([Served(create_console(hub.coordinator, door), listener)]), browser_at(url) as people:
            page = people.get("/members")
            assert parties[0].key.fingerprint in page.text
            assert people.post("/leave", headers={"Origin": "https://evil.example"}).status_code == 403
            assert "You have left" in people.post("/leave").text
            provider.user = {"sub": "u-dent", "groups": ["others"]}
            assert people.get("/members").status_code == 403


def test_members_are_shown_with_keys_and_end(inside: httpx.Client, hub: Hub, parties: Parties) -> None:
    from commingle.coordinator.members import revoke

    revoke(hub.coordinator, "registry")
    page = inside.get("/members").text
    for party in parties:
        assert party.key.fingerprint in page
    assert page.count("chip bad") == 1
    assert hub.coordinator.key.fingerprint in page


def test_words_of_a_proposer_are_no_markup(inside: httpx.Client, hub: Hub, parties: Parties) -> None:
    release = hub.proposed(parties, study="<b>bold</b>")
    for path in ("/", f"/rounds/{release.id}"):
        page = inside.get(path).text
        assert "<b>bold" not in page
        assert "&lt;b&gt;bold" in page
