"""The console in a browser's place: who gets in, what is shown, and that it decides only as the local API does."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partialmethod
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from fastapi import FastAPI

from commingle.party_agent.console.app import create_console
from commingle.party_agent.console.pages import WIDTH, budget_of, in_words, worth_of
from commingle.party_agent.edge.api import LocalApi
from commingle.party_agent.edge.app import create_app
from commingle.party_agent.edge.client import PartyClient
from commingle.party_agent.home.policy import Policy
from commingle.party_agent.home.tokens import local_tokens
from commingle.party_agent.wire.answers import CostView, LedgerView, LossView, ProposalView
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.spec import Attachment, ReleaseSpec, headline_of
from commingle.shared.runtime.errors import RemoteProblemError
from commingle.shared.runtime.pages.doors import COOKIE, LinkDoor, Session
from commingle.shared.runtime.settings import system_clock
from tests.world.applications import in_turn
from tests.world.consortium import BY_A_PERSON, Consortium, strictly
from tests.world.pages import Tags
from tests.world.transport import InProcess, unreachable

ADDRESS = "127.0.0.1:8901"
ORIGIN = f"http://{ADDRESS}"
SAID: dict[str, Any] = {
    "purpose": "Do older people pay more? <script>alert(1)</script> \u202eeerf",
    "requester": "Dr. Adams",
    "target": "charges",
    "attachments": (Attachment(name="protocol.pdf", sha256="ab" * 32),),
}


@pytest.fixture
def door() -> LinkDoor:
    return LinkDoor(Session(), address=ADDRESS, command="commingle party console")


@pytest.fixture
def app(local: LocalApi, door: LinkDoor) -> FastAPI:
    way = in_turn(create_app, local)
    return create_console(local.agents.home, door, lambda _: PartyClient.over(way))


@pytest.fixture
def browser(app: FastAPI) -> Iterator[httpx.Client]:
    """Nobody has opened the link yet."""
    with httpx.Client(transport=InProcess(app), base_url=ORIGIN, headers={"Origin": ORIGIN}) as client:
        yield client


@pytest.fixture
def inside(browser: httpx.Client, door: LinkDoor) -> httpx.Client:
    assert browser.get(f"/enter/{door.link}").status_code == 303
    return browser


def proposed(consortium: Consortium, local: LocalApi, **changes: Any) -> str:
    spec = consortium.spec(title="Length & stay")
    consortium.enrol_everybody()
    release = consortium.coordinator.propose(ReleaseSpec(**dict(spec) | SAID | {"purpose": "Why?"} | changes))
    local.agents.consortia[0].step(strictly)
    return release


def form(door: LinkDoor, decision: str, **changes: str) -> dict[str, str]:
    return {
        "csrf": door.only.csrf,
        "by": "Dr. Berg",
        "why": "vote 12/26",
        "read": "yes",
        "decision": decision,
        **changes,
    }


def test_link_works_once_and_its_cookie_is_kept_from_scripts_and_other_sites(
    browser: httpx.Client, door: LinkDoor
) -> None:
    link = door.link
    assert browser.get("/enter/" + "x" * 43).status_code == 403
    answer = browser.get(f"/enter/{link}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert browser.get("/").status_code == 200
    assert door.link == ""
    assert httpx.Client(transport=browser._transport, base_url=ORIGIN).get(f"/enter/{link}").status_code == 403
    browser.post("/leave", data={"csrf": door.only.csrf})
    assert browser.get("/").status_code == 403


def test_session_ends_by_itself() -> None:
    now = [0.0]
    door = LinkDoor(Session(), address=ADDRESS, command="", clock=lambda: now[0])
    cookie = door.enter(door.link)
    assert door.knows(cookie)
    now[0] = 8 * 3600.0
    assert not door.knows(cookie)
    assert not door.knows(None)
    assert not LinkDoor(Session(), address=ADDRESS, command="").knows("")


@pytest.mark.parametrize(
    "path", ["/", "/ledger", "/members", "/datasets", "/tokens", "/doctor", "/proposals/" + "a" * 64, "/nowhere"]
)
def test_nothing_is_shown_without_the_session(
    browser: httpx.Client, consortium: Consortium, local: LocalApi, path: str
) -> None:
    proposed(consortium, local)
    for cookie in ("", f"{COOKIE}=", f"{COOKIE}={'x' * 43}"):
        answer = browser.get(path, headers={"Cookie": cookie})
        assert answer.status_code == 403
        assert "Length" not in answer.text


def test_decision_needs_session_token_origin_and_address(
    inside: httpx.Client, door: LinkDoor, consortium: Consortium, local: LocalApi
) -> None:
    release = proposed(consortium, local)
    path, right = f"/proposals/{release}", form(door, "approve")
    strangers = httpx.Client(transport=inside._transport, base_url=ORIGIN, headers={"Origin": ORIGIN})
    answers = [
        strangers.post(path, data=right),
        inside.post(path, data={**right, "csrf": "x"}),
        inside.post(path, data={k: v for k, v in right.items() if k != "csrf"}),
        inside.post(path, data=right, headers={"Origin": "https://evil.example"}),
        inside.post(path, data=right, headers={"Origin": "null"}),
        inside.post(path, data=right, headers={"Host": "evil.example"}),
        inside.post(path, content=b"csrf=" + b"x" * (65 << 10)),
        inside.post(path, content=b"\xff"),
        inside.post(path, data={**right, "decision": "everything"}),
        inside.get(path, headers={"Host": "rebound.example:8901"}),
    ]
    assert [answer.status_code for answer in answers] == [403] * 10
    assert local.agents.proposals.get(release).decision == "waiting"
    assert local.agents.ledger.charges() == {}


def test_form_that_is_not_all_here_when_its_session_is_left_decides_nothing(
    inside: httpx.Client, app: FastAPI, door: LinkDoor, consortium: Consortium, local: LocalApi
) -> None:
    path, body = f"/proposals/{proposed(consortium, local)}", urlencode(form(door, "approve")).encode()

    async def send() -> httpx.Response:
        way = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=way, base_url=ORIGIN, cookies=inside.cookies) as tab:
            tab.headers["Origin"] = ORIGIN

            async def slowly() -> AsyncIterator[bytes]:
                yield body[:20]
                await tab.post("/leave")
                yield body[20:]

            return await tab.post(path, content=slowly())

    assert asyncio.run(send()).status_code == 403
    assert local.agents.ledger.charges() == {}


def test_every_page_is_its_own_and_loads_nothing_from_elsewhere(
    inside: httpx.Client, door: LinkDoor, consortium: Consortium, local: LocalApi
) -> None:
    release = proposed(consortium, local)
    for path in (
        "/",
        "/ledger",
        "/members",
        "/datasets",
        "/tokens",
        "/doctor",
        f"/proposals/{release}",
        "/proposals/none",
        "/x",
    ):
        answer = inside.get(path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        tags = Tags(answer.text)
        assert all(address.startswith(("/", "#")) for address in tags.addresses)
        assert door.only.csrf in answer.text or "<form" not in answer.text
    for name, kind in (("pages.css", "text/css"), ("pages.js", "text/javascript")):
        assert inside.get(f"/static/{name}").headers["content-type"].startswith(kind)
    assert inside.get("/static/base.html").status_code == 404
    assert inside.get("/static/..%2f..%2fapp.py").status_code in {403, 404}


def test_list_comes_in_pages_those_that_wait_before_others(
    inside: httpx.Client, local: LocalApi, consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [proposed(consortium, local, study=f"study {number}") for number in range(3)]
    local.agents.reject(asked[0], BY_A_PERSON)
    page = PartyClient.proposal_page
    monkeypatch.setattr(PartyClient, "proposal_page", partialmethod(page, limit=1))
    first = inside.get("/").text
    assert "1 and more proposals wait for your decision" in first
    (older,) = re.findall(r'href="(/\?waiting=[0-9a-f]{64})"', first)
    second = inside.get(older).text
    shown = [set(re.findall(r'href="/proposals/([0-9a-f]{64})"', text)) for text in (first, second)]
    assert shown[0] | shown[1] == set(asked)
    assert shown[0] & shown[1] == {asked[0]}
    assert "waiting=" not in second
    assert "<h1>Older proposals</h1>" in second


def test_one_page_has_everything_a_decision_stands_on(
    inside: httpx.Client, consortium: Consortium, local: LocalApi
) -> None:
    release = proposed(consortium, local)
    assert release in inside.get("/").text
    page = unescape(inside.get(f"/proposals/{release}").text)
    item = inside_item(local, release)
    for expected in (
        "Length & stay",
        "<h1>Why?</h1>",
        "Purpose: “Why?”",
        "Requested by “Dr. Adams”",
        "To explain charges by all others",
        f"Attachment: “protocol.pdf”, SHA-256 {'ab' * 32}",
        "Proposed by the coordinator operator.",
        "a number from 20 to 80 years; what lies beyond is cut to that",
        "<b>40</b> people",
        "<td>This release</td>",
        "<td>Left afterwards</td>",
        "insurer: not yet",
        f"everybody, fellow members included, epsilon {item['per_subject_epsilon']:.3g}",
        item["leaves"],
        f"is right at most {item['guess_percent']} times in 100",
        f"released before: {item['guess_after_percent']} times",
        item["trust"],
        item["protects"],
        item["outlook"][0],
        "Nothing in this member's policy",
    ):
        assert expected in page


def inside_item(local: LocalApi, release: str) -> dict[str, Any]:
    with httpx.Client(transport=in_turn(create_app, local), base_url="http://agent") as api:
        item: dict[str, Any] = api.get(f"/v1/proposals/{release}").json()
        return item


def test_words_of_a_proposer_are_no_markup_and_hide_nothing(
    inside: httpx.Client, consortium: Consortium, local: LocalApi
) -> None:
    spec = ReleaseSpec(**dict(consortium.spec(title="<b>bold</b>\u202e")) | SAID)
    consortium.enrol_everybody()
    release = consortium.plant(spec)
    with suppress(RemoteProblemError):  # it is refused at once, to a coordinator that does not know it
        local.agents.consortia[0].step(strictly)
    for path in ("/", f"/proposals/{release}"):
        page = inside.get(path).text
        assert "<script>alert" not in page
        assert "<b>bold" not in page
        assert "\u202e" not in page
        assert "&lt;b&gt;bold&lt;/b&gt;" in page


def test_approval_is_the_agents_own_with_name_and_reason(
    inside: httpx.Client, door: LinkDoor, consortium: Consortium, local: LocalApi
) -> None:
    release = proposed(consortium, local)
    answer = inside.post(f"/proposals/{release}", data=form(door, "approve"))
    assert (answer.status_code, answer.headers["location"]) == (303, f"/proposals/{release}")
    assert local.agents.proposals.get(release).decision == "approved"
    assert local.agents.ledger.notes()[release] == [{"document": "approval", "by": "Dr. Berg", "why": "vote 12/26"}]
    page = inside.get(f"/proposals/{release}").text
    assert "approval by <b>Dr. Berg</b>: vote 12/26" in page
    assert "This release" not in page  # it is set aside now
    assert re.search(r">\s*Withdraw\s*</button>", page)
    assert 'value="Dr. Berg"' in page
    why = form(door, "reject", why="no vote\r\nfor this")
    assert inside.post(f"/proposals/{release}", data=why).status_code == 303
    consortium.step("insurer")  # where the one who asked, and every other member, reads why
    with consortium.agents("insurer") as insurer:
        assert insurer.proposals.get(release).reason == "clinic rejected it: “no vote for this”"
    assert local.agents.proposals.get(release).decision == "rejected"
    page = inside.get(f"/proposals/{release}").text
    assert "There is nothing left to decide." in page
    assert "given back" in inside.get("/ledger").text


INCOMPLETE: list[tuple[str, dict[str, str], str]] = [
    ("approve", {"by": " "}, "Say who decides"),
    ("approve", {"read": ""}, "Confirm that you have read"),
    ("reject", {"why": " "}, "Say why"),
    ("approve", {"by": "A\x1b[2J"}, "visible characters"),
    ("approve", {"by": "A" * 201}, "visible characters"),
]


def test_decision_that_lacks_something_is_not_sent(
    inside: httpx.Client, door: LinkDoor, consortium: Consortium, local: LocalApi
) -> None:
    release = proposed(consortium, local)
    for decision, changes, said in INCOMPLETE:
        answer = inside.post(f"/proposals/{release}", data=form(door, decision, **changes))
        assert (answer.status_code, said in answer.text) == (409, True)
        assert local.agents.proposals.get(release).decision == "waiting"


def test_refused_decision_keeps_the_name_and_the_reason_that_were_typed(
    inside: httpx.Client, door: LinkDoor, consortium: Consortium, local: LocalApi
) -> None:
    typed = form(door, "approve", by="Dr. Åse “Ö”", why="<b>not yet</b>", read="")
    page = inside.post(f"/proposals/{proposed(consortium, local)}", data=typed).text
    assert 'name="by" value="Dr. Åse “Ö”"' in page
    assert ">&lt;b&gt;not yet&lt;/b&gt;</textarea>" in page


def test_what_the_agent_refuses_is_refused_here_too(
    inside: httpx.Client, door: LinkDoor, consortium: Consortium, local: LocalApi
) -> None:
    release = proposed(consortium, local)
    local.agents.home.save_policy(Policy(mechanisms=("dgm",)))
    answer = inside.post(f"/proposals/{release}", data=form(door, "approve"))
    assert answer.status_code == 409
    assert "rmgm" in answer.text
    assert local.agents.ledger.charges() == {}
    consortium.coordinator.before = unreachable("PUT", "/rejections/")
    answer = inside.post(f"/proposals/{release}", data=form(door, "reject"))
    assert (answer.status_code, "no answer" in answer.text) == (409, True)


def test_unknown_proposal_is_not_found_on_its_page(inside: httpx.Client) -> None:
    answer = inside.get(f"/proposals/{'0' * 64}")
    assert (answer.status_code, "commingle party proposals" in answer.text) == (404, True)
    assert "could not be asked" not in answer.text


def test_agent_that_cannot_be_asked_is_said_to_be_that(door: LinkDoor, local: LocalApi) -> None:
    nothing = InProcess(FastAPI())
    app = create_console(local.agents.home, door, lambda _: PartyClient.over(nothing))
    with httpx.Client(transport=InProcess(app), base_url=ORIGIN) as browser:
        browser.get(f"/enter/{door.link}")
        assert (browser.get("/").status_code, "could not be asked" in browser.get("/").text) == (502, True)


def test_interface_of_the_agent_is_explained_on_a_page_to_whoever_reaches_it(local: LocalApi) -> None:
    with httpx.Client(transport=in_turn(create_app, local), base_url="http://agent") as api:
        page = api.get("/docs")
    assert (page.status_code, "PUT /v1/proposals/{release}/approval" in page.text) == (200, True)


def test_members_and_ledger_show_keys_and_charges(
    inside: httpx.Client, consortium: Consortium, local: LocalApi
) -> None:
    release = proposed(consortium, local)
    local.agents.approve(release, BY_A_PERSON)
    page = inside.get("/members").text
    for home in consortium.homes.values():
        assert home.identity().signing_key.fingerprint in page
    assert consortium.coordinator.key.fingerprint in page
    page = inside.get("/ledger").text
    assert "reserved" in page
    assert "of the budget is left" in page
    assert "Length &amp; stay" in page


def table_form(session: Session, name: str, table: Path, **more: str) -> dict[str, str]:
    """What the page about tables sends."""
    about = {"name": name, "path": str(table), "subject_id": "patient", "subjects": "listed"}
    return {**about, "csrf": session.csrf, **more}


def test_table_is_registered_as_by_the_command_and_a_refusal_keeps_what_was_typed(
    inside: httpx.Client, door: LinkDoor, local: LocalApi, tmp_path: Path
) -> None:
    table = tmp_path / "new.csv"
    table.write_text("patient,age\np1,30\np2,190\n")
    schema = '[{"kind": "numeric", "name": "age", "lower": 0, "upper": 120}]'
    given = table_form(door.only, "second", table, schema=schema, knowledge="yes")
    refused = [
        inside.post("/datasets", data=given | {"csrf": "x"}),
        inside.post("/datasets", data=given | {"schema": "[<b>"}),
        inside.post("/datasets", data=given | {"subject_id": "nobody"}),
        inside.post("/datasets", data=given | {"knowledge": ""}),
        inside.post("/datasets", data=given | {"separator": "?"}),
        inside.post("/datasets", data=given | {"path": ""}),
    ]
    assert [answer.status_code for answer in refused] == [403, 409, 409, 409, 403, 409]
    assert "&lt;b&gt;</textarea>" in refused[1].text
    assert [one.name for one in local.agents.datasets.all()] == ["main"]
    assert inside.post("/datasets", data=given).status_code == 303
    page = inside.get("/datasets").text
    assert "2 people" in page
    assert '<th scope="row">age</th><td>a number from 0 to 120; what lies beyond is cut to that</td>' in page
    assert "<p>age: 1 value was outside the bounds and is clipped.</p>" in page  # the operator alone is told
    assert inside.post("/datasets", data=given).status_code == 409
    assert inside.post("/datasets", data=given | {"replace": "yes"}).status_code == 303


def test_table_is_registered_with_columns_made_of_others_and_a_rule_for_its_ids(
    inside: httpx.Client, door: LinkDoor, local: LocalApi, tmp_path: Path
) -> None:
    table = tmp_path / "births.csv"
    table.write_text("patient,born\n001,1990-05-01\n002,2000-05-01\n")
    schema = '[{"kind": "numeric", "name": "age", "lower": 0, "upper": 120}]'
    given = table_form(door.only, "births", table, schema=schema, knowledge="yes", id_rule="digits/1")
    wrong = inside.post("/datasets", data=given | {"derived": "age = age_at(born, 01.06.2025)"})
    assert wrong.status_code == 409
    assert "Write it like this: age = age_at(born, 2026-01-01)" in wrong.text
    made = {"derived": "\nage = age_at(born, 2025-06-01)\r\n"}
    drafted = inputs(inside.post("/datasets", data=given | made | {"do": "draft"}).text)
    assert {"born", "age"} <= set(drafted.values())
    assert inside.post("/datasets", data=given | {"id_rule": "any"} | made).status_code == 409
    assert inside.post("/datasets", data=given | made).status_code == 303
    found = local.agents.datasets.get("births")
    assert ([str(one) for one in found.derived], found.id_rules) == (["age = age_at(born, 2025-06-01)"], ("digits/1",))
    again = given | made | {"replace": "yes"}
    assert inside.post("/datasets", data=again | {"id_prefix": "P 7"}).status_code == 409
    assert inside.post("/datasets", data=again | {"id_prefix": "P-"}).status_code == 303
    assert local.agents.datasets.get("births").id_rules == ("digits-after:P-/1",)
    page = inside.get("/datasets").text
    assert "<code>age = age_at(born, 2025-06-01)</code>" in page
    beyond = local.agents.datasets.get("main").clipped
    assert page.count("outside the bounds") == sum(map(bool, beyond.values()))  # of the other table


def test_schema_is_drafted_from_the_names_of_columns_edited_and_registered(
    inside: httpx.Client, door: LinkDoor, local: LocalApi, tmp_path: Path
) -> None:
    table = tmp_path / "stays.csv"
    table.write_text("patient;Alter;age;glucose;sex;<b>note\np1;SENTINEL;30,5;5,8;f;77317731\np2;41;90;6,1;m;12\n")
    form = table_form(door.only, "stays", table, separator=";", encoding="utf-8", decimal=",")
    page = inside.post("/datasets", data=form | {"do": "draft"}).text
    assert "No row was read." in page
    answer = inside.post("/datasets", data=form | {"do": "draft", "separator": ","})
    assert (answer.status_code, "It looks like this: ';' between columns" in unescape(answer.text)) == (409, True)
    assert not any(cell in page for cell in ("SENTINEL", "30,5", "5,8", "77317731"))
    assert "<b>note" not in page
    fields = inputs(page)
    assert (fields["name-1"], fields["use-1"], fields["lower-1"], fields["upper-1"]) == ("age", "yes", "0", "120")
    assert (fields["name-2"], fields["lower-2"], "use-2" in fields) == ("glucose", "", False)  # in which unit?
    assert (fields["name-3"], fields["levels-3"]) == ("sex", "female|male")
    fields |= {"unit-2": "mmol/l", "upper-1": "110"}
    fields = inputs(inside.post("/datasets", data=fields | {"do": "draft", "separator": ";", "decimal": ","}).text)
    assert (fields["upper-1"], fields["lower-2"], fields["upper-2"]) == ("110", "0.5", "60")
    fields |= {"use-0": "yes", "lower-0": "0", "upper-0": "x", "levels-3": "f|m", "missing-1": "midpoint"}
    fields |= {"separator": ";", "decimal": ",", "do": "register", "subjects": "listed"}
    refused = [inside.post("/datasets", data=fields | more) for more in ({}, {"knowledge": "yes"})]
    assert [answer.status_code for answer in refused] == [409, 409]
    assert "none was read off the rows" in refused[0].text
    assert "range Alter has neither bounds nor levels" in refused[1].text
    assert inputs(refused[1].text)["upper-0"] == "x"
    del fields["use-0"]
    answer = inside.post("/datasets", data=fields | {"knowledge": "yes"})
    assert answer.status_code == 303
    found = local.agents.datasets.get("stays")
    assert [(a.name, a.missing) for a in found.attributes] == [
        ("age", "midpoint"),
        ("glucose", "error"),
        ("sex", "error"),
    ]
    assert found.attributes[0].model_dump()["upper"] == 110


def test_file_with_tabs_is_drafted_and_registered(
    inside: httpx.Client, door: LinkDoor, local: LocalApi, tmp_path: Path
) -> None:
    table = tmp_path / "stays.tsv.csv"
    table.write_text("patient\tage\np1\t30\np2\t41\n")
    form = table_form(door.only, "stays", table)
    assert '<option value="tab">tab</option>' in inside.get("/datasets").text
    assert inputs(inside.post("/datasets", data=form | {"do": "draft", "separator": "tab"}).text)["upper-0"] == "120"
    form |= {"separator": "tab", "schema": '[{"kind": "numeric", "name": "age", "lower": 0, "upper": 120}]'}
    assert inside.post("/datasets", data=form | {"knowledge": "yes"}).status_code == 303
    assert local.agents.datasets.get("stays").n == 2


def test_file_of_whose_columns_nothing_is_known_shows_no_name(
    inside: httpx.Client, door: LinkDoor, tmp_path: Path
) -> None:
    table = tmp_path / "headless.csv"
    table.write_text("patient,SENTINEL\np1,1\n")
    answer = inside.post("/datasets", data=table_form(door.only, "", table, do="draft"))
    assert (answer.status_code, "nothing is known" in answer.text, "SENTINEL" in answer.text) == (409, True, False)


def inputs(page: str) -> dict[str, str]:
    """What a browser would send of the form on a page, but for its selects and buttons."""
    found = [dict(re.findall(r'([a-z-]+)="([^"]*)"', tag)) | {"": tag} for tag in re.findall(r"<input[^>]*>", page)]
    sent = (one for one in found if one.get("type") != "checkbox" or " checked" in one[""])
    return {one["name"]: unescape(one["value"]) for one in sent if "value" in one}


def test_operator_makes_a_token_that_is_shown_once_works_and_is_revoked(
    inside: httpx.Client, door: LinkDoor, consortium: Consortium, local: LocalApi
) -> None:
    consortium.clock_shows = system_clock()
    given = {
        "csrf": door.only.csrf,
        "do": "make",
        "name": "etl",
        "days": "7",
        "scope-read": "yes",
        "scope-propose": "y",
    }
    shown = inside.post("/tokens", data=given).text
    made = re.search(r"commingle-local\.v1\.[\w-]{43}", shown)
    assert made is not None
    assert "shown once" in shown
    page = inside.get("/tokens").text
    assert "commingle-local" not in page
    assert row_of(page, "etl")[:4] == ["etl", "propose, read", "", "the operator"]
    assert row_of(page, "etl")[6] == "never"
    with httpx.Client(transport=in_turn(create_app, local), base_url="http://agent") as api:
        bearer = {"Authorization": f"Bearer {made[0]}"}
        assert [api.get(path, headers=bearer).status_code for path in ("/v1/status", "/v1/ledger")] == [200, 200]
        assert row_of(inside.get("/tokens").text, "etl")[6].startswith(f"{system_clock():%Y-%m-%d}")
        gone = inside.post("/tokens", data={"csrf": door.only.csrf, "do": "revoke", "name": "etl"})
        assert (gone.status_code, gone.headers["location"]) == (303, "/tokens")
        assert api.get("/v1/status", headers=bearer).status_code == 401
    assert "There is none." in inside.get("/tokens").text


NO_TOKENS: dict[str, tuple[dict[str, str], int]] = {
    "from another's form": ({"csrf": "x"}, 403),
    "without a name": ({"name": " "}, 409),
    "with a name that hides": ({"name": "etl\u202e"}, 409),
    "with a long name": ({"name": "x" * 51}, 409),
    "without an end": ({"days": "0"}, 409),
    "with an end far away": ({"days": "3650"}, 409),
    "of no scope": ({"scope-read": ""}, 409),
    "of a scope that there is not": ({"scope-everything": "yes"}, 409),
    "that is no page's": ({"do": "", "name": "nobody"}, 403),
    "to revoke that there is not": ({"do": "revoke", "name": "nobody"}, 409),
}


@pytest.mark.parametrize("case", NO_TOKENS)
def test_token_that_is_not_asked_for_as_it_must_be_is_not_made(
    inside: httpx.Client, door: LinkDoor, local: LocalApi, case: str
) -> None:
    changes, status = NO_TOKENS[case]
    given = {"csrf": door.only.csrf, "do": "make", "name": "etl", "days": "7", "scope-read": "yes"} | changes
    answer = inside.post("/tokens", data={name: value for name, value in given.items() if name == "name" or value})
    assert (answer.status_code, "commingle-local" in answer.text) == (status, False)
    assert local_tokens(local.agents.home, system_clock()) == {}


def row_of(page: str, name: str) -> list[str]:
    """The cells of a table's row."""
    row = re.search(rf'<tr><th scope="row">{name}</th>.*?</tr>', page, re.DOTALL)
    assert row is not None
    return [unescape(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row[0], re.DOTALL)]


