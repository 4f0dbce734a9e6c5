"""Joining: an invite is checked before anything is sent, and a key is pinned only after its words were heard."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.home import Home, Membership, PartySettings
from commingle.party_agent.home.policy import Policy
from commingle.party_agent.operate.compose import calling
from commingle.party_agent.operate.membership import confirm, enrol, joined, make_home, roster, share_linkage_key
from commingle.shared.documents.dsse import SigningKey
from commingle.shared.documents.invitation import Invitation, words_of
from commingle.shared.errors import DocumentError, SignatureError
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.errors import NonsenseError, RemoteProblemError, SettingsError, UnreachableError
from commingle.shared.runtime.settings import system_clock
from commingle.shared.wire import PartyRecord
from tests.world.command import Command
from tests.world.coordinator import SetClock
from tests.world.tampering import TamperedCoordinator
from tests.world.transport import answering, on_a_socket

NAMES = ("lab", "ward")
Handler = Callable[[httpx.Request], httpx.Response]


class Party:
    """A party at its keyboard; `hears` is what is read to it, itself by default."""

    def __init__(self, folder: Path, coordinator: TamperedCoordinator, name: str, url: str) -> None:
        names = (name, *(other for other in NAMES if other != name))
        self.invitation = Invitation(coordinator.invited(name), names, url)
        self.home = Home(folder / name)
        make_home(self.home, PartySettings(name=name), self.invitation)
        self.seen: list[tuple[str, ...]] = []
        self.told: list[str] = []

    def enrol(self) -> Membership:
        return enrol(self.home, url=self.invitation.url, invite=self.invitation.invite)

    @contextmanager
    def calls(self) -> Iterator[tuple[Membership, CoordinatorClient]]:
        membership = joined(self.home, self.invitation.coordinator)
        assert membership is not None
        with calling(self.home, membership) as client:
            yield membership, client

    def hear(self, hears: str | None = None) -> bool:
        with self.calls() as (membership, client):
            keys, missing = roster(self.home, client, self.invitation)
            assert missing == ()

            def ask(words: tuple[str, ...], wrong: str) -> str:
                self.seen.append(words)
                self.told.append(wrong)
                return " ".join(words) if hears is None else hears

            return confirm(membership, keys, self.invitation.party, ask)

    def share(self) -> str | None:
        with self.calls() as (membership, client):
            return share_linkage_key(self.home, membership, client, self.invitation, clock=system_clock)


def test_members_that_hear_the_same_words_have_pins_and_one_linkage_key(
    tmp_path: Path, coordinator: TamperedCoordinator
) -> None:
    with on_a_socket(coordinator.handle) as url:
        lab, ward = (Party(tmp_path, coordinator, name, url) for name in NAMES)
        lab.enrol()
        with lab.calls() as (_, client):
            assert roster(lab.home, client, lab.invitation)[1] == ("ward",)
        ward.enrol()
        assert (lab.hear(), ward.hear()) == (True, True)
        assert lab.seen == ward.seen
        assert ward.share() is None
        assert lab.share() == ward.share() != None  # noqa: E711 - one chain of comparisons
        assert (lab.hear(), ward.hear()) == (False, False)  # repeated, nobody is asked again
    key = {party.invitation.party: party.home.identity().signing_key.fingerprint for party in (lab, ward)}
    assert dict(lab.home.consortium().pins()) == {"ward": key["ward"]}
    assert dict(ward.home.consortium().pins()) == {"lab": key["lab"]}
    assert lab.home.consortium().linkage_key() == ward.home.consortium().linkage_key()


def test_coordinator_that_shows_a_member_another_key_is_heard_and_nothing_is_pinned(
    tmp_path: Path, coordinator: TamperedCoordinator
) -> None:
    lied_to: set[str] = set()

    def handle(request: httpx.Request) -> httpx.Response:
        answer = coordinator.handle(request)
        if request.url.path != "/v1/parties" or not lied_to:
            return answer
        page = answer.json()
        for record in page["items"]:
            if record["name"] in lied_to:
                record["signing_key"] = SigningKey(b"\xee" * 32).verifying_key.raw.hex()
        return httpx.Response(200, content=json.dumps(page))

    with on_a_socket(handle) as url:
        lab, ward = (Party(tmp_path, coordinator, name, url) for name in NAMES)
        lab.enrol(), ward.enrol()
        lab.hear()
        lied_to.add("lab")
        with pytest.raises(ConflictError, match="no keys were pinned"):
            ward.hear(" ".join(lab.seen[0]))
        assert len(ward.seen) == 3
        assert ward.seen[0] != lab.seen[0]
        assert dict(ward.home.consortium().pins()) == {}
        lied_to.add("ward")
        with pytest.raises(SignatureError, match="another key for ward than this home has"):
            ward.hear()


def test_pin_that_is_there_is_not_replaced_by_words(tmp_path: Path, coordinator: TamperedCoordinator) -> None:
    with on_a_socket(coordinator.handle) as url:
        lab, ward = (Party(tmp_path, coordinator, name, url) for name in NAMES)
        lab.enrol(), ward.enrol()
        lab.home.consortium().pin({"ward": "a" * 64})
        with pytest.raises(ConflictError, match="pinned already"):
            lab.hear()
    assert dict(lab.home.consortium().pins()) == {"ward": "a" * 64}


def test_home_of_another_party_is_refused_and_its_own_is_kept(tmp_path: Path, coordinator: TamperedCoordinator) -> None:
    ward = Party(tmp_path, coordinator, "ward", "http://127.0.0.1:1")
    key = ward.home.identity().signing_key.fingerprint
    make_home(ward.home, PartySettings(name="ward", epsilon_cap=99), ward.invitation)
    assert (ward.home.identity().signing_key.fingerprint, ward.home.settings().epsilon_cap) == (key, 10.0)
    other = Invitation(ward.invitation.invite, NAMES, ward.invitation.url)
    with pytest.raises(SettingsError, match="home of ward"):
        make_home(ward.home, PartySettings(name="lab"), other)


def test_words_say_the_coordinator_too(tmp_path: Path, coordinator: TamperedCoordinator) -> None:
    with on_a_socket(coordinator.handle) as url:
        lab, ward = (Party(tmp_path, coordinator, name, url) for name in NAMES)
        lab.enrol(), ward.enrol()
        lab.hear()
    keys = {party.invitation.party: party.home.identity().signing_key.fingerprint for party in (lab, ward)}
    assert lab.seen == [words_of(coordinator.key.fingerprint, keys)]


def test_invitation_is_given_as_a_line_or_as_a_file(
    tmp_path: Path, coordinator: TamperedCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    party = Command(capsys, "party")
    with on_a_socket(coordinator.handle) as url:
        line = str(Invitation(coordinator.invited("ward"), ("ward", "lab"), url))
        file = tmp_path / "invitation"
        file.write_text(line + "\n")
        for given in (str(file), line):  # the second time all that is done is skipped
            code, _, err = party("join", given, "--home", tmp_path / "ward", "--wait-minutes", "0")
            assert (code, "lab did not join in time" in err, "ward is enrolled" in err) == (1, True, True)
            assert "No table is registered yet" in err
            assert f"commingle party datasets add main --home {tmp_path / 'ward'} --source" in " ".join(err.split())
    assert party("join", tmp_path / "nothing", "--home", tmp_path / "ward")[0] == 2
    assert party("join", "no+invitation", "--home", tmp_path / "ward")[0] == 1
    assert party("join", line, "--home", tmp_path / "ward", "--source", "x.csv")[0] == 2
    assert "an invite of `commingle coordinator invite` is for" in party.refused(
        "join", line.partition("+")[0], "--home", tmp_path / "ward"
    )


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


def member_of(coordinator: TamperedCoordinator, name: str = "ward") -> PartyRecord | None:
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
