"""Both ends of the agent's socket."""

import asyncio
import signal
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Request

from commingle.party_agent.errors import PeerError
from commingle.party_agent.operate.compose import agent_clients
from commingle.party_agent.wire import local_socket
from commingle.party_agent.wire.local_socket import AgentTransport, listen, user_of
from commingle.shared.runtime import server
from commingle.shared.runtime.errors import SettingsError, UnreachableError
from tests.world.consortium import Consortium
from tests.world.local_api import operator_app, recording, serving_at


@pytest.fixture
def echo() -> FastAPI:
    app = FastAPI()

    @app.api_route("/v1/echo", methods=["GET", "PUT"])
    async def answer(request: Request) -> dict[str, object]:
        return {
            "method": request.method,
            "query": str(request.query_params),
            "body": (await request.body()).decode(),
            "headers": dict(request.headers),
        }

    return app


def client(path: Path) -> httpx.Client:
    return httpx.Client(transport=AgentTransport(path), base_url="http://agent", timeout=60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sock"


def test_request_and_answer_pass_whole(path: Path, echo: FastAPI) -> None:
    body = "ä" * 300_000
    with serving_at(path, echo), client(path) as http:
        said = http.put("/v1/echo", params={"a": "1 2"}, content=body.encode(), headers={"X-Own": "yes"}).json()
        assert http.get("/absent").status_code == 404
    assert (said["method"], said["query"], said["body"]) == ("PUT", "a=1+2", body)
    assert (said["headers"]["x-own"], said["headers"]["host"]) == ("yes", "agent")
    assert "authorization" not in said["headers"]


def test_socket_is_for_its_user_alone_also_while_it_is_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []

    def listen_and_look(self: socket.socket, backlog: int) -> None:
        modes.append(stat.S_IMODE(path.stat().st_mode))
        super(socket.socket, self).listen(backlog)

    monkeypatch.setattr(socket.socket, "listen", listen_and_look, raising=False)
    with listen(path):
        assert modes == [0o600]


def test_socket_that_a_killed_process_left_is_replaced(path: Path, echo: FastAPI) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with serving_at(path, echo), client(path) as http:
        assert http.get("/v1/echo").status_code == 200


@pytest.mark.parametrize("left", [False, True])
def test_nobody_who_listens_is_unreachable(path: Path, *, left: bool) -> None:
    if left:
        listen(path).close()
    with client(path) as http, pytest.raises(UnreachableError, match=f"no answer from {path}"):
        http.get("/v1/echo")


def test_home_may_lie_deeper_than_the_address_of_a_socket_is_long(tmp_path: Path, echo: FastAPI) -> None:
    home = tmp_path.joinpath(*["a-directory-with-a-long-name"] * 8)
    home.mkdir(parents=True)
    path = home / "agent.sock"
    assert len(str(path)) > 200
    with serving_at(path, echo), client(path) as http:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert http.get("/v1/echo").status_code == 200


def test_place_where_no_socket_can_be_is_our_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot listen at .*agent\.sock"):
        listen(tmp_path / "absent" / "agent.sock")


def other_user(connection: socket.socket) -> int | None:
    user = user_of(connection)
    return None if user is None else user + 4711


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whoever is at the other end is somebody else."""
    with monkeypatch.context() as patched:
        patched.setattr(local_socket, "user_of", other_user)
        yield


@pytest.mark.usefixtures("others")
def test_process_of_another_user_that_listens_is_sent_nothing(path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    refused = pytest.raises(PeerError, match=r"a process of user \d+ listens")
    with recording(listener) as received, client(path) as http, refused:
        http.get("/v1/echo")
    assert b"".join(received) == b""


@pytest.mark.usefixtures("others")
def test_process_of_another_user_that_connects_is_answered_nothing(path: Path, echo: FastAPI) -> None:
    with serving_at(path, echo), socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(60)
        stranger.connect(str(path))
        try:
            stranger.sendall(b"GET /v1/echo HTTP/1.1\r\nHost: agent\r\n\r\n")
            answer = stranger.recv(1)
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
    assert answer == b""


def test_services_run_on_a_loop_that_accepts_by_the_listener_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop, say, accepts on the descriptor: nobody would ask who is at the other end."""

    class Other(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            raise AssertionError("a loop of somebody else's choice")

    loops = []

    async def look(*_: object) -> None:
        loops.append(type(asyncio.get_running_loop()))

    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    monkeypatch.setattr(server, "serve_all", look)
    asyncio.set_event_loop_policy(Other())
    try:
        server.run([], announcement={})
    finally:
        asyncio.set_event_loop_policy(None)
        for number, handler in kept.items():
            signal.signal(number, handler)
    assert loops == [asyncio.SelectorEventLoop]


def test_a_running_agent_answers_one_page_while_another_waits(consortium: Consortium) -> None:
    home = consortium.homes["clinic"]
    reach = agent_clients(home)
    with (
        consortium.agent("clinic") as agent,
        serving_at(home.socket, operator_app(agent)),
        reach(None) as slow,
        reach(None) as other,  # in the same thread: it would wait forever for the first
    ):
        assert (other.status().name, slow.status().name) == ("clinic", "clinic")


def test_without_an_agent_every_page_gets_the_ledger_in_its_turn(consortium: Consortium) -> None:
    reach = agent_clients(consortium.homes["clinic"])

    def page(_: int) -> str:
        with reach(None) as agent:
            return agent.status().name

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(page, range(8))) == ["clinic"] * 8
