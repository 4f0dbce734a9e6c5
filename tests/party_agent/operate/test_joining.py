"""Joining a new consortium: a key is pinned only after its words were heard from somebody else."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.consortium import Membership
from commingle.party_agent.home.home import Home, PartySettings
from commingle.party_agent.operate.compose import calling
from commingle.party_agent.operate.membership import confirm, enrol, joined, make_home, roster, share_linkage_key
from commingle.party_agent.wire.coordinator_client import CoordinatorClient
from commingle.shared.documents.errors import SignatureError
from commingle.shared.documents.invitation import Invitation, words_of
from commingle.shared.documents.keys import SigningKey
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.settings import system_clock
from tests.world.command import Command
from tests.world.tampering import TamperedCoordinator
from tests.world.transport import on_a_socket

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
    assert party("join", tmp_path / "nothing", "--home", tmp_path / "ward")[0] == 2
    assert party("join", "no+invitation", "--home", tmp_path / "ward")[0] == 1
    assert party("join", line, "--home", tmp_path / "ward", "--source", "x.csv")[0] == 2
