"""`commingle coordinator new-consortium`: a coordinator, and for each member a line that only it can join with."""

from pathlib import Path

import pytest

from commingle.coordinator.home import CoordinatorHome, CoordinatorSettings, open_coordinator
from commingle.shared.documents.invitation import Invitation
from commingle.shared.documents.model import text_digest
from commingle.shared.runtime.settings import load_settings
from tests.world.command import Command

NAMES = ("ward", "laboratory", "registration")


def test_every_member_has_an_invitation_of_its_own_that_names_all(tmp_path: Path, command: Command) -> None:
    said = command.json("new-consortium", "--home", tmp_path / "hub", "--url", "https://hub.example", *NAMES)
    lines = {name: Invitation.parse(line) for name, line in said["invitations"].items()}
    assert {name: line.party for name, line in lines.items()} == dict(zip(NAMES, NAMES, strict=True))
    assert {frozenset(line.members) for line in lines.values()} == {frozenset(NAMES)}
    assert {(line.coordinator, line.url) for line in lines.values()} == {(said["fingerprint"], "https://hub.example")}
    with open_coordinator(tmp_path / "hub") as hub, hub.store.read() as tx:
        for name, line in lines.items():
            invite = tx.members.invite(text_digest(line.invite))
            assert invite is not None
            assert invite.party == name


@pytest.mark.parametrize(
    ("url", "port"),
    [("http://127.0.0.1:8123", 8123), ("https://hub.example", None), ("https://hub.example:8443", 8443)],
)
def test_port_of_the_address_is_the_one_served_and_proposed_to(
    tmp_path: Path, command: Command, url: str, port: int | None
) -> None:
    command.json("new-consortium", "--home", tmp_path / "hub", "--url", url, *NAMES)
    serve = load_settings(CoordinatorSettings, CoordinatorHome(tmp_path / "hub").settings).serve
    assert serve == ({} if port is None else {"port": port})
    err = command("releases", "--home", tmp_path / "hub")[2]
    assert f"no answer from http://127.0.0.1:{port or 8000}" in err


def test_what_is_printed_for_a_member_is_the_command_it_runs(tmp_path: Path, command: Command) -> None:
    code, out, _ = command("new-consortium", "--home", tmp_path / "hub", "--url", "https://hub.example", *NAMES)
    commands = [line.split() for line in out.splitlines() if line.startswith("commingle party join ")]
    assert code == 0
    assert [Invitation.parse(words[-1]).party for words in commands] == list(NAMES)


def test_names_that_cannot_be_members_and_a_home_that_is_taken_are_refused(tmp_path: Path, command: Command) -> None:
    start = ("new-consortium", "--home", tmp_path / "hub", "--url")
    for url, names in (
        ("https://hub.example", ("ward",)),
        ("https://hub.example", ("ward", "ward")),
        ("https://hub.example", ("ward", "Lab")),
    ):
        assert command(*start, url, *names)[0] == 2
        assert not (tmp_path / "hub").exists()
    code, _, err = command(*start, "hub.example", "ward", "lab")
    assert (code, "address" in err) == (1, True)
    assert not (tmp_path / "hub").exists()
    assert command(*start, "https://hub.example", "ward", "lab")[0] == 0
    code, _, err = command(*start, "https://hub.example", "ward", "lab")
    assert (code, "holds a coordinator already" in err) == (1, True)
