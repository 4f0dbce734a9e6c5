"""People who sign on to one console over real sockets: who gets in, as whom they decide, and how a session ends."""

import errno
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from time import sleep, time
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx
import pytest
import structlog

from commingle.party_agent.console.app import create_console
from commingle.party_agent.console.pages import maker_of
from commingle.party_agent.edge.api import LocalApi, UnauthorisedError
from commingle.party_agent.edge.app import create_app
from commingle.party_agent.edge.client import PartyClient
from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.policy import Policy
from commingle.party_agent.home.tokens import (
    EVERY_SCOPE,
    create_token,
    end_session,
    local_tokens,
    revoke_token,
    token_of_session,
)
from commingle.shared.errors import MissingExtraError
from commingle.shared.release.ledger_fold import Ruling
from commingle.shared.runtime.oidc import Principal, Provider
from commingle.shared.runtime.pages.doors import SsoDoor
from commingle.shared.runtime.server import Served, listen, serving
from commingle.shared.runtime.settings import system_clock
from commingle.shared.runtime.sso import SsoSettings
from tests.world.applications import in_turn
from tests.world.command import Command
from tests.world.consortium import Consortium, strictly
from tests.world.provider import LOGGED_OUT, SECRET, SigningProvider, browser, signing_provider, sso_settings
from tests.world.transport import InProcess
from tests.world.waiting import at_once

ADAMS = {"sub": "u-adams", "name": "Dr. Adams", "groups": ["board", "others"]}
BERG = {"sub": "u-berg", "name": "Dr. Berg", "groups": ["board"]}
CHEN = {"sub": "u-chen", "preferred_username": "chen", "groups": ["staff"]}


@dataclass
class Desk:
    """A console on a socket, with a clock for sessions that a test moves, and one for what is known of the provider.

    Each sign-in calls one of `pauses` between its token and its session, and each end raises one of `faults`.
    """

    provider: SigningProvider
    settings: SsoSettings
    local: LocalApi
    opened: ExitStack
    seconds: float = 0.0
    later: float = 0.0
    pauses: Iterator[Callable[[], object]] = field(default_factory=lambda: iter(()))
    faults: Iterator[Exception] = field(default_factory=lambda: iter(()))
    door: SsoDoor = field(init=False)

    @property
    def url(self) -> str:
        return self.settings.url

    def browser(self, user: dict[str, Any] | None = None, path: str = "/") -> httpx.Client:
        """A browser of its own; of somebody who signs in on the way to a page, where one is given."""
        found = self.opened.enter_context(browser(self.url))
        if user is not None:
            self.provider.user = dict(user)
            assert found.get(path).status_code == 200
        return found


