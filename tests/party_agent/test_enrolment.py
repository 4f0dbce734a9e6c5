"""Joining: what the invite says about the coordinator is checked before anything is sent."""

from pathlib import Path

import pytest

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home import Home, PartySettings
from commingle.party_agent.membership import enrol
from commingle.party_agent.policy import Policy
from commingle.shared.documents.keys import SigningKey
from commingle.shared.runtime.errors import NonsenseError, RemoteProblemError, SettingsError, UnreachableError
from tests.party_agent.fake_coordinator import FakeCoordinator, answering
from tests.party_agent.sockets import on_a_socket

GOOD = "good-and-long-enough"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "ward")
    home.create(PartySettings(name="ward"), policy=Policy(), linkage_key=None)
    return home


def invite_of(coordinator: FakeCoordinator, *, ending: str = GOOD) -> str:
    return f"commingle-invite.v1.{coordinator.key.fingerprint}.{ending}"


def test_party_introduces_itself_and_pins_the_coordinator(home: Home) -> None:
    coordinator = FakeCoordinator()
    with on_a_socket(coordinator) as url:
        enrolled = enrol(home, url=url, invite=f"  {invite_of(coordinator)}\n")
        again = enrol(home, url=url, invite=invite_of(coordinator))
    member = coordinator.members["ward"]
    assert member.signing_key == home.identity().signing_key.verifying_key.raw.hex()
    assert member.sealing_key == home.sealing_key().hex()
    assert home.settings().coordinator == enrolled == again
    assert enrolled.key == coordinator.key.verifying_key


@pytest.mark.parametrize(
    "invite",
    ["", "hello", "commingle-invite.v1.abc.good-and-long-enough", f"commingle-invite.v2.{'0' * 64}.{GOOD}",
     f"commingle-invite.v1.{'0' * 64}.short", f"commingle-invite.v1.{'0' * 64}.{GOOD} and more"],
)  # fmt: skip
def test_what_is_no_invite_is_refused_before_anything_is_sent(home: Home, invite: str) -> None:
    with pytest.raises(SettingsError, match="not an invite"):
        enrol(home, url="http://127.0.0.1:1", invite=invite)


def test_coordinator_with_another_key_than_the_invite_names_is_not_told_the_invite(home: Home) -> None:
    impostor = FakeCoordinator(key=SigningKey(b"\xee" * 32))
    with on_a_socket(impostor) as url, pytest.raises(ConflictError, match="another key than the invite names"):
        enrol(home, url=url, invite=invite_of(FakeCoordinator()))
    assert impostor.requests == ["GET /v1/coordinator"]
    assert home.settings().coordinator is None


def test_invite_the_coordinator_does_not_know_is_refused_in_its_words(home: Home) -> None:
    coordinator = FakeCoordinator()
    with on_a_socket(coordinator) as url, pytest.raises(RemoteProblemError, match="invite is not valid") as refused:
        enrol(home, url=url, invite=invite_of(coordinator, ending="another-long-secret"))
    assert (refused.value.status, refused.value.problem) == (403, "invite")
    assert home.settings().coordinator is None


def test_second_coordinator_is_refused(home: Home) -> None:
    first, second = FakeCoordinator(), FakeCoordinator(key=SigningKey(b"\xee" * 32))
    with on_a_socket(first) as url:
        enrol(home, url=url, invite=invite_of(first))
    with on_a_socket(second) as url, pytest.raises(ConflictError, match="enrolled with another"):
        enrol(home, url=url, invite=invite_of(second))
    assert not second.members
    assert home.settings().coordinator is not None


@pytest.mark.parametrize("url", ["", "nonsense", "::::", "ftp://host", "http://"])
def test_what_is_no_address_is_said_to_be_none(home: Home, url: str) -> None:
    with pytest.raises((NonsenseError, UnreachableError)):
        enrol(home, url=url, invite=invite_of(FakeCoordinator()))


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"name": "x", "signing_key": "zz"}', b'{"name": "x"}', b"\xff"]
)
def test_answer_that_is_nonsense_is_said_to_be_nonsense(home: Home, body: bytes) -> None:
    coordinator = FakeCoordinator(before=answering(200, body, part="coordinator"))
    with on_a_socket(coordinator) as url, pytest.raises(NonsenseError):
        enrol(home, url=url, invite=invite_of(coordinator))


def test_nobody_there_is_unreachable(home: Home) -> None:
    with pytest.raises(UnreachableError):
        enrol(home, url="http://127.0.0.1:1", invite=invite_of(FakeCoordinator()))
