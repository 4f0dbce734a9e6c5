"""Whom new proposals are told to: once each, signed, without anything a stranger could use, and until it is taken."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from commingle import PartyClient
from commingle.party_agent.edge.client import HEADER, is_signed, signature
from commingle.party_agent.edge.webhook import Notices, remove_webhook, send_test, set_webhook
from commingle.party_agent.home.home import Home
from commingle.party_agent.rounds.agent import Agent
from commingle.shared.errors import CommingleError
from tests.world.command import Command
from tests.world.consortium import AUTOMATIC, BY_A_PERSON, Consortium, consortium_of, strictly
from tests.world.transport import on_a_socket

URL = "https://desk.example/hooks/proposals?from=ward"


@dataclass
class Desk(httpx.BaseTransport):
    """A receiver that may be away."""

    away: bool = False
    received: list[httpx.Request] = field(default_factory=list)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.away:
            raise httpx.ConnectError("refused", request=request)
        self.received.append(request)
        return httpx.Response(204)

    @property
    def told(self) -> list[str]:
        return [json.loads(request.content)["release"] for request in self.received]


def notices(agent: Agent, desk: Desk) -> Notices:
    return Notices(agent.home, agent.proposals, agent.jobs, agent.clock, transport=desk)


def test_proposal_that_waits_is_told_once_and_nothing_but_its_id(consortium: Consortium, agent: Agent) -> None:
    desk = Desk()
    secret = set_webhook(agent.home, URL, ca_file=None, allow_http=False).secret
    release = consortium.propose(title="A title of a study")
    for _ in range(2):
        agent.step(strictly)
        notices(agent, desk).attempt()  # each as after a start
    (request,) = desk.received
    assert str(request.url) == URL
    assert json.loads(request.content) == {"event": "proposal", "release": release}
    everything = request.content + repr(request.headers).encode()
    assert not any(word in everything for word in (secret.encode(), b"title", b"clinic", b"main", b"bmi"))
    now = agent.clock().timestamp()
    assert is_signed(secret, request.content, request.headers[HEADER], now=now + 299)
    agent.approve(release, BY_A_PERSON)
    later = consortium.propose(title="later")
    agent.step(strictly)
    notices(agent, desk).attempt()
    assert desk.told == [release, later]


def test_what_was_not_taken_is_told_again_and_more_and_more_seldom(consortium: Consortium, agent: Agent) -> None:
    desk = Desk(away=True)
    set_webhook(agent.home, URL, ca_file=None, allow_http=False)
    releases = [consortium.propose(title=title) for title in ("one", "two")]
    agent.step(strictly)
    telling = notices(agent, desk)
    for failures in (1, 2):
        telling.attempt()
        assert telling.failures == failures
    desk.away = False
    telling.attempt()
    assert (sorted(desk.told), telling.failures) == (sorted(releases), 0)


def test_what_approves_itself_or_is_decided_is_told_to_nobody(tmp_path: Path) -> None:
    consortium, desk = consortium_of(tmp_path, "clinic", "insurer", policy=AUTOMATIC), Desk()
    with consortium.agent("clinic") as agent:
        set_webhook(agent.home, URL, ca_file=None, allow_http=False)
        consortium.propose()
        agent.step(strictly)
        notices(agent, desk).attempt()
    assert desk.received == []


def test_nobody_is_told_where_nobody_is_named(consortium: Consortium, agent: Agent) -> None:
    desk = Desk()
    consortium.propose()
    agent.step(strictly)
    notices(agent, desk).attempt()
    set_webhook(agent.home, URL, ca_file=None, allow_http=False)
    remove_webhook(agent.home)
    notices(agent, desk).attempt()
    assert desk.received == []


def test_receiver_takes_no_forged_changed_or_old_message() -> None:
    secret, body = "s" * 32, b'{"event": "proposal"}'
    given = f"t=1000,v1={'0' * 64}"
    genuine = signature(secret, body, 1000)
    assert is_signed(secret, body, genuine, now=1000)
    assert not is_signed(secret, body, given, now=1000)
    assert not is_signed("t" * 32, body, genuine, now=1000)
    assert not is_signed(secret, body + b" ", genuine, now=1000)
    assert not is_signed(secret, body, genuine, now=1301)
    assert not is_signed(secret, body, genuine.replace("t=1000", "t=1300"), now=1301)
    for nonsense in ("", "t=", "t=x,v1=", f"t={'9' * 5000},v1=", "t=\u0661,v1=", "v1=1"):
        assert not is_signed(secret, body, nonsense, now=1000)
    assert not PartyClient.is_from_agent(secret, body, genuine)


@pytest.mark.parametrize("url", ["http://desk.example/hook", "ftp://desk.example", "desk"])
def test_address_that_others_would_read_along_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(CommingleError):
        set_webhook(Home(tmp_path), url, ca_file=None, allow_http=False)
    assert not (tmp_path / "webhook.json").exists()


def test_commands_set_test_and_remove(consortium: Consortium, run: Command) -> None:
    home, seen = consortium.homes["clinic"], list[httpx.Request]()

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(500 if len(seen) == 1 else 200)

    with on_a_socket(answer) as url:
        assert run("party", "webhook", "test", "--home", home.root)[0] == 1
        code, secret, _ = run("party", "webhook", "set", url, "--home", home.root)
        assert (code, (home.root / "webhook.json").stat().st_mode & 0o077) == (0, 0)
        assert "did not accept it" in run.refused("party", "webhook", "test", "--home", home.root)
        assert send_test(home) == url
    assert secret.strip() in (home.root / "webhook.json").read_text()
    assert run("party", "webhook", "remove", "--home", home.root)[0] == 0
