"""What a proxy, another user of the machine, or a system with a token tried at an agent's local API."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from commingle.__main__ import main
from commingle.party_agent.compose import ask
from commingle.party_agent.errors import AgentRunningError, PeerError
from commingle.party_agent.home import Home
from commingle.party_agent.tokens import create_token
from commingle.shared.runtime.settings import system_clock
from commingle.shared.runtime.tls import trust
from tests.e2e.networks import Authority
from tests.world.consortium import BY_HAND, Consortium, consortium_of
from tests.world.local_api import operator_app, operator_client, recording, serving_at

NOBODY = 65534
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
GREETING = b"GET /v1/ledger HTTP/1.1\r\nHost: agent\r\n\r\n"
as_root = pytest.mark.skipif(
    os.geteuid() != 0,
    reason="only root can become another user; pretended ones: tests/party_agent/test_local_socket.py",
)


@pytest.fixture
def consortium(tmp_path: Path) -> Consortium:
    return consortium_of(tmp_path, "clinic", "insurer", policy=BY_HAND)


@pytest.fixture
def home(consortium: Consortium) -> Home:
    return consortium.homes["clinic"]


@pytest.fixture
def open_house() -> Iterator[Consortium]:
    """Everybody may write to the home, as to none that an agent makes: nothing but credentials keeps others out."""
    with tempfile.TemporaryDirectory() as folder:
        consortium = consortium_of(Path(folder), "clinic", policy=BY_HAND)
        for path in (Path(folder), consortium.homes["clinic"].root):
            path.chmod(0o777)
        yield consortium


Ready = Callable[[], object]


@contextmanager
def another_user(work: Callable[[Ready], bytes]) -> Iterator[Callable[[], bytes]]:
    """Another user's process that has come to where it says that it is ready. Gives what its work returns."""
    ours, its = socket.socketpair()
    process = os.fork()
    if process == 0:
        with suppress(BaseException):
            os.setgroups([])
            os.setuid(NOBODY)
            its.sendall(work(lambda: its.sendall(b"!")))
        os._exit(0)
    its.close()
    with ours:
        ours.settimeout(60)
        assert ours.recv(1) == b"!"
        yield lambda: b"".join(iter(lambda: ours.recv(1 << 16), b""))
    os.waitpid(process, 0)


def test_no_proxy_sees_anything_of_a_command(
    consortium: Consortium, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = socket.create_server(("127.0.0.1", 0))
    for name in PROXIES:
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
    with recording(proxy) as seen, consortium.agent("clinic") as agent, serving_at(home.socket, operator_app(agent)):
        assert ask(home, "GET", "/v1/status")["name"] == "clinic"
        assert ask(home, "GET", "/v1/proposals") == {"items": []}
    assert seen == []


def test_process_on_the_port_of_a_killed_agent_is_sent_nothing(consortium: Consortium, home: Home) -> None:
    heir = socket.create_server(("127.0.0.1", 0))
    (home.root / "running.json").write_text(json.dumps({"url": f"http://127.0.0.1:{heir.getsockname()[1]}"}))
    (home.root / "token").write_text("a token of the time when there was one")
    with recording(heir) as seen, consortium.agent("clinic"), pytest.raises(AgentRunningError):
        ask(home, "GET", "/v1/proposals")
    assert seen == []


@as_root
@pytest.mark.slow
def test_other_users_process_in_the_place_of_a_killed_agent_is_sent_nothing(open_house: Consortium) -> None:
    home = open_house.homes["clinic"]

    def impersonate(ready: Ready) -> bytes:
        home.socket.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(home.socket))
            home.socket.chmod(0o777)
            listener.listen()
            ready()
            connection, _ = listener.accept()
            return connection.recv(1 << 16) + b"end"

    with open_house.agent("clinic"), another_user(impersonate) as sent:
        with pytest.raises(PeerError, match=f"a process of user {NOBODY} listens"):
            ask(home, "GET", "/v1/proposals")
        assert sent() == b"end"


@as_root
@pytest.mark.slow
def test_other_user_who_reaches_the_socket_is_answered_nothing(open_house: Consortium) -> None:
    home = open_house.homes["clinic"]

    def intrude(ready: Ready) -> bytes:
        ready()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(home.socket))
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(GREETING)
                return connection.recv(1 << 16) + b"end"
        return b"end"

    with open_house.agent("clinic") as agent, serving_at(home.socket, operator_app(agent)):
        home.socket.chmod(0o777)
        with another_user(intrude) as received:
            assert received() == b"end"
        assert ask(home, "GET", "/v1/ledger")["charges"] == []  # and its own user is served as before


def test_token_does_not_travel_without_tls(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["party", "serve", "--home", str(home.root), "--host", "0.0.0.0", "--port", "0"])  # noqa: S104 - is refused
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (1, "")
    assert "by TLS only" in said.err
    assert "openssl req -x509" in said.err


@contextmanager
def serving(home: Home, *options: object) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    """`party serve`, and what it says when it listens."""
    command = [sys.executable, "-m", "commingle", "party", "serve", "--home", home.root, *options]
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


@pytest.mark.slow
def test_network_is_served_by_tls_to_tokens_only_beside_the_socket(home: Home, tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca", "the clinic's authority")
    certificate, key = authority.issue()
    token = create_token(home, name="own", scopes=frozenset({"read"}), lifetime=None, now=system_clock())
    headers = {"Authorization": f"Bearer {token}"}
    options = ("--port", 0, "--tls-certificate", certificate, "--tls-key", key)
    with serving(home, *options) as (process, said):
        assert said == {"event": "listening", "socket": str(home.socket), "url": said["url"]}
        with httpx.Client(base_url=said["url"], verify=trust(authority.file), timeout=60) as remote:
            assert remote.get("/v1/ledger").status_code == 401
            assert remote.get("/v1/ledger", headers=headers).status_code == 200
            assert remote.post("/v1/datasets", headers=headers, content=b"{}").status_code == 403
        with pytest.raises(httpx.TransportError):
            httpx.get(said["url"].replace("https", "http") + "/v1/ledger", headers=headers, timeout=60)
        with operator_client(home) as operator:
            assert operator.get("/v1/ledger").status_code == 200
            assert operator.post("/v1/datasets", content=b"{}").status_code == 422
            assert operator.post("/v1/datasets", content=b"{}", headers=headers).status_code == 403
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not home.socket.exists()


@pytest.mark.slow
def test_agent_that_was_killed_starts_again_over_its_old_socket_and_without_the_network(home: Home) -> None:
    with serving(home) as (process, _):
        process.kill()
        process.wait(60)
        assert home.socket.exists()
    with serving(home) as (process, said):
        assert said == {"event": "listening", "socket": str(home.socket)}
        assert ask(home, "GET", "/v1/status")["running"] is True
        listening = Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]
        own = {str(link.readlink()) for link in Path(f"/proc/{process.pid}/fd").iterdir()}
        assert [line for line in listening if line.split()[3] == "0A" and f"socket:[{line.split()[9]}]" in own] == []
