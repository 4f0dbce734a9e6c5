"""The operator's commands on a coordinator's home."""

import json
import socket
import stat
import time
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from commingle.coordinator.home import CoordinatorHome, CoordinatorSettings, open_coordinator
from commingle.party_agent.cli.join import join
from commingle.party_agent.home.home import Home, PartySettings
from commingle.party_agent.home.policy import Policy
from commingle.services.testing.nodes import self_signed
from commingle.shared.documents.invitation import Invitation
from commingle.shared.documents.model import text_digest
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.settings import load_settings
from tests.world.command import Command
from tests.world.transport import on_a_socket


def test_init_makes_private_settings_and_key_and_keeps_them(command: Command, tmp_path: Path) -> None:
    home = tmp_path / "hub"
    printed = command.json("init", "--home", home, "--name", "hub.example.org")
    assert printed["name"] == "hub.example.org"
    assert len(printed["fingerprint"]) == 64
    settings, key = home / "settings.json", home / "keys" / "signing.key"
    assert [stat.S_IMODE(file.stat().st_mode) for file in (settings, key)] == [0o600] * 2
    before = key.read_bytes()
    assert "holds a coordinator already" in command.refused("init", "--home", home)
    assert key.read_bytes() == before


def test_init_refuses_unusable_options(command: Command, tmp_path: Path) -> None:
    code, _, err = command("init", "--home", tmp_path, "--database-url", "mysql://user:hunter2@host/db")
    assert (code, "postgresql://" in err, "hunter2" in err) == (1, True, False)
    assert "exclude each other" in command.refused(
        "init", "--home", tmp_path, "--database-url", "postgresql://h/d", "--database-url-file", "f", code=2
    )
    assert "name:" in command.refused("init", "--home", tmp_path, "--name", "")
    assert list(tmp_path.iterdir()) == []


def url_in(home: Path) -> str:
    return CoordinatorHome(home).database_url(load_settings(CoordinatorSettings, home / "settings.json"))


def test_database_url_is_a_secret_and_can_come_from_a_file(command: Command, tmp_path: Path) -> None:
    url = "postgresql://commingle:hunter2@host/db"
    command.json("init", "--home", tmp_path / "a", "--database-url", url)
    settings = load_settings(CoordinatorSettings, tmp_path / "a" / "settings.json")
    assert "hunter2" not in repr(settings)
    assert url_in(tmp_path / "a") == url
    (tmp_path / "secret").write_text(url + "\n")
    command.json("init", "--home", tmp_path / "b", "--database-url-file", tmp_path / "secret")
    assert "hunter2" not in (tmp_path / "b" / "settings.json").read_text()
    assert url_in(tmp_path / "b") == url
    (tmp_path / "secret").unlink()
    with pytest.raises(SettingsError, match="cannot read"):
        url_in(tmp_path / "b")


def test_invite_names_the_coordinator_and_the_party(command: Command, tmp_path: Path) -> None:
    made = command.json("init", "--home", tmp_path)
    printed = command.json("invite", "--home", tmp_path, "--party", "clinic-a", "--expires-hours", 1)
    version, number, fingerprint, secret = printed["invite"].split(".")
    assert (version, number, fingerprint) == ("commingle-invite", "v1", made["fingerprint"])
    assert len(secret) == 43
    assert printed["party"] == "clinic-a"
    code, out, err = command("invite", "--home", tmp_path, "--party", "clinic-a")
    assert (code, out.startswith(f"commingle-invite.v1.{made['fingerprint']}.")) == (0, True)
    assert len(out.splitlines()) == 1  # never wrapped, and all of what a file of it is to hold
    assert "for clinic-a, until 2" in err


def test_invite_refuses_names_no_document_could_hold(command: Command, home: Path) -> None:
    for name in ("", "Clinic A", "a" * 64, "-a"):
        code, _, err = command("invite", "--home", home, f"--party={name}")
        assert (code, "--party" in err) == (2, True), name


