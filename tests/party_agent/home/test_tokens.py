"""Scoped tokens of the local API."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx
import pytest

from commingle.__main__ import main
from commingle.party_agent.errors import ConflictError, NotFoundError
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.tokens import (
    EVERY_SCOPE,
    AgentScope,
    create_token,
    local_tokens,
    revoke_token,
    token_of_session,
)
from commingle.shared.runtime.oidc import Principal
from tests.world.consortium import Consortium, strictly
from tests.world.local_api import network_app, operator_app
from tests.world.tampering import NOW
from tests.world.transport import InProcess

CALLS: dict[AgentScope, tuple[str, str]] = {
    "read": ("GET", "/v1/ledger"),
    "decide": ("PUT", "/v1/proposals/{release}/rejection"),
    "register": ("POST", "/v1/datasets/main/reading"),
}
DONE = {"read": 200, "decide": 200, "register": 202}
NOTHING_DONE = dict.fromkeys(DONE, 401)


@pytest.fixture
def home(consortium: Consortium) -> Home:
    return consortium.homes["clinic"]


@pytest.fixture(params=[network_app, operator_app])
def http(consortium: Consortium, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """Over the network and over the socket: a token counts for what it is, also where its bearer could do without."""
    with consortium.agent("clinic") as agent:
        consortium.propose()
        agent.step(strictly)
        with httpx.Client(transport=InProcess(request.param(agent)), base_url="http://agent") as client:
            yield client


def call(http: httpx.Client, consortium: Consortium, scope: AgentScope, token: str | None) -> int:
    method, path = CALLS[scope]
    release = consortium.coordinator.releases()[0]
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return http.request(method, path.format(release=release), content=b"{}", headers=headers).status_code


@pytest.mark.parametrize("granted", sorted(EVERY_SCOPE))
def test_token_may_do_what_its_scope_says_and_nothing_else(
    consortium: Consortium, home: Home, http: httpx.Client, granted: AgentScope
) -> None:
    token = create_token(home, name="etl", scopes=frozenset({granted}), lifetime=None, now=NOW)
    seen = {scope: call(http, consortium, scope, token) for scope in CALLS}
    assert seen == {scope: DONE[scope] if scope == granted else 403 for scope in CALLS}


def test_expired_revoked_and_altered_tokens_let_nobody_in(
    consortium: Consortium, home: Home, http: httpx.Client
) -> None:
    brief, lasting = (
        create_token(home, name=name, scopes=EVERY_SCOPE, lifetime=lifetime, now=NOW)
        for name, lifetime in (("brief", timedelta(days=1)), ("lasting", None))
    )
    assert [call(http, consortium, "read", token) for token in (brief, lasting, lasting[:-1])] == [200, 200, 401]
    consortium.clock_shows += timedelta(days=1)
    assert [call(http, consortium, "read", token) for token in (brief, lasting)] == [401, 200]
    revoke_token(home, "lasting")
    assert call(http, consortium, "read", lasting) == 401
    with pytest.raises(NotFoundError):
        revoke_token(home, "lasting")


def test_tokens_are_kept_hashed_and_named_once(home: Home) -> None:
    text = create_token(home, name="etl", scopes=EVERY_SCOPE, lifetime=None, now=NOW)
    assert text.rsplit(".", 1)[1] not in (home.root / "tokens.json").read_text()
    with pytest.raises(ConflictError):
        create_token(home, name="etl", scopes=EVERY_SCOPE, lifetime=None, now=NOW)


def test_commands_make_list_and_revoke_tokens(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> dict[str, object]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["party", "token", *arguments, "--home", str(home.root), "--json"])
        assert ended.value.code == 0
        printed: dict[str, object] = json.loads(capsys.readouterr().out)
        return printed

    made = run("create", "--name", "etl", "--scope", "read", "--scope", "register", "--expires-days", "2")
    assert made["scopes"] == ["read", "register"]
    assert local_tokens(home)["etl"].scopes == {"read", "register"}
    assert str(made["token"]) not in str(run("list"))
    run("revoke", "--name", "etl")
    assert run("list") == {"items": []}


def test_tokens_that_are_made_and_revoked_at_once_are_all_made_and_revoked(home: Home) -> None:
    for name in "abcdefgh":
        create_token(home, name=name, scopes=EVERY_SCOPE, lifetime=None, now=NOW)
    signing = [Principal("https://login.example", f"u-{name}", "", frozenset({"read"}), "") for name in "abcdefgh"]
    with ThreadPoolExecutor(16) as threads:
        made = [threads.submit(token_of_session, home, one, minutes=60) for one in signing]
        gone = [threads.submit(revoke_token, home, name) for name in "abcdefgh"]
        assert [each.exception() for each in made + gone] == [None] * 16
    persons = {one.person for one in local_tokens(home).values()}
    assert persons == {f"u-{name} at https://login.example" for name in "abcdefgh"}
