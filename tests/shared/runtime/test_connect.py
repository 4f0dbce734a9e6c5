"""Plain http never leaves this machine unless somebody said that it may; redirects and proxies lead nobody astray."""

import json
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
from click.testing import CliRunner

from commingle.coordinator.cli import coordinator
from commingle.party_agent.cli import party
from commingle.services.client.release_cli import fit
from commingle.services.client.remote import ReleaseClient
from commingle.services.learner.cli import learner
from commingle.shared.runtime.errors import SettingsError, UnreachableError
from commingle.shared.runtime.remote import call, connect
from tests.e2e.networks import Authority

ELSEWHERE = (
    "http://hub.example",
    "http://coordinator:8000",
    "http://10.0.0.7:8000",
    "http://127.0.0.1@hub.example/",
    "http://localhost.example",
    "http://[2001:db8::1]:8000",
    "HTTP://hub.example",
    "http://0.0.0.0:8000",
)
HERE = ("http://127.0.0.1:8000", "http://127.8.9.10", "http://localhost:8000", "http://[::1]:8000")


@pytest.mark.parametrize("url", ELSEWHERE)
def test_plain_http_to_another_machine_is_refused_unless_it_is_allowed(url: str) -> None:
    with pytest.raises(SettingsError, match="plain http") as refused:
        connect(url)
    assert "--allow-http" in refused.value.remedy
    assert "consortia/NAME/coordinator.json" in refused.value.remedy
    with pytest.raises(SettingsError, match="plain http"):
        ReleaseClient(url)
    for allowed in (connect, ReleaseClient):
        allowed(url, allow_http=True).close()


@pytest.mark.parametrize("url", [*HERE, "https://hub.example", "https://10.0.0.7"])
def test_https_and_this_machine_need_no_leave(url: str) -> None:
    connect(url).close()


@pytest.mark.parametrize("url", ["", "hub.example", "ftp://hub.example", "https://", "https://[::1", "https://xn--"])
def test_text_that_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="is not an address"):
        ReleaseClient(url)


@pytest.fixture
def homes(tmp_path: Path) -> tuple[str, str]:
    run = CliRunner()
    made = str(tmp_path / "hub"), str(tmp_path / "clinic")
    assert run.invoke(coordinator, ["init", "--home", made[0]]).exit_code == 0
    assert run.invoke(party, ["init", "--home", made[1], "--name", "clinic"]).exit_code == 0
    study = {"study": "s", "epsilon": 1.0, "delta": 1e-5, "n": 100, "k": 10, "parties": []}
    (tmp_path / "study.json").write_text(
        json.dumps(study | {"parties": [{"name": "clinic", "dataset": "main", "attributes": []}]})
    )
    return made


def test_every_command_that_takes_an_address_refuses_plain_http_to_another_machine(
    homes: tuple[str, str], tmp_path: Path
) -> None:
    hub, clinic = homes
    url = "http://hub.invalid"
    invite = f"commingle-invite.v1.{'ab' * 32}.{'x' * 40}"
    commands = [
        (party, ["enrol", "--home", clinic, "--coordinator", url, "--invite", invite]),
        (coordinator, ["releases", "--home", hub, "--coordinator", url]),
        (coordinator, ["propose", str(tmp_path / "study.json"), "--home", hub, "--coordinator", url]),
        (learner, ["serve", "--coordinator", url, "--port", "0"]),
        (fit, [url, "--target", "x"]),
    ]
    for group, arguments in commands:
        refused = CliRunner().invoke(group, arguments)
        assert isinstance(refused.exception, SettingsError), (arguments, refused.output)
        assert "plain http" in str(refused.exception)
        for allowed in (["--allow-http"], []):
            env = {} if allowed else {"COMMINGLE_ALLOW_HTTP": "1"}
            if group is not learner:  # which would serve
                tried = CliRunner(env=env).invoke(group, [*arguments, *allowed])
                assert tried.exit_code != 0
                assert "plain http" not in f"{tried.output} {tried.exception}", arguments


@pytest.fixture
def other() -> Iterator[tuple[str, list[str]]]:
    """A server that would be glad of a request, and what it was sent."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(302 if self.path == "/redirecting" else 200)
            self.send_header("Location", "/redirected")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
def test_request_to_this_machine_passes_no_proxy_and_a_redirect_is_not_followed(
    other: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, seen = other
    monkeypatch.setenv("HTTP_PROXY", url)
    monkeypatch.setenv("http_proxy", url)
    with connect("http://127.0.0.1:1") as client, pytest.raises(httpx.ConnectError):
        client.get("/private")
    assert seen == []
    with connect(url) as client:
        assert client.get("/redirecting").status_code == 302
    assert seen == ["/redirecting"]


def test_certificate_that_is_not_trusted_is_said_to_be_that(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca", "a private authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue())
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.handle_request, daemon=True)
    thread.start()
    url = f"https://127.0.0.1:{server.server_port}"
    with connect(url) as client, pytest.raises(UnreachableError) as refused:
        call(client, "GET", "/")
    thread.join(20)
    server.server_close()
    assert str(refused.value).startswith(f"the certificate of {url} is not trusted (")
    assert "certificate" in str(refused.value).partition("(")[2]
    assert "--ca-file FILE" in refused.value.remedy