@pytest.mark.parametrize("arguments", [["invite", "--party", "a"], ["releases"]])
def test_home_without_coordinator_is_one_clear_message(command: Command, tmp_path: Path, arguments: list[str]) -> None:
    code, _, err = command(*arguments, "--home", tmp_path)
    assert (code, "Traceback" in err) == (1, False)
    assert "cannot read" in err
    assert "init" in err


def test_settings_with_unknown_keys_are_refused_by_name(command: Command, home: Path) -> None:
    (home / "settings.json").write_text('{"nmae": "x"}')
    assert "nmae" in command.refused("invite", "--home", home, "--party", "a")


def test_faulty_study_names_the_field(command: Command, home: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.json"
    study.write_text("{")
    code, out, err = command("propose", study, "--home", home)
    assert (code, out, "not valid JSON" in err) == (1, "", True)
    study.write_text('{"study": "x", "epsilon": "one", "delta": 1e-5, "n": 10, "parties": []}')
    code, out, err = command("propose", study, "--home", home, "--json")
    assert (code, "epsilon" in err) == (1, True)
    assert json.loads(out)["error"]["remedy"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["releases", "--coordinator", "http://127.0.0.1:9"], "no answer from http://127.0.0.1:9"),
        (["revoke", "--party", "nobody"], "no such member"),
    ],
)
def test_coordinator_that_does_not_answer_and_unknown_member_are_one_clear_message(
    command: Command, home: Path, arguments: list[str], said: str
) -> None:
    assert said in command.refused(*arguments, "--home", home)


@pytest.mark.slow
def test_coordinator_that_takes_its_time_is_waited_for(command: Command, home: Path) -> None:
    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            time.sleep(6)  # httpx by itself gives up after five
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{"items":[],"next":null}')

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=answer, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert command.json("releases", "--home", home, "--coordinator", url) == {"items": []}
        thread.join(20)


def test_tokens_are_made_listed_and_revoked(command: Command, home: Path) -> None:
    made = command.json("token", "create", "--home", home, "--name", "learner", "--scope", "read")
    assert made["token"].startswith("commingle-token.v1.")
    command.json("token", "create", "--home", home, "--name", "ops", "--scope", "operate", "--expires-days", 1)
    command.json("token", "revoke", "--home", home, "--name", "learner")
    listed = command.json("token", "list", "--home", home)["items"]
    assert [(t["name"], t["scope"], t["revoked"] is None) for t in listed] == [
        ("learner", "read", False),
        ("ops", "operate", True),
    ]
    assert made["token"] not in str(listed)
    assert "learner" in command.out("token", "list", "--home", home)
    assert "--scope" in command.refused(
        "token", "create", "--home", home, "--name", "x", "--scope", "everything", code=2
    )