def test_doctor_says_what_the_command_says(inside: httpx.Client, consortium: Consortium) -> None:
    assert "✓ ledger" in inside.get("/doctor").text
    consortium.homes["clinic"].root.chmod(0o755)
    page = inside.get("/doctor").text
    assert "Something needs fixing" in page
    assert "✗" in page


def ledger_with(spent: float) -> LedgerView:
    cap, lost, left = (
        LossView(rho=rho, epsilon=epsilon, delta=1e-5) for rho, epsilon in ((1.0, 6.0), (spent, 3.0), (1 - spent, 2.0))
    )
    figures: dict[str, Any] = {"cap": cap, "spent": lost, "replacement": lost, "remaining": left}
    return LedgerView(population="x", unit="add_remove", **figures, charges=(), entries=0, next=None)


ASKED = CostView(unit="add_remove", rho=0.5, epsilon=2.5, delta=0.0, replacement=None)


def test_budget_is_drawn_to_scale() -> None:
    whole = budget_of(ledger_with(0.25), ASKED)
    assert [(s.kind, s.percent, s.start, s.width) for s in whole.segments] == [
        ("spent", 25, 0.0, 0.25 * WIDTH),
        ("asked", 50, 0.25 * WIDTH, 0.5 * WIDTH),
        ("left", 25, 0.75 * WIDTH, 0.25 * WIDTH),
    ]
    assert (whole.fits, whole.more) == (True, 0)
    nearly = budget_of(ledger_with(0.496), ASKED)  # what is left is rounded down, and all shares make a hundred
    assert [s.percent for s in nearly.segments] == [49, 51, 0]
    over = budget_of(ledger_with(0.75), ASKED)
    assert not over.fits
    assert sum(segment.width for segment in over.segments) == pytest.approx(WIDTH)


