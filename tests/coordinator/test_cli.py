import json
import socket
import stat
import time
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from commingle.coordinator.home import CoordinatorHome, CoordinatorSettings
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.settings import load_settings
from tests.world.command import Command
from tests.world.transport import on_a_socket


def test_init_makes_private_settings_and_key(command: Command, tmp_path: Path) -> None:
    home = tmp_path / "hub"
    printed = command.json("init", "--home", home, "--name", "hub.example.org")
    assert printed["name"] == "hub.example.org"
    assert len(printed["fingerprint"]) == 64
    for file in (home / "settings.json", home / "keys" / "signing.key"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_init_again_is_refused_and_keeps_the_key(command: Command, tmp_path: Path) -> None:
    command.json("init", "--home", tmp_path)
    before = (tmp_path / "keys" / "signing.key").read_bytes()
    code, _, err = command("init", "--home", tmp_path)
    assert code == 1
    assert "holds a coordinator already" in err
    assert (tmp_path / "keys" / "signing.key").read_bytes() == before


def test_init_refuses_unusable_options(command: Command, tmp_path: Path) -> None:
    code, _, err = command("init", "--home", tmp_path, "--database-url", "mysql://user:hunter2@host/db")
    assert code == 1
    assert "postgresql://" in err
    assert "hunter2" not in err
    code, _, err = command("init", "--home", tmp_path, "--database-url", "postgresql://h/d", "--database-url-file", "f")
    assert code == 2
    code, _, err = command("init", "--home", tmp_path, "--name", "")
    assert code == 1
    assert "name:" in err
    assert list(tmp_path.iterdir()) == []


def test_database_url_is_a_secret_and_can_come_from_a_file(command: Command, tmp_path: Path) -> None:
    url = "postgresql://commingle:hunter2@host/db"
    command.json("init", "--home", tmp_path / "a", "--database-url", url)
    settings = load_settings(CoordinatorSettings, tmp_path / "a" / "settings.json")
    assert "hunter2" not in repr(settings)
    assert CoordinatorHome(tmp_path).database_url(settings) == url
    (tmp_path / "secret").write_text(url + "\n")
    command.json("init", "--home", tmp_path / "b", "--database-url-file", tmp_path / "secret")
    assert "hunter2" not in (tmp_path / "b" / "settings.json").read_text()
    assert (
        CoordinatorHome(tmp_path).database_url(load_settings(CoordinatorSettings, tmp_path / "b" / "settings.json"))
        == url
    )
    (tmp_path / "secret").unlink()
    with pytest.raises(SettingsError, match="cannot read"):
        CoordinatorHome(tmp_path).database_url(load_settings(CoordinatorSettings, tmp_path / "b" / "settings.json"))


def test_invite_names_the_coordinator_and_the_party(command: Command, tmp_path: Path) -> None:
    made = command.json("init", "--home", tmp_path)
    printed = command.json("invite", "--home", tmp_path, "--party", "clinic-a", "--expires-hours", 1)
    version, number, fingerprint, secret = printed["invite"].split(".")
    assert (version, number, fingerprint) == ("commingle-invite", "v1", made["fingerprint"])
    assert len(secret) == 43
    assert printed["party"] == "clinic-a"
    code, out, _ = command("invite", "--home", tmp_path, "--party", "clinic-a")
    assert code == 0
    assert out.startswith(f"commingle-invite.v1.{made['fingerprint']}.")
    assert max(len(line) for line in out.splitlines()) > 100  # never wrapped


def test_invite_refuses_names_no_document_could_hold(command: Command, tmp_path: Path) -> None:
    command.json("init", "--home", tmp_path)
    for name in ("", "Clinic A", "a" * 64, "-a"):
        code, _, err = command("invite", "--home", tmp_path, f"--party={name}")
        assert code == 2, name
        assert "--party" in err


@pytest.mark.parametrize("arguments", [["invite", "--party", "a"], ["releases"]])
def test_home_without_coordinator_is_one_clear_message(command: Command, tmp_path: Path, arguments: list[str]) -> None:
    code, _, err = command(*arguments, "--home", tmp_path)
    assert code == 1
    assert "cannot read" in err
    assert "init" in err
    assert "Traceback" not in err


def test_settings_with_unknown_keys_are_refused_by_name(command: Command, tmp_path: Path) -> None:
    command.json("init", "--home", tmp_path)
    (tmp_path / "settings.json").write_text('{"nmae": "x"}')
    code, _, err = command("invite", "--home", tmp_path, "--party", "a")
    assert code == 1
    assert "nmae" in err


def test_faulty_study_names_the_field(command: Command, tmp_path: Path) -> None:
    command.json("init", "--home", tmp_path)
    study = tmp_path / "study.json"
    study.write_text("{")
    code, out, err = command("propose", study, "--home", tmp_path)
    assert (code, out) == (1, "")
    assert "not valid JSON" in err
    study.write_text('{"study": "x", "epsilon": "one", "delta": 1e-5, "n": 10, "parties": []}')
    code, out, err = command("propose", study, "--home", tmp_path, "--json")
    assert code == 1
    assert "epsilon" in err
    assert json.loads(out)["error"]["remedy"]


def test_coordinator_that_does_not_answer_is_one_clear_message(command: Command, tmp_path: Path) -> None:
    command.json("init", "--home", tmp_path)
    code, _, err = command("releases", "--home", tmp_path, "--coordinator", "http://127.0.0.1:9")
    assert code == 1
    assert "no answer from http://127.0.0.1:9" in err


@pytest.mark.slow
def test_coordinator_that_takes_its_time_is_waited_for(command: Command, tmp_path: Path) -> None:
    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            time.sleep(6)  # httpx by itself gives up after five
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{"items":[],"next":null}')

    command.json("init", "--home", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=answer, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert command.json("releases", "--home", tmp_path, "--coordinator", url) == {"items": []}
        thread.join(20)


def test_every_command_shows_examples(command: Command) -> None:
    for name in ("init", "serve", "invite", "propose", "releases", "revoke"):
        code, out, _ = command(name, "--help")
        assert code == 0
        assert f"commingle coordinator {name}" in out


def test_tokens_are_made_listed_and_revoked(command: Command, tmp_path: Path) -> None:
    command.json("init", "--home", tmp_path)
    made = command.json("token", "create", "--home", tmp_path, "--name", "learner", "--scope", "read")
    assert made["token"].startswith("commingle-token.v1.")
    command.json("token", "create", "--home", tmp_path, "--name", "ops", "--scope", "operate", "--expires-days", 1)
    command.json("token", "revoke", "--home", tmp_path, "--name", "learner")
    listed = command.json("token", "list", "--home", tmp_path)["items"]
    assert [(t["name"], t["scope"], t["revoked"] is None) for t in listed] == [
        ("learner", "read", False),
        ("ops", "operate", True),
    ]
    assert made["token"] not in str(listed)
    code, out, _ = command("token", "list", "--home", tmp_path)
    assert (code, "learner" in out) == (0, True)
    code, _, err = command("token", "create", "--home", tmp_path, "--name", "x", "--scope", "everything")
    assert (code, "--scope" in err) == (2, True)


def test_revoking_an_unknown_member_is_one_clear_message(command: Command, tmp_path: Path) -> None:
    command.json("init", "--home", tmp_path)
    code, _, err = command("revoke", "--home", tmp_path, "--party", "nobody")
    assert code == 1
    assert "no such party" in err


def test_certificate_without_key_and_unusable_ones_are_refused(command: Command, tmp_path: Path) -> None:
    command.json("init", "--home", tmp_path)
    (tmp_path / "x.pem").write_text("no certificate")
    code, _, err = command("serve", "--home", tmp_path, "--tls-certificate", tmp_path / "x.pem")
    assert (code, "go together" in err) == (2, True)
    tls = ("--tls-certificate", tmp_path / "x.pem", "--tls-key", tmp_path / "x.pem")
    code, _, err = command("serve", "--home", tmp_path, *tls)
    assert (code, "cannot serve under" in err) == (1, True)
    code, _, err = command("releases", "--home", tmp_path, "--ca-file", tmp_path / "x.pem")
    assert (code, "cannot read certificates" in err) == (1, True)


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
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.json("init", "--home", tmp_path)
    listed = [_release(10), _release(11, reason="insurer: policy")]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/releases":
            return httpx.Response(200, json={"items": listed, "next": None})
        one = next(item for item in listed if request.url.path == f"/v1/releases/{item['id']}")
        return httpx.Response(200, json=one | {"spec": None, "approvals": {}, "blocks": {}, "rejections": {}})

    monkeypatch.setenv("COLUMNS", "80")
    with on_a_socket(answer) as url:
        at = ("--home", tmp_path, "--coordinator", url)
        code, out, _ = command("releases", *at)
        assert code == 0
        assert max(map(len, out.splitlines())) <= 80
        for whole in ("a" * 12, "b" * 12, "moments", "collecting", "rejected", "3 of 3", "1 of 3"):
            assert any(whole in line for line in out.splitlines())
        code, out, _ = command("releases", *at, "bbbb")
        assert code == 0
        for expected in ("b" * 64, "insurer: policy", "n = 48000, epsilon 1", "expires 2026-01-03 00:00 UTC"):
            assert expected in out
        assert [line.split("│")[1:4] for line in out.splitlines() if "insurer " in line] == [
            [" insurer ", " yes      ", " no          "]
        ]
        assert command.json("releases", *at, "bbbb")["reason"] == "insurer: policy"
        code, _, err = command("releases", *at, "c")
        assert (code, "0 releases have an id that begins with c" in err) == (2, True)
