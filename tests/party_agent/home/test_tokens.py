"""Scoped tokens of the local API."""

import errno
import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest

from commingle.party_agent.errors import ConflictError, NotFoundError
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.tokens import (
    EVERY_SCOPE,
    create_token,
    find_token,
    local_tokens,
    revoke_token,
    token_of_session,
)
from commingle.shared.runtime.oidc import Principal
from commingle.shared.runtime.settings import system_clock
from tests.world.command import Command
from tests.world.consortium import Consortium
from tests.world.coordinator import problem
from tests.world.local_api import reached
from tests.world.tampering import NOW


@pytest.fixture
def home(consortium: Consortium) -> Home:
    return consortium.homes["clinic"]


@pytest.fixture(params=[False, True])
def http(consortium: Consortium, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """Over the network and over the socket: a token counts for what it is, also where its bearer could do without."""
    with (
        consortium.agent("clinic") as agent,
        httpx.Client(transport=reached(agent, peer_is_operator=request.param), base_url="http://agent") as client,
    ):
        yield client


def call(http: httpx.Client, token: str) -> int:
    return http.get("/v1/ledger", headers={"Authorization": f"Bearer {token}"}).status_code


def test_expired_revoked_and_altered_tokens_let_nobody_in(
    consortium: Consortium, home: Home, http: httpx.Client
) -> None:
    brief, lasting = (
        create_token(home, name=name, scopes=EVERY_SCOPE, lifetime=lifetime, now=NOW)
        for name, lifetime in (("brief", timedelta(days=1)), ("lasting", None))
    )
    assert [call(http, token) for token in (brief, lasting, lasting[:-1])] == [200, 200, 401]
    consortium.clock_shows += timedelta(days=1)
    assert [call(http, token) for token in (brief, lasting)] == [401, 200]
    revoke_token(home, "lasting", NOW)
    assert call(http, lasting) == 401
    with pytest.raises(NotFoundError):
        revoke_token(home, "lasting", NOW)


def test_header_that_brings_no_token_lets_nobody_in(home: Home, http: httpx.Client) -> None:
    token = create_token(home, name="own", scopes=EVERY_SCOPE, lifetime=None, now=NOW)
    for header in ("", "Bearer", "Bearer ", "Bearer wrong", f"Basic {token}", token, f"Bearer {token}x", "Bearer ä"):
        refused = http.get("/v1/ledger", headers=[(b"Authorization", header.encode("latin-1"))])
        assert problem(refused) == (401, "unauthorised"), header


def test_tokens_are_kept_hashed_and_named_once(home: Home) -> None:
    text = create_token(home, name="etl", scopes=EVERY_SCOPE, lifetime=None, now=NOW)
    assert text.rsplit(".", 1)[1] not in (home.root / "tokens.json").read_text()
    with pytest.raises(ConflictError):
        create_token(home, name="etl", scopes=EVERY_SCOPE, lifetime=None, now=NOW)


def test_commands_make_list_and_revoke_tokens(home: Home, run: Command) -> None:
    def token(*arguments: str) -> dict[str, Any]:
        return run.json("party", "token", *arguments, "--home", home.root)

    made = token("create", "--name", "etl", "--scope", "read", "--scope", "register", "--expires-days", "2")
    assert made["scopes"] == ["read", "register"]
    assert local_tokens(home, system_clock())["etl"].scopes == {"read", "register"}
    assert str(made["token"]) not in str(token("list"))
    (listed,) = token("list")["items"]
    assert (listed["made_by"], listed["used"]) == ("", None)
    token("revoke", "--name", "etl")
    assert token("list") == {"items": []}


def test_last_use_is_told_to_within_a_minute_and_written_once_in_it(
    consortium: Consortium, home: Home, http: httpx.Client
) -> None:
    token = create_token(home, name="etl", scopes=EVERY_SCOPE, lifetime=None, now=NOW)
    assert local_tokens(home, NOW)["etl"].used is None
    file, begun = home.root / "tokens.json", consortium.clock_shows
    seen = []
    for second in (0, 1, 59, 60, 61, -5):  # the last: its clock was set back
        consortium.clock_shows = begun + timedelta(seconds=second)
        before = file.stat().st_ino
        call(http, token)
        call(http, token[:-1])
        used = local_tokens(home, begun)["etl"].used
        assert used is not None
        seen.append(((used - begun).total_seconds(), file.stat().st_ino != before))
    assert seen == [(0, True), (0, False), (0, False), (60, True), (60, False), (-5, True)]


def test_full_disk_keeps_no_token_from_its_work(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    token = create_token(home, name="etl", scopes=EVERY_SCOPE, lifetime=None, now=NOW)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", full)
    found = find_token(home, token, NOW)
    assert found is not None
    assert local_tokens(home, NOW)["etl"].used is None


def test_expired_tokens_are_not_listed_and_leave_the_file_with_its_next_change(home: Home) -> None:
    hour, file = timedelta(hours=1), home.root / "tokens.json"
    create_token(home, name="console-1f3a", scopes=EVERY_SCOPE, lifetime=hour, now=NOW, person="Dr. Adams")
    assert list(local_tokens(home, NOW + hour)) == []
    assert "console-1f3a" in file.read_text()
    create_token(home, name="etl", scopes=EVERY_SCOPE, lifetime=None, now=NOW + hour)
    assert "console-1f3a" not in file.read_text()


def test_tokens_that_are_made_and_revoked_at_once_are_all_made_and_revoked(home: Home) -> None:
    for name in "abcdefgh":
        create_token(home, name=name, scopes=EVERY_SCOPE, lifetime=None, now=NOW)
    signing = [Principal("https://login.example", f"u-{name}", "", frozenset({"read"}), "") for name in "abcdefgh"]
    with ThreadPoolExecutor(16) as threads:
        made = [threads.submit(token_of_session, home, one, minutes=60) for one in signing]
        gone = [threads.submit(revoke_token, home, name, NOW) for name in "abcdefgh"]
        assert [each.exception() for each in made + gone] == [None] * 16
    persons = {one.person for one in local_tokens(home, NOW).values()}
    assert persons == {f"u-{name} at https://login.example" for name in "abcdefgh"}


def test_token_lets_in_while_another_process_holds_the_tokens(home: Home) -> None:
    text = create_token(home, name="ward", scopes=EVERY_SCOPE, lifetime=None, now=NOW)
    held = os.open(home.root, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    found = find_token(home, text, NOW)
    os.close(held)
    assert found is not None
    assert local_tokens(home, NOW)["ward"].used is None


def test_clock_that_is_wrong_once_takes_no_token_away(home: Home) -> None:
    day = timedelta(days=1)
    for_good = create_token(home, name="ward", scopes=EVERY_SCOPE, lifetime=None, now=NOW)
    create_token(home, name="month", scopes=EVERY_SCOPE, lifetime=30 * day, now=NOW)
    assert find_token(home, for_good, NOW + 400 * day) is not None
    assert {*local_tokens(home, NOW)} == {"ward", "month"}