def test_columns_are_said_in_plain_words() -> None:
    sex = BinaryAttribute(name="sex", levels=("female", "male"), missing="midpoint")
    assert in_words(sex) == "female or male; what is missing counts as the middle"
    smoker = CategoricalAttribute(name="smoker", levels=("never", "former", "current"))
    assert in_words(smoker) == "never, former or current"
    stay = NumericAttribute(name="stay", lower=0.0, upper=30.0)
    assert in_words(stay) == "a number from 0 to 30; what lies beyond is cut to that"


def test_headline_is_the_question_where_it_is_short_and_worth_is_said_without_epsilon(
    consortium: Consortium, local: LocalApi
) -> None:
    release = proposed(consortium, local)
    item = ProposalView.model_validate(inside_item(local, release))
    assert headline_of(item.study, item.stated) == "Why?"
    assert headline_of(item.study, {"purpose": "w" * 161}) == headline_of(item.study, {}) == "Length & stay"
    told = {"target": "charges", "r_squared": 0.25, "r_squared_assumed": 0.3, "useful": True, "reliable": False}
    said = worth_of(item.model_copy(update={"forecast": told}))
    assert said.sentence == (
        "If 30 % of what varies in charges can be explained, a linear fit explains 25 %, "
        "and its single coefficients are too noisy to be read."
    )
    assert [share for _, share in said.bars] == [25, 30]
    useless = worth_of(item.model_copy(update={"forecast": told | {"useful": False, "r_squared": -0.5}}))
    assert (useless.sentence[:10], useless.bars[0][1]) == ("Too little", 0)
    assert worth_of(item.model_copy(update={"forecast": None, "outlook": ()})).sentence == "There is no forecast yet."
