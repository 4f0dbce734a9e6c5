"""Joining: what the invite says about the coordinator is checked before anything is sent."""

from pathlib import Path

import pytest

from commingle.coordinator.store.members import PartyRow
from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.home import Home, PartySettings
from commingle.party_agent.home.policy import Policy
from commingle.party_agent.operate.membership import enrol
from commingle.shared.documents.errors import DocumentError
from commingle.shared.documents.keys import SigningKey
from commingle.shared.runtime.errors import NonsenseError, RemoteProblemError, SettingsError, UnreachableError
from commingle.shared.runtime.settings import system_clock
from tests.world.coordinator import SetClock
from tests.world.tampering import TamperedCoordinator
from tests.world.transport import answering, on_a_socket

GOOD = "good-and-long-enough"
INVITE = f"commingle-invite.v1.{SigningKey(bytes([0xC0]) * 32).fingerprint}.{GOOD}"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "ward")
    home.create(PartySettings(name="ward"), policy=Policy(), linkage_key=None)
    return home


@pytest.fixture
def other(tmp_path: Path) -> TamperedCoordinator:
    return TamperedCoordinator(tmp_path / "other", clock=SetClock(system_clock()), key=SigningKey(b"\xee" * 32))


def member_of(coordinator: TamperedCoordinator, name: str = "ward") -> PartyRow | None:
    with coordinator.hub.store.read() as tx:
        return tx.members.get(name)


def test_party_introduces_itself_and_pins_the_coordinator(home: Home, coordinator: TamperedCoordinator) -> None:
    invite = coordinator.invited("ward")
    with on_a_socket(coordinator.handle) as url:
        enrolled = enrol(home, url=url, invite=f"  {invite}\n")
        again = enrol(home, url=url, invite=invite)
    member = member_of(coordinator)
    assert member is not None
    assert member.signing_key == home.identity().signing_key.verifying_key.raw.hex()
    assert member.sealing_key == home.sealing_key().hex()
    assert home.consortium() == enrolled == again
    assert enrolled.coordinator().key == coordinator.key.verifying_key


@pytest.mark.parametrize(
    "invite",
    ["", "hello", "commingle-invite.v1.abc.good-and-long-enough", f"commingle-invite.v2.{'0' * 64}.{GOOD}",
     f"commingle-invite.v1.{'0' * 64}.short", f"commingle-invite.v1.{'0' * 64}.{GOOD} and more"],
)  # fmt: skip
def test_what_is_no_invite_is_refused_before_anything_is_sent(home: Home, invite: str) -> None:
    with pytest.raises(DocumentError, match="not an invite"):
        enrol(home, url="http://127.0.0.1:1", invite=invite)


def test_coordinator_with_another_key_than_the_invite_names_is_not_told_the_invite(
    home: Home, coordinator: TamperedCoordinator, other: TamperedCoordinator
) -> None:
    invite = coordinator.invited("ward")
    with on_a_socket(other.handle) as url, pytest.raises(ConflictError, match="another key than the invite names"):
        enrol(home, url=url, invite=invite)
    assert other.requests == ["GET /v1/coordinator"]
    assert home.consortia() == {}


def test_invite_the_coordinator_does_not_know_is_refused_in_its_words(
    home: Home, coordinator: TamperedCoordinator
) -> None:
    unknown = f"commingle-invite.v1.{coordinator.key.fingerprint}.another-long-secret"
    with (
        on_a_socket(coordinator.handle) as url,
        pytest.raises(RemoteProblemError, match="did not issue that invite") as refused,
    ):
        enrol(home, url=url, invite=unknown)
    assert (refused.value.status, refused.value.problem) == (403, "invite")
    assert home.consortia() == {}


def test_second_coordinator_is_one_more_consortium_of_the_same_home(
    home: Home, coordinator: TamperedCoordinator, other: TamperedCoordinator
) -> None:
    with on_a_socket(coordinator.handle) as url:
        first = enrol(home, url=url, invite=coordinator.invited("ward"), consortium="trial")
    first.pin({"lab": "a" * 64})
    with on_a_socket(other.handle) as url:
        second = enrol(home, url=url, invite=other.invited("ward"))
    assert home.consortia() == {"trial": first, second.name: second}
    assert member_of(coordinator) is not None
    assert member_of(other) is not None
    assert (dict(first.pins()), dict(second.pins()), second.linkage_file.exists()) == ({"lab": "a" * 64}, {}, False)
    assert {one.folder.stat().st_mode & 0o077 for one in (first, second)} == {0}
    with pytest.raises(SettingsError, match=f"several consortia: {second.name}, trial"):
        home.consortium()


def test_coordinator_with_another_key_at_the_same_address_is_another_consortium(
    home: Home, coordinator: TamperedCoordinator, other: TamperedCoordinator
) -> None:
    answering_now = coordinator
    with on_a_socket(lambda request: answering_now.handle(request)) as url:  # noqa: PLW0108 - it changes below
        first = enrol(home, url=url, invite=coordinator.invited("ward"))
        answering_now = other
        second = enrol(home, url=url, invite=other.invited("ward"))
    assert home.consortia() == {second.name: second}  # nobody answers for the first any more
    assert first.name != second.name
    assert first.linkage_file.exists()


def test_name_that_another_consortium_has_is_refused(
    home: Home, coordinator: TamperedCoordinator, other: TamperedCoordinator
) -> None:
    with on_a_socket(coordinator.handle) as url:
        enrol(home, url=url, invite=coordinator.invited("ward"), consortium="trial")
    with on_a_socket(other.handle) as url:
        for name in ("trial", "../trial", ".new", "", "A b"):
            with pytest.raises((ConflictError, SettingsError)):
                enrol(home, url=url, invite=other.invited("ward"), consortium=name)
    assert list(home.consortia()) == ["trial"]


@pytest.mark.parametrize("url", ["", "nonsense", "::::", "ftp://host", "http://"])
def test_what_is_no_address_is_said_to_be_none(home: Home, url: str) -> None:
    with pytest.raises((NonsenseError, UnreachableError)):
        enrol(home, url=url, invite=INVITE)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"name": "x", "signing_key": "zz"}', b'{"name": "x"}', b"\xff"]
)
def test_answer_that_is_nonsense_is_said_to_be_nonsense(
    home: Home, coordinator: TamperedCoordinator, body: bytes
) -> None:
    coordinator.before = answering(200, body, part="coordinator")
    with on_a_socket(coordinator.handle) as url, pytest.raises(NonsenseError):
        enrol(home, url=url, invite=INVITE)


def test_nobody_there_is_unreachable(home: Home) -> None:
    with pytest.raises(UnreachableError):
        enrol(home, url="http://127.0.0.1:1", invite=INVITE)
