"""The recording proxy on loopback, before a server that remembers what reached it."""

import asyncio
import json
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import sha256
from threading import Thread
from typing import Any

import httpx
import pytest

from tests.tools.compose_proxy import FATES, Proxy
from tests.world.transport import on_a_socket

_PATH = "/v1/releases/ab12/blocks/ward"
_BODY = bytes(range(256)) * 40


@dataclass
class Between:
    """A proxy before a server; `ask` is its order port."""

    url: str
    orders: int
    arrived: list[httpx.Request]

    def ask(self, **order: str | bool) -> dict[str, Any]:
        with socket.create_connection(("127.0.0.1", self.orders)) as connection:
            connection.sendall(json.dumps(order).encode() + b"\n")
            with connection.makefile() as answers:
                return dict(json.loads(answers.readline()))

    def upload(self) -> httpx.Response:
        headers = {"Commingle-Block": "signed"}
        return httpx.put(self.url + _PATH, content=_BODY, headers=headers, timeout=10)


@pytest.fixture
def between() -> Iterator[Between]:
    arrived = list[httpx.Request]()

    def answer(request: httpx.Request) -> httpx.Response:
        arrived.append(request)
        return httpx.Response(201, content=b"recorded")

    opened = Future[tuple[int, int, asyncio.AbstractEventLoop, asyncio.Event]]()

    async def run(upstream: httpx.URL) -> None:
        proxy, over = Proxy("127.0.0.1", upstream.port or 0), asyncio.Event()
        agents = await asyncio.start_server(proxy.attend, "127.0.0.1", 0)
        orders = await asyncio.start_server(proxy.order, "127.0.0.1", 0)
        async with agents, orders:
            ports = (server.sockets[0].getsockname()[1] for server in (agents, orders))
            opened.set_result((*ports, asyncio.get_running_loop(), over))
            await over.wait()

    with on_a_socket(answer) as upstream:
        running = Thread(target=lambda: asyncio.run(run(httpx.URL(upstream))))
        running.start()
        agents, orders, loop, over = opened.result()
        try:
            yield Between(f"http://127.0.0.1:{agents}", orders, arrived)
        finally:
            loop.call_soon_threadsafe(over.set)
            running.join()


def test_upload_is_forwarded_as_it_is_and_recorded(between: Between) -> None:
    assert between.upload().content == b"recorded"
    (request,) = between.arrived
    assert (request.url.path, request.content, request.headers["commingle-block"]) == (_PATH, _BODY, "signed")
    (upload,) = between.ask()["uploads"]
    del upload["at"]
    digest = sha256(_BODY).hexdigest()
    where = {"party": "ward", "release": "ab12", "kind": "blocks"}
    assert upload == {**where, "statement": "signed", "body_sha256": digest, "whole": True}


def test_reading_is_forwarded_and_not_recorded(between: Between) -> None:
    assert httpx.get(f"{between.url}/v1/releases").content == b"recorded"
    assert between.ask()["uploads"] == []


def test_upload_whose_sender_dies_is_recorded_as_a_part(between: Between) -> None:
    with socket.create_connection(("127.0.0.1", httpx.URL(between.url).port or 0)) as connection:
        connection.sendall(f"PUT {_PATH} HTTP/1.1\r\nHost: hub\r\nContent-Length: 100\r\n\r\nhalf".encode())
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    (upload,) = between.ask()["uploads"]
    assert (upload["whole"], upload["body_sha256"]) == (False, sha256(b"half").hexdigest())


@pytest.mark.parametrize("fate", FATES)
def test_fault_hits_one_upload_which_is_recorded_and_the_next_one_passes(between: Between, fate: str) -> None:
    between.ask(fate=fate, of="uploads")
    assert httpx.get(f"{between.url}/v1/releases").is_success  # not what it was laid up for
    try:
        said = between.upload().content
    except httpx.TransportError as error:
        said = type(error).__name__.encode()
    passes = fate in {"request halted half-way", "request repeated", "old copy of a request delivered later"}
    assert (said == b"recorded") == passes
    assert between.upload().content == b"recorded"
    told = between.ask()
    assert [each["fate"] for each in told["struck"]] == [fate]
    assert len(told["uploads"]) == 2
    reached = sum(request.content == _BODY for request in between.arrived)
    assert reached == 1 + passes + (fate == "request repeated") + fate.startswith("answer")


def test_fault_that_was_called_off_hits_nothing(between: Between) -> None:
    between.ask(fate="request lost", of="requests")
    between.ask(calm=True)
    assert between.upload().is_success
    assert between.ask()["struck"] == []
