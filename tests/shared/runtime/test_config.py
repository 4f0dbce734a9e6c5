"""Settings of services: what counts before what, what is refused, what is shown, and that the page has all of them."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest

from commingle.__main__ import commingle
from commingle.party_agent.home.home import Home, PartySettings
from commingle.party_agent.home.policy import Policy
from commingle.shared.runtime.settings import ServeCommand, gather
from tests.world.command import run_command

PAGE = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
URL = "postgresql://commingle:hunter2@host/db"


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A coordinator's home, as far as settings go."""
    said = {"name": "hub", "retention_days": 7, "serve": {"port": 8001, "host": "0.0.0.0", "tls_key": "k"}}  # noqa: S104 - not served
    (tmp_path / "settings.json").write_text(json.dumps(said))
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, tuple[Any, str]]:
    code, out, err = run_command(capsys, "config", "show", *arguments, "--json")
    assert code == 0, err
    return {row["name"]: (row["value"], row["source"]) for row in json.loads(out)["items"]}


def test_command_line_counts_before_environment_and_that_before_file_and_that_before_default(
    hub: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("PORT", "8002"),
        ("HOST", "127.0.0.2"),
        ("RETENTION_DAYS", "9"),
        ("TRUSTED_PROXIES", "10.0.0.2 fd00::/8"),
    ):
        monkeypatch.setenv(f"COMMINGLE_COORDINATOR_{name}", value)
    found = shown(capsys, "coordinator", "--home", hub, "--port", 8003)
    file = str(hub / "settings.json")
    assert found["port"] == (8003, "command line")
    assert found["host"] == ("127.0.0.2", "COMMINGLE_COORDINATOR_HOST")
    assert found["trusted_proxies"] == (["10.0.0.2", "fd00::/8"], "COMMINGLE_COORDINATOR_TRUSTED_PROXIES")
    assert found["tls_key"] == ("k", file)
    assert found["retention_days"] == (9.0, "COMMINGLE_COORDINATOR_RETENTION_DAYS")
    assert found["name"] == ("hub", file)
    assert found["most_proposals"] == (50, "default")


@pytest.mark.parametrize("proxy", ["proxy.example", "*", "10.0.0.2:443", "10.0.0.2/24", "10.0.0.2,10.0.0.3", ""])
def test_trusted_proxy_that_is_no_address_is_refused_at_start(
    hub: Path, capsys: pytest.CaptureFixture[str], proxy: str
) -> None:
    code, _, err = run_command(capsys, "config", "show", "coordinator", "--home", hub, "--trusted-proxy", proxy)
    assert code != 0
    assert "is to be an address or a network, such as 10.0.0.2" in " ".join(err.split())
    assert "'--trusted-proxy'" in err


def test_collector_without_scheme_is_refused_at_start_and_not_at_its_first_span(
    hub: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMINGLE_COORDINATOR_TRACES_TO", "collector:4318")
    code, _, err = run_command(capsys, "config", "show", "coordinator", "--home", hub)
    assert code != 0
    assert "begin with http:// or https://" in err
    assert "'--traces-to'" in err


def test_secret_may_be_named_by_its_file_and_is_never_shown(
    hub: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (hub / "url").write_text("\N{BYTE ORDER MARK}" + URL + "\n")
    monkeypatch.setenv("COMMINGLE_COORDINATOR_DATABASE_URL_FILE", str(hub / "url"))
    value, source = shown(capsys, "coordinator", "--home", hub)["database_url"]
    assert source == f"{hub / 'url'}, named by COMMINGLE_COORDINATOR_DATABASE_URL_FILE"
    _, text, _ = run_command(capsys, "config", "show", "coordinator", "--home", hub)
    assert "hunter2" not in str(value) + text
    (hub / "settings.json").write_text(json.dumps({"database_url": "sqlite://"}))  # the environment's counts
    assert shown(capsys, "coordinator", "--home", hub)["database_url"][1] == source


@pytest.mark.parametrize(
    "case",
    [
        ("{}", {"RETENTION_DAYS": "0"}, "COMMINGLE_COORDINATOR_RETENTION_DAYS: retention_days"),
        ('{"retention_days": 0}', {}, "settings.json: retention_days"),
        ('{"nmae": "x"}', {}, "settings.json: nmae"),
        ('{"version": 2, "nmae": "x"}', {}, "settings.json is of format 2, and this version reads format 1"),
        ('{"serve": {"prot": 1}}', {}, "settings.json: serve has no 'prot'"),
        ('{"serve": {"port": 99999}}', {}, "--port"),
        ("{}", {"PORT": "tcp://10.0.0.1:80"}, "--port"),
        ("[]", {}, "settings.json"),
        ("[" * 100_000, {}, "settings.json: Invalid JSON"),
        ('{"name": "a", "name": "b"}', {}, "settings.json: an object gives one name twice"),
        ("{}", {"DATABASE_URL_FILE": "/no/file"}, "cannot read /no/file"),
        ("{}", {"DATABASE_URL_FILE": "/no/file", "DATABASE_URL": URL}, "exclude each other"),
    ],
)
def test_wrong_setting_is_refused_by_where_it_was_said(
    hub: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[str, dict[str, str], str],
) -> None:
    file, environment, said = case
    (hub / "settings.json").write_text(file)
    for name, value in environment.items():
        monkeypatch.setenv(f"COMMINGLE_COORDINATOR_{name}", value)
    for command in (("config", "show", "coordinator"), ("coordinator", "serve")):
        code, _, err = run_command(capsys, *command, "--home", hub)
        assert code in {1, 2}
        assert said in err
        assert "hunter2" not in err


def test_learner_is_told_everything_by_a_file_that_the_environment_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "learner.json"
    file.write_text(json.dumps({"serve": {"coordinator": "https://hub", "members": [f"ward={'ab' * 32}"]}}))
    monkeypatch.setenv("COMMINGLE_LEARNER_SETTINGS", str(file))
    found = shown(capsys, "learner")
    assert found["coordinator"] == ("https://hub", str(file))
    assert found["members"] == ({"ward": "ab" * 32}, str(file))


def test_new_key_leaves_what_the_environment_says_out_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "ward")
    home.create(PartySettings(name="ward", epsilon_cap=2), policy=Policy(), linkage_key=None)
    monkeypatch.setenv("COMMINGLE_PARTY_EPSILON_CAP", "5")
    monkeypatch.setenv("COMMINGLE_PARTY_PUSHING", '{"token_bytes": 7}')
    assert (home.settings().epsilon_cap, home.settings().pushing.token_bytes) == (5, 7)
    home.prepare_next_key()
    home.adopt_next_key()
    kept, _ = gather(PartySettings, home.root / "settings.json", {})
    assert (kept.epsilon_cap, len(kept.former_keys)) == (2, 1)


@pytest.mark.parametrize("role", ["coordinator", "party", "learner"])
def test_page_has_every_setting_of_each_service(role: str) -> None:
    context = click.Context(commingle)
    group = commingle.get_command(context, role)
    assert isinstance(group, click.Group)
    serve = group.get_command(context, "serve")
    assert isinstance(serve, ServeCommand)
    named = set(re.findall(r"`(\w+)`", PAGE.partition(f"\n## {role.title()}\n")[2].partition("\n## ")[0]))
    assert serve.names() - {"allow_http", "threads"} <= named
    assert {"allow_http", "threads"} <= set(re.findall(r"`(\w+)`", PAGE.partition("\n## Everywhere\n")[2]))
