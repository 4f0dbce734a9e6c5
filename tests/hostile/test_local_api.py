"""What a proxy, another user of the machine, or a system with a token tried at an agent's local API."""

import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from benchmarks.consortium import Commingle
from commingle.party_agent.errors import PeerError
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.tokens import create_token
from commingle.party_agent.operate.compose import agent_client
from commingle.shared.runtime.settings import system_clock
from commingle.shared.runtime.tls import trust
from tests.e2e.networks import Authority
from tests.hostile.actors import NOBODY, Ready, another_user
from tests.world.command import Command
from tests.world.consortium import BY_HAND, Consortium, consortium_of
from tests.world.local_api import operator_app, operator_client, serving_at

GREETING = b"GET /v1/ledger HTTP/1.1\r\nHost: agent\r\n\r\n"
as_root = pytest.mark.skipif(
    os.geteuid() != 0,
    reason="only root can become another user; pretended ones: tests/party_agent/wire/test_local_socket.py",
)


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
        with pytest.raises(PeerError, match=f"a process of user {NOBODY} listens"), agent_client(home) as client:
            client.proposals()
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
        with agent_client(home) as client:
            assert client.ledger().charges == ()  # and its own user is served as before


def test_token_does_not_travel_without_tls(home: Home, run: Command) -> None:
    on_every_interface = ("--host", "0.0.0.0", "--port", "0")  # noqa: S104 - is refused
    code, out, err = run("party", "serve", "--home", home.root, *on_every_interface)
    assert (code, out) == (1, "")
    assert "by TLS only" in err
    assert "openssl req -x509" in err


@pytest.mark.slow
def test_network_is_served_by_tls_to_tokens_only_beside_the_socket(home: Home, tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca", "the clinic's authority")
    certificate, key = authority.issue()
    token = create_token(home, name="own", scopes=frozenset({"read"}), lifetime=None, now=system_clock())
    headers = {"Authorization": f"Bearer {token}"}
    options = ("--port", "0", "--tls-certificate", certificate, "--tls-key", key)
    with Commingle().serving("party", "serve", "--home", home.root, *options) as (process, said):
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
    serve = ("party", "serve", "--home", home.root)
    with Commingle().serving(*serve) as (process, _):
        process.kill()
        process.wait(60)
        assert home.socket.exists()
    with Commingle().serving(*serve) as (process, said):
        assert said == {"event": "listening", "socket": str(home.socket)}
        with agent_client(home) as client:
            assert client.status().running is True
        listening = Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]
        own = {str(link.readlink()) for link in Path(f"/proc/{process.pid}/fd").iterdir()}
        assert [line for line in listening if line.split()[3] == "0A" and f"socket:[{line.split()[9]}]" in own] == []