@contextmanager
def desk_of(local: LocalApi, provider: SigningProvider, secret: Path) -> Iterator[Desk]:
    secret.write_text(SECRET)
    listener = listen(host="127.0.0.1", port=0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    settings = sso_settings(provider.issuer, url, client_secret_file=secret)
    way = in_turn(create_app, local)
    with ExitStack() as opened:
        desk = Desk(provider, settings, local, opened)

        def token(principal: Principal) -> str:
            made = token_of_session(local.agents.home, principal, minutes=settings.session_minutes)
            next(desk.pauses, lambda: None)()
            return made

        def closed(text: str) -> None:
            for fault in desk.faults:
                raise fault
            end_session(local.agents.home, text)

        desk.door = SsoDoor(
            Provider(settings, clock=lambda: time() + desk.later),
            opened=token,
            closed=closed,
            clock=lambda: desk.seconds,
        )
        app = create_console(local.agents.home, desk.door, lambda given: PartyClient.over(way, token=given))
        opened.enter_context(serving([Served(app, listener)]))
        yield desk


@pytest.fixture
def provider() -> Iterator[SigningProvider]:
    with signing_provider() as found:
        yield found


@pytest.fixture
def desk(consortium: Consortium, local: LocalApi, provider: SigningProvider, tmp_path: Path) -> Iterator[Desk]:
    consortium.clock_shows = system_clock()
    with desk_of(local, provider, tmp_path / "secret") as found:
        yield found


@pytest.fixture
def release(consortium: Consortium, local: LocalApi) -> str:
    """A proposal that waits for two people."""
    consortium.clock_shows = system_clock()
    local.agents.home.save_policy(Policy(approvals=2))
    consortium.enrol_everybody()
    found = consortium.propose(title="Length of stay")
    local.agents.consortia[0].step(strictly)
    return found


def csrf_on(who: httpx.Client, path: str) -> str:
    """What a form on a page has to send; empty where there is none."""
    found = re.search(r'name="csrf" value="([^"]+)"', who.get(path).text)
    return found[1] if found else ""


def decide(who: httpx.Client, release: str, decision: str = "approve", **changes: str) -> httpx.Response:
    given = {"csrf": csrf_on(who, f"/proposals/{release}"), "why": "vote 12/26", "read": "yes", "decision": decision}
    return who.post(f"/proposals/{release}", data=given | changes)


def stopped(who: httpx.Client, path: str, **options: Any) -> httpx.Response:
    """An answer, no redirect of which is followed."""
    return who.get(path, follow_redirects=False, **options)


def callback_of(who: httpx.Client, path: str = "/") -> str:
    """Where the provider sends this browser, which does not go there yet."""
    at_provider = stopped(who, path).headers["location"]
    return str(httpx.get(at_provider).headers["location"])


def test_two_people_sign_on_to_one_console_and_the_ledger_names_both_subjects(desk: Desk, release: str) -> None:
    adams, berg = desk.browser(ADAMS, f"/proposals/{release}"), desk.browser(BERG)
    assert f"You decide as <b>u-adams at {desk.provider.issuer}</b>, called Dr. Adams" in (
        adams.get(f"/proposals/{release}").text
    )
    assert decide(adams, release, by="Dr. Chen").status_code == 200
    assert "1 of 2 approvals" in berg.get("/").text
    assert decide(berg, release).status_code == 200
    assert desk.local.agents.proposals.get(release).decision == "approved"
    first, second = desk.local.agents.ledger.notes()[release]
    assert re.fullmatch(rf"u-adams at {desk.provider.issuer} \(token sso-\w+ Dr\. Adams\)", first["by"])
    assert second["by"].startswith(f"u-berg at {desk.provider.issuer} (token sso-")


def test_one_subject_is_one_person_in_every_browser_and_under_every_name(desk: Desk, release: str) -> None:
    assert decide(desk.browser(ADAMS), release).status_code == 200
    for user in (ADAMS, ADAMS | {"name": "Dr. Berg"}, ADAMS | {"sub": "U-ADAMS"}):
        answer = decide(desk.browser(user), release)
        assert (answer.status_code, "has approved already" in answer.text) == (409, True)
    assert desk.local.agents.ledger.charges() == {}


@pytest.mark.parametrize("order", ["sign-on first", "token first", "operator first"])
def test_sign_on_and_token_or_operator_are_never_counted_as_two_people(desk: Desk, release: str, order: str) -> None:
    home, now = desk.local.agents.home, desk.local.agents.clock()
    secret = create_token(
        home, name="berg", scopes=frozenset({"read", "decide"}), lifetime=None, now=now, person="Dr. Berg"
    )
    with httpx.Client(transport=in_turn(create_app, desk.local), base_url="http://agent") as api:
        bearer = {} if order == "operator first" else {"Authorization": f"Bearer {secret}"}
        if order == "sign-on first":
            decide(desk.browser(ADAMS), release)
            other = api.put(f"/v1/proposals/{release}/approval", headers=bearer)
            assert (other.status_code, "nobody can tell" in other.text) == (409, True)
        else:
            assert api.put(f"/v1/proposals/{release}/approval", headers=bearer).status_code == 200
            answer = decide(desk.browser(ADAMS), release)
            assert (answer.status_code, "nobody can tell" in answer.text) == (409, True)
        assert desk.local.agents.ledger.charges() == {}
        # and anybody stops it, by whatever they have
        assert api.put(f"/v1/proposals/{release}/rejection", json={"why": "no"}, headers=bearer).status_code == 200


def test_name_with_an_address_in_it_that_an_operator_typed_is_no_sign_on(desk: Desk, release: str) -> None:
    typed = f"u-berg at {desk.provider.issuer}"
    desk.local.agents.approve(release, Ruling(by=typed, person=typed))
    assert decide(desk.browser(ADAMS), release).status_code == 409
    assert desk.local.agents.ledger.charges() == {}


def test_groups_say_what_may_be_done(desk: Desk, release: str) -> None:
    chen = desk.browser(CHEN)
    assert "Length of stay" in chen.get("/").text
    answer = decide(chen, release)
    assert (answer.status_code, "scope decide" in answer.text) == (409, True)
    assert chen.post("/datasets", data={"csrf": "x"}).status_code == 403
    for groups in ([], ["others"], "board", None, [["board"]], {"board": True}):
        nobody = desk.browser()
        desk.provider.user = CHEN | {"groups": groups}
        answer = nobody.get("/")
        assert (answer.status_code, "none of your groups" in answer.text) == (403, True)
        assert stopped(nobody, "/ledger").status_code == 303
    assert {tuple(sorted(one.scopes)) for one in local_tokens(desk.local.agents.home, system_clock()).values()} == {
        ("read",)
    }


def made_by(who: httpx.Client, name: str, *scopes: str) -> str:
    """A token that somebody makes at the console; empty where that is refused."""
    given = {"csrf": csrf_on(who, "/tokens"), "do": "make", "name": name, "days": "90"}
    given |= {f"scope-{one}": "yes" for one in scopes}
    made = re.search(r"commingle-local\.v1\.[\w-]{43}", who.post("/tokens", data=given).text)
    return made[0] if made else ""


def test_token_that_a_session_makes_reads_and_is_no_second_person(desk: Desk, release: str) -> None:
    adams = desk.browser(ADAMS)
    for scope in EVERY_SCOPE - {"read"}:  # though Adams decides, and has the page open
        assert made_by(adams, "mine", "read", scope) == made_by(adams, "mine", scope) == ""
    bearer = {"Authorization": f"Bearer {made_by(adams, 'mine', 'read')}"}
    desk.provider.user = ADAMS | {"groups": []}
    desk.seconds = 3600.0  # the session is over, and the groups are gone
    with httpx.Client(transport=in_turn(create_app, desk.local), base_url="http://agent", headers=bearer) as api:
        assert api.get(f"/v1/proposals/{release}").status_code == 200
        assert api.put(f"/v1/proposals/{release}/approval").status_code == 403
        assert api.post("/v1/regressions", content=b"{}").status_code == 403
    mine = local_tokens(desk.local.agents.home, system_clock())["mine"]
    assert (mine.person, mine.made_by) == ("", f"u-adams at {desk.provider.issuer}")


def test_person_can_have_so_many_tokens_and_no_more(desk: Desk) -> None:
    home, now = desk.local.agents.home, system_clock()
    adams = Principal(desk.provider.issuer, "u-adams", "", frozenset({"read"}), "")
    maker = maker_of(home, token_of_session(home, adams, minutes=60), now)
    for number in range(19):
        maker.make(f"mine {number}", frozenset({"read"}), 1)

    def make(name: str) -> str:
        try:
            return maker.make(name, frozenset({"read"}), 1).split(".")[0]
        except ConflictError as error:
            return str(error)

    answers = at_once(*(partial(make, f"late {number}") for number in range(8)))
    assert Counter(answers) == {"commingle-local": 1, "you have made as many tokens as you can have": 7}
    assert len(maker.tokens()) == 20
    maker_of(home, None, now).make("etl", frozenset({"read"}), 1)


def test_who_signed_on_sees_and_revokes_own_tokens_alone(desk: Desk) -> None:
    home, now = desk.local.agents.home, system_clock()
    create_token(home, name="etl", scopes=EVERY_SCOPE, lifetime=None, now=now)
    adams, chen = desk.browser(ADAMS), desk.browser(CHEN)
    assert made_by(adams, "mine", "read")
    assert made_by(adams, "etl", "read") == ""  # a name is one token's
    assert "There is none" not in adams.get("/tokens").text
    for other in ("mine", "etl", "sso-", "u-adams"):
        assert other not in chen.get("/tokens").text
    for name in local_tokens(home, now):
        answer = chen.post("/tokens", data={"csrf": csrf_on(chen, "/tokens"), "do": "revoke", "name": name})
        assert (answer.status_code, "no such token of yours" in answer.text) == (409, True)
    again = Principal(desk.provider.issuer, "u-adams", "Dr. Adams", frozenset({"read", "decide"}), "")
    session = token_of_session(home, again, minutes=60)
    maker_of(home, session, now).revoke("mine")
    assert sorted(name for name in local_tokens(home, now) if not name.startswith("sso-")) == ["etl"]
    revoke_token(home, next(name for name, one in local_tokens(home, now).items() if "u-adams" in one.person), now)
    with pytest.raises(UnauthorisedError):
        maker_of(home, session, now)


def test_group_that_is_taken_away_counts_when_the_session_ends(desk: Desk, release: str) -> None:
    adams = desk.browser(ADAMS)
    desk.provider.user = ADAMS | {"groups": ["staff"]}
    for minute in range(10, 60, 10):
        desk.seconds = 60.0 * minute
        assert stopped(adams, "/").status_code == 200
    desk.seconds = 3600.0  # whatever was looked at meanwhile
    assert stopped(adams, "/").status_code == 303
    assert decide(adams, release).status_code == 409
    desk.provider.user = ADAMS | {"groups": []}
    desk.seconds = 7200.0
    assert adams.get("/").status_code == 403


def test_session_ends_when_nobody_looks_though_its_page_fetches_by_itself(desk: Desk) -> None:
    adams = desk.browser(ADAMS)
    desk.seconds = 899.0
    assert stopped(adams, "/", headers={"Sec-Fetch-Mode": "cors"}).status_code == 200
    desk.seconds = 900.0
    assert stopped(adams, "/").status_code == 303


def test_operator_ends_a_session_by_its_token(desk: Desk) -> None:
    adams, home = desk.browser(ADAMS), desk.local.agents.home
    for path in ("/", "/ledger", "/datasets", "/members", "/tokens", "/doctor"):
        (name,) = local_tokens(home, system_clock())
        assert name.startswith("sso-")
        revoke_token(home, name, system_clock())
        answer = adams.get(path)
        assert (answer.status_code, "Your session has ended" in answer.text) == (403, True)
        assert stopped(adams, path).status_code == 303  # and nobody is kept in a session that shows no page
        assert adams.get(path).status_code == 200


def test_decision_under_a_token_that_the_operator_revoked_decides_nothing_and_ends_the_session(
    desk: Desk, release: str
) -> None:
    adams, home = desk.browser(ADAMS), desk.local.agents.home
    csrf = csrf_on(adams, f"/proposals/{release}")
    revoke_token(home, next(iter(local_tokens(home, system_clock()))), system_clock())
    answer = decide(adams, release, csrf=csrf)
    assert desk.local.agents.ledger.notes() == {}
    assert answer.status_code == 403
    assert stopped(adams, "/").status_code == 303


def test_session_that_idled_ends_with_its_token_when_somebody_else_signs_on_in_its_browser(desk: Desk) -> None:
    shared = desk.browser(ADAMS)
    desk.seconds = 60 * desk.settings.idle_minutes
    desk.provider.user = BERG
    with structlog.testing.capture_logs() as lines:
        assert shared.get("/").status_code == 200
    assert [(line["event"], line["subject"]) for line in lines] == [
        ("session ended", "u-adams"),
        ("signed in", "u-berg"),
    ]
    (left,) = local_tokens(desk.local.agents.home, system_clock()).values()
    assert left.person.startswith("u-berg at ")


def test_sign_in_on_a_full_disk_says_so_and_its_fault_is_logged(desk: Desk) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    desk.pauses = iter([full])
    with structlog.testing.capture_logs() as lines:
        answer = desk.browser().get("/")
    assert (answer.status_code, "No space left on device" in answer.text) == (500, True)
    assert [(line["event"], line["error"]) for line in lines] == [("unexpected fault", "OSError")]
    assert desk.browser().get("/").status_code == 200


def test_provider_with_an_empty_place_to_leave_has_none(desk: Desk) -> None:
    desk.provider.discovery = {"end_session_endpoint": ""}
    assert "refresh" not in desk.browser(ADAMS).post("/leave").headers


def test_proof_that_is_too_long_for_an_address_is_not_sent_to_the_provider_by_one(desk: Desk) -> None:
    desk.provider.claims = lambda claims: claims | {"groups": [*claims["groups"], *map(str, range(1000))]}
    answer = desk.browser(ADAMS).post("/leave")
    assert answer.headers["refresh"].startswith(
        f"0; url={desk.provider.issuer}/logout?x=1&client_id=console&post_logout"
    )
    assert sum(len(name) + len(value) + 4 for name, value in answer.headers.items()) < 4096


def test_who_leaves_is_out_here_and_is_led_to_the_provider(desk: Desk) -> None:
    with structlog.testing.capture_logs() as lines:
        adams = desk.browser(ADAMS)
        cookie = adams.cookies[desk.door.cookie]
        answer = adams.post("/leave")
    assert [(line["event"], line["subject"]) for line in lines] == [("signed in", "u-adams"), ("signed out", "u-adams")]
    assert "id_token" not in str(lines)
    where, _, asked = answer.headers["refresh"].removeprefix("0; url=").partition("&")
    said = dict(parse_qsl(asked))
    assert where == f"{desk.provider.issuer}/logout?x=1"
    assert said["post_logout_redirect_uri"] == f"{desk.url}/enter/left"
    assert said["id_token_hint"].count(".") == 2
    assert adams.get("/enter/left").status_code == 200
    assert local_tokens(desk.local.agents.home, system_clock()) == {}
    assert httpx.get(f"{desk.url}/ledger", cookies={desk.door.cookie: cookie}).status_code == 401


def logout(desk: Desk, **changes: Any) -> int:
    """What the console answers to a logout token of the provider."""
    token = desk.provider.logout_token(**changes)
    return httpx.post(f"{desk.url}/enter/ended", data={"logout_token": token}).status_code


@pytest.mark.parametrize("changes", [{}, {"sid": "s-1"}, {"sub": None, "sid": "s-1"}], ids=str)
def test_provider_ends_a_session_without_a_browser(desk: Desk, changes: dict[str, Any]) -> None:
    adams, berg = desk.browser(ADAMS | {"sid": "s-1"}), desk.browser(BERG | {"sid": "s-2"})
    assert logout(desk, **changes) == 200
    assert stopped(adams, "/").status_code == 303
    assert stopped(berg, "/").status_code == 200
    (left,) = local_tokens(desk.local.agents.home, system_clock()).values()
    assert left.person.startswith("u-berg at ")


def test_logout_token_that_was_used_ends_no_later_session(desk: Desk) -> None:
    assert [logout(desk, jti="once") for _ in range(2)] == [200, 400]
    adams = desk.browser(ADAMS)
    assert logout(desk, jti="once") == 400
    assert stopped(adams, "/").status_code == 200


@pytest.mark.parametrize(("changes", "refused"), [({}, True), ({"sub": "u-berg"}, False)], ids=["own", "another's"])
def test_session_that_the_provider_ends_while_it_begins_does_not_begin(
    desk: Desk, changes: dict[str, Any], refused: bool
) -> None:
    desk.pauses = iter([lambda: logout(desk, **changes)])
    desk.provider.user = ADAMS
    adams = desk.browser()
    answer = adams.get(callback_of(adams))
    assert (answer.status_code, "has ended this session" in answer.text) == ((403, True) if refused else (200, False))
    assert bool(local_tokens(desk.local.agents.home, system_clock())) is not refused
    assert stopped(adams, "/").status_code == (303 if refused else 200)


NO_LOGOUT: list[dict[str, Any]] = [
    *({name: None} for name in ("iss", "aud", "iat", "exp", "jti", "events", "sub")),
    {"iss": "https://evil.example"},
    {"aud": "other"},
    {"exp": 1_700_000_000},
    {"nonce": "n"},
    {"events": {}},
    {"events": {LOGGED_OUT: True}},
    {"events": LOGGED_OUT},
    {"sub": ["u-adams"]},
]


def test_token_that_is_no_logout_token_of_the_provider_ends_no_session(desk: Desk) -> None:
    adams = desk.browser(ADAMS | {"sid": "s-1"})
    assert [logout(desk, **changes) for changes in NO_LOGOUT] == [400] * len(NO_LOGOUT)
    assert httpx.post(f"{desk.url}/enter/ended", data={"logout_token": "x.y.z"}).status_code == 400
    assert httpx.post(f"{desk.url}/enter/ended", content=b"\xff").status_code == 400
    assert [logout(desk, **changes) for changes in ({"sid": "s-2"}, {"sub": "u-berg"})] == [200, 200]
    assert stopped(adams, "/").status_code == 200


def leave(desk: Desk, cookies: dict[str, str]) -> httpx.Response:
    """As another tab of a browser does."""
    return httpx.post(f"{desk.url}/leave", cookies=cookies, headers={"Origin": desk.url, "Accept": "text/html"})


def test_who_leaves_in_two_tabs_is_out_once_and_told_so_twice(desk: Desk) -> None:
    cookies = dict(desk.browser(ADAMS).cookies)
    with structlog.testing.capture_logs() as lines, ThreadPoolExecutor(2) as tabs:
        answers = [*tabs.map(lambda _: leave(desk, cookies), range(2))]
    late = leave(desk, cookies)
    assert {answer.status_code for answer in answers} <= {200, 403}
    assert (late.status_code, "Your session has ended, and nothing was done." in late.text) == (403, True)
    assert [line["event"] for line in lines] == ["signed out"]
    assert local_tokens(desk.local.agents.home, system_clock()) == {}


def test_token_of_who_leaves_ends_though_the_provider_keeps_others_waiting(desk: Desk) -> None:
    adams, go_on, ended = desk.browser(ADAMS), Event(), Event()
    desk.provider.user = BERG
    others = [desk.browser() for _ in range(4)]
    ways = [callback_of(other) for other in others]

    def late(claims: dict[str, Any]) -> str:
        go_on.wait(4)
        return desk.provider.signed(claims)

    def closed() -> Iterator[Exception]:
        ended.set()
        yield from ()

    desk.provider.sign, desk.faults = late, closed()
    with ThreadPoolExecutor(5) as threads:
        waiting = [threads.submit(other.get, way) for other, way in zip(others, ways, strict=True)]
        sleep(0.5)
        leaving = threads.submit(adams.post, "/leave")
        soon = ended.wait(2)
        go_on.set()
        assert (soon, leaving.result().status_code) == (True, 200)
        assert {one.result().status_code for one in waiting} <= {200, 403}


def test_token_of_who_idles_ends_with_the_session_though_nobody_comes_back(desk: Desk) -> None:
    desk.browser(ADAMS)
    desk.seconds = 60 * desk.settings.idle_minutes - 1
    berg, home = desk.browser(BERG), desk.local.agents.home
    with structlog.testing.capture_logs() as lines:
        desk.door.end_over(desk.seconds)
        assert len(local_tokens(home, system_clock())) == 2
        desk.seconds += 1
        desk.door.end_over(desk.seconds)
    assert [(line["event"], line["subject"]) for line in lines] == [("session ended", ADAMS["sub"])]
    (left,) = local_tokens(home, system_clock()).values()
    assert left.person.startswith(str(BERG["sub"]))
    assert berg.get("/ledger").status_code == 200


def test_fault_at_the_end_of_one_session_is_logged_without_its_words_and_the_others_end(desk: Desk) -> None:
    for user in (ADAMS, BERG):
        desk.browser(user)
    desk.seconds, desk.faults = 60 * desk.settings.idle_minutes, iter([RuntimeError("a row")])
    with structlog.testing.capture_logs() as lines:
        desk.door.end_over(desk.seconds)
    assert [line["event"] for line in lines] == ["session ended", "token not revoked", "session ended"]
    assert "a row" not in str(lines)
    (left,) = local_tokens(desk.local.agents.home, system_clock()).values()
    assert left.person.startswith(str(ADAMS["sub"]))


ENDS: dict[str, Callable[[Desk, httpx.Client], object]] = {
    "left in another tab": lambda desk, adams: leave(desk, dict(adams.cookies)),
    "ended by the provider": lambda desk, _: logout(desk),
    "too long without a page": lambda desk, _: setattr(desk, "seconds", 60 * desk.settings.idle_minutes),
    "taken over in another browser": lambda desk, _: desk.browser(ADAMS),
}


@pytest.mark.parametrize("end", ENDS)
def test_form_that_is_not_all_here_when_its_session_ends_decides_nothing(desk: Desk, release: str, end: str) -> None:
    adams, berg = desk.browser(ADAMS), desk.browser(BERG)
    csrf = csrf_on(adams, f"/proposals/{release}")
    assert csrf

    def slowly() -> Iterator[bytes]:
        yield f"csrf={csrf}&why=vote&read=yes".encode()
        berg.get("/ledger")  # when that is answered, the beginning has been looked at
        ENDS[end](desk, adams)
        yield b"&decision=approve"

    answer = adams.post(f"/proposals/{release}", content=slowly())
    assert (answer.status_code, "Your session has ended, and nothing was done." in answer.text) == (403, True)
    assert desk.local.agents.ledger.notes() == {}


def test_one_of_two_sign_ins_of_a_person_at_once_goes_on(desk: Desk) -> None:
    second = Event()

    def until_the_second_is_done() -> None:
        sleep(0.3 if second.wait(1) else 0.0)

    desk.pauses = iter([until_the_second_is_done, second.set])
    desk.provider.user = ADAMS
    tabs = [desk.browser() for _ in range(2)]
    ways = [callback_of(tab) for tab in tabs]
    with ThreadPoolExecutor(2) as threads:
        for each in [threads.submit(tab.get, way) for tab, way in zip(tabs, ways, strict=True)]:
            each.result()
    assert sorted(stopped(tab, "/ledger").status_code for tab in tabs) == [200, 303]


def test_new_sign_in_ends_the_one_before_and_takes_no_cookie_from_outside(desk: Desk) -> None:
    planted = desk.browser()
    planted.cookies.set(desk.door.cookie, "planted", domain="127.0.0.1")
    desk.provider.user = ADAMS
    assert planted.get("/").status_code == 200
    first = planted.cookies[desk.door.cookie]
    assert first != "planted"
    other = desk.browser(ADAMS)
    assert stopped(planted, "/").status_code == 303
    assert stopped(other, "/").status_code == 200
    assert len(local_tokens(desk.local.agents.home, system_clock())) == 1


def test_return_without_the_cookie_of_its_beginning_signs_nobody_in(desk: Desk) -> None:
    mallory, victim = desk.browser(), desk.browser()
    desk.provider.user = ADAMS
    theirs = callback_of(mallory)
    assert victim.get(theirs).status_code == 403  # who never began
    own = callback_of(victim)
    for url in (theirs, theirs.replace("code-0", "code-1"), f"{desk.url}/enter/callback", own.replace("state=", "s=")):
        answer = victim.get(url)
        assert (answer.status_code, "in this browser" in answer.text) == (403, True)
    assert desk.door.cookie not in victim.cookies
    for asked, said in (
        ("error=access_denied&error_description=no+role", "“access_denied no role”"),
        ("code=code-1&iss=https%3A%2F%2Fevil.example", "another provider"),
        ("code=unknown", "“invalid_grant”"),
    ):
        state = parse_qs(urlsplit(own).query)["state"][0]
        answer = victim.get(f"{desk.url}/enter/callback?{asked}&state={state}")
        assert (answer.status_code, said in answer.text) == (403, True)
    assert stopped(victim, own).status_code == 303


def test_code_that_was_used_signs_nobody_in_again(desk: Desk) -> None:
    adams = desk.browser()
    desk.provider.user = ADAMS
    own, kept = callback_of(adams), dict(adams.cookies)
    assert stopped(adams, own).status_code == 303
    assert not any("sign-in" in name for name in adams.cookies)
    assert adams.get(own).status_code == 403
    adams.cookies.update(kept)
    answer = adams.get(own)
    assert (answer.status_code, "does not take this code" in answer.text) == (403, True)


@pytest.mark.parametrize(
    "changes",
    [{"nonce": "another"}, {"aud": "another"}, {"iss": "https://evil.example"}, {"exp": 1_700_000_000}, {"sub": ""}],
)
def test_token_that_does_not_hold_signs_nobody_in(desk: Desk, changes: dict[str, Any]) -> None:
    desk.provider.user, desk.provider.claims = ADAMS, lambda claims: claims | changes
    nobody = desk.browser()
    assert nobody.get("/").status_code == 403
    desk.provider.sign = lambda _: "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ1LWFkYW1zIn0."
    assert nobody.get("/").status_code == 403
    assert local_tokens(desk.local.agents.home, system_clock()) == {}


WAYS = ("//evil.example/x", "/\\evil.example", "/https://evil.example", "/?next=//evil.example")


@pytest.mark.parametrize("path", WAYS)
def test_way_back_leads_to_this_console_only(desk: Desk, path: str) -> None:
    desk.provider.user = ADAMS
    who = desk.browser()
    request = who.build_request("GET", "/")
    request.url = request.url.copy_with(raw_path=path.encode())
    began = who.send(request, follow_redirects=False)
    assert began.headers["location"].startswith(f"{desk.provider.issuer}/authorize?")
    back = stopped(who, str(httpx.get(began.headers["location"]).headers["location"])).headers["location"]
    assert urlsplit(back)[:2] == urlsplit(desk.url)[:2]


def test_form_of_another_site_or_session_decides_nothing(desk: Desk, release: str) -> None:
    adams, berg = desk.browser(ADAMS), desk.browser(BERG)
    given = {"csrf": csrf_on(berg, "/"), "why": "", "read": "yes", "decision": "reject"}
    assert given["csrf"]
    strange = [
        adams.post(f"/proposals/{release}", data=given),
        adams.post(f"/proposals/{release}", data=given, headers={"Origin": "https://evil.example"}),
        adams.post("/leave", headers={"Origin": "null"}),
        adams.get("/", headers={"Host": "rebound.example"}),
        desk.browser().post(f"/proposals/{release}", data=given),
    ]
    assert [answer.status_code for answer in strange] == [403] * 5
    assert stopped(adams, "/").status_code == 200
    assert desk.local.agents.proposals.get(release).decision == "waiting"


def test_provider_that_is_away_keeps_nobody_from_stopping_a_release(
    local: LocalApi, release: str, tmp_path: Path
) -> None:
    with ExitStack() as running, ExitStack() as signing:
        provider = signing.enter_context(signing_provider())
        desk = running.enter_context(desk_of(local, provider, tmp_path / "secret"))
        adams = desk.browser(ADAMS)
        signing.close()
        desk.later = 601.0  # what was known of it is forgotten
        answer = desk.browser().get("/")
        assert (answer.status_code, "commingle party reject" in answer.text) == (503, True)
        assert decide(adams, release, "reject").status_code == 200
        assert "You have left" in adams.post("/leave").text
    assert local.agents.proposals.get(release).decision == "rejected"


def test_provider_that_does_not_say_what_it_is_is_asked_once_in_a_while(desk: Desk) -> None:
    nobody = desk.browser()
    for said in ({"issuer": "https://evil.example"}, {"token_endpoint": "http://evil.example"}, {"jwks_uri": 3}):
        desk.provider.discovery, desk.provider.asked = dict[str, Any](said), []
        assert [nobody.get("/").status_code for _ in range(3)] == [503] * 3
        assert desk.provider.asked == ["configuration"]
        desk.later += 5.0
    desk.provider.discovery = {}
    assert nobody.get("/").status_code == 200


@pytest.mark.parametrize("host", ["a..b", "xn--", "[::1]]", "\u2488com"])
def test_place_of_a_provider_that_is_no_address_signs_nobody_in(desk: Desk, host: str) -> None:
    for place, status in (("token_endpoint", 403), ("jwks_uri", 503)):
        desk.provider.discovery = {place: f"https://{host}/"}
        desk.later += 601.0
        assert desk.browser().get("/").status_code == status


def test_provider_whose_authority_cannot_be_read_is_away_and_the_log_names_the_file(desk: Desk, tmp_path: Path) -> None:
    settings = desk.settings.model_copy(update={"url": "https://console.example", "ca_file": tmp_path / "gone.pem"})
    app = create_console(
        desk.local.agents.home, SsoDoor(Provider(settings)), lambda _: PartyClient.over(InProcess(app))
    )
    headers = {"Host": "console.example", "Accept": "text/html"}
    nobody = httpx.Client(transport=InProcess(app), base_url=settings.url, headers=headers)
    with nobody, structlog.testing.capture_logs() as lines:
        assert nobody.get("/").status_code == 503
    assert ["gone.pem" in line["reason"] and "PEM" in line["remedy"] for line in lines] == [True]


def test_behind_a_proxy_with_tls_cookies_are_for_tls_and_this_name_alone(desk: Desk) -> None:
    settings = sso_settings(desk.provider.issuer, "https://console.example")
    app = create_console(
        desk.local.agents.home, SsoDoor(Provider(settings)), lambda _: PartyClient.over(InProcess(app))
    )
    with httpx.Client(transport=InProcess(app), base_url="http://10.0.0.7:8900") as proxy:
        headers = {"Host": "console.example", "Accept": "text/html", "X-Forwarded-Proto": "http"}
        began = proxy.get("/", headers=headers)
        cookie = began.headers["set-cookie"]
        assert cookie.startswith("__Host-commingle-sign-in-")
        for word in ("HttpOnly", "Path=/", "SameSite=lax", "Secure"):
            assert word in cookie
        assert "Domain" not in cookie
        asked = parse_qs(urlsplit(began.headers["location"]).query)
        assert asked["redirect_uri"] == ["https://console.example/enter/callback"]
        assert asked["code_challenge_method"] == ["S256"]
        past = proxy.get("/", headers={"Accept": "text/html"})  # past the proxy's name
        assert (past.status_code, "Sign in at https://console.example." in past.text) == (403, True)


def test_pages_are_shown_to_no_program_and_say_so(desk: Desk) -> None:
    answer = httpx.get(f"{desk.url}/ledger")
    assert (answer.status_code, answer.json()["type"]) == (401, "urn:commingle:problem:sign-in")
    assert httpx.get(f"{desk.url}/static/pages.css").status_code == 200


def test_command_names_each_session_in_full_so_that_it_can_be_ended(desk: Desk, run: Command) -> None:
    desk.browser(ADAMS)
    home = str(desk.local.agents.home.root)
    (line,) = run("party", "token", "list", "--home", home)[1].splitlines()
    name, _, said = line.partition(": ")
    assert f"decide, read, for u-adams at {desk.provider.issuer}; made by u-adams at " in said
    assert run("party", "token", "revoke", "--home", home, "--name", name)[0] == 0
    assert run("party", "token", "list", "--home", home)[1] == ""


REFUSED: dict[tuple[str, ...], str] = {
    ("--host", "10.0.0.1"): "go with --sso",
    ("--sso", "--host", "10.0.0.1"): "is served by TLS",
    ("--sso", "--person", "Ann"): "leave it out",
    ("--sso",): "no provider of single sign-on is set",
    ("--person", "u-1 at https://x"): "not an address",
}


def test_command_refuses_what_could_be_read_on_the_way_or_taken_for_another(
    consortium: Consortium, run: Command
) -> None:
    home = str(consortium.homes["clinic"].root)
    for options, said in REFUSED.items():
        code, _, err = run("party", "console", "--home", home, *options)
        assert (code in {1, 2}, said in err) == (True, True), err


def test_provider_without_the_library_for_its_tokens_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joserfc", None)
    with pytest.raises(MissingExtraError) as refused:
        Provider(sso_settings("https://login.example", "https://console.example"))
    assert "commingle[sso]" in refused.value.remedy