def test_certificate_without_key_and_unusable_ones_are_refused(command: Command, home: Path, tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("no certificate")
    assert "go together" in command.refused("serve", "--home", home, "--tls-certificate", tmp_path / "x.pem", code=2)
    tls = ("--tls-certificate", tmp_path / "x.pem", "--tls-key", tmp_path / "x.pem")
    assert "cannot serve under" in command.refused("serve", "--home", home, *tls)
    (tmp_path / "other").mkdir()
    own, other = self_signed(tmp_path), self_signed(tmp_path / "other")
    tls = ("--tls-certificate", own.certificate, "--tls-key", other.key)
    assert "(this key belongs to another certificate)" in command.refused("serve", "--home", home, *tls)
    assert "cannot read certificates" in command.refused("releases", "--home", home, "--ca-file", tmp_path / "x.pem")


def _release(number: int, *, reason: str | None = None) -> dict[str, Any]:
    """A release as the coordinator lists it, with a long title."""
    return {
        "id": f"{number:x}" * 64,
        "study": "Length of stay by age, glucose and everything else that is known " * 3,
        "mechanism": "moments",
        "state": "rejected" if reason else "collecting",
        "reason": reason,
        "created": "2026-01-02T00:00:00Z",
        "expires": "2026-01-03T00:00:00Z",
        "n": 48_000,
        "epsilon": 1.0,
        "delta": 1e-5,
        "parties": [
            {"name": name, "approved": True, "uploaded": name == "clinic"} for name in ("clinic", "insurer", "lab")
        ],
    }


def test_releases_fit_into_a_terminal_and_one_is_shown_alone(
    command: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [_release(10), _release(11, reason="insurer: policy")]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/releases":
            return httpx.Response(200, json={"items": listed, "next": None})
        one = next(item for item in listed if request.url.path == f"/v1/releases/{item['id']}")
        return httpx.Response(200, json=one | {"spec": None, "approvals": {}, "blocks": {}, "rejections": {}})

    monkeypatch.setenv("COLUMNS", "80")
    with on_a_socket(answer) as url:
        at = ("--home", home, "--coordinator", url)
        out = command.out("releases", *at)
        assert max(map(len, out.splitlines())) <= 80
        for whole in ("a" * 12, "b" * 12, "moments", "collecting", "rejected", "3 of 3", "1 of 3", "2026-01-"):
            assert any(whole in line for line in out.splitlines())
        out = command.out("releases", *at, "bbbb")
        for expected in ("b" * 64, "insurer: policy", "n = 48000, epsilon 1", "expires 2026-01-03 00:00 UTC"):
            assert expected in out
        assert [line.split("│")[1:4] for line in out.splitlines() if "insurer " in line] == [
            [" insurer ", " yes      ", " no          "]
        ]
        assert command.json("releases", *at, "bbbb")["reason"] == "insurer: policy"
        assert "no release has an id that begins with c" in command.refused("releases", *at, "c", code=2)


def test_newest_hundred_releases_are_listed_and_all_where_that_is_asked_for(command: Command, home: Path) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(
            200, json={"items": [_release(10)] * 150, "next": str(len(asked)) if len(asked) < 3 else None}
        )

    with on_a_socket(answer) as url:
        at, counts = ("--home", home, "--coordinator", url), list[tuple[int, int, bool]]()
        for options in ((), ("--all",), ("--json",)):
            asked.clear()
            _, out, _ = command("releases", *at, *options)
            shown = len(json.loads(out)["items"]) if options == ("--json",) else out.count("3 of 3")
            counts.append((len(asked), shown, "--all lists older ones" in out))
    assert counts == [(1, 100, True), (3, 450, False), (3, 450, False)]


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
    assert (code, [Invitation.parse(words[-1]).party for words in commands]) == (0, list(NAMES))
    given = [{word for word in words if word.startswith("--")} for words in commands]
    assert given == [{"--home", "--source", "--subject-id", "--schema", "--serve"}] * len(NAMES)
    assert {option for each in join.params for option in each.opts} >= given[0]
    assert "holds a coordinator already" in command.refused(
        "new-consortium", "--home", tmp_path / "hub", "--url", "https://hub.example", "ward", "lab"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("https://hub.example", "ward"), 2, "name two members"),
        (("https://hub.example", "ward", "ward"), 2, "each once"),
        (("https://hub.example", "ward", "Lab"), 2, "beginning with a letter or digit"),
        (("hub.example", "ward", "lab"), 1, "address"),
    ],
)
def test_names_that_cannot_be_members_and_no_address_are_refused_and_nothing_is_made(
    tmp_path: Path, command: Command, arguments: tuple[str, ...], code: int, said: str
) -> None:
    refused = command("new-consortium", "--home", tmp_path / "hub", "--url", *arguments)
    assert (refused[0], said in " ".join(refused[2].split())) == (code, True)
    assert not (tmp_path / "hub").exists()


def test_home_of_a_member_is_not_corrected_but_another_is_given(tmp_path: Path, command: Command) -> None:
    home = Home(tmp_path / "ward")
    home.create(PartySettings(name="ward"), policy=Policy(), linkage_key=None)
    code, _, err = command("releases", "--home", home.root)
    assert (code, "It looks like the home of another service: if so, give the right --home." in err) == (1, True)
