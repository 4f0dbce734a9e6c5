"""How much, how many and how long: what no endpoint goes beyond (blocks: tests/coordinator/test_blocks.py)."""

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI, Request

from commingle import ReleaseClient
from commingle.coordinator.coordinator import Coordinator
from commingle.coordinator.http.access import Authenticator
from commingle.services.learner.app import STATUSES
from commingle.services.learner.app import create_app as learner_app
from commingle.services.learner.source import ReleaseSource
from commingle.shared.errors import VerificationError
from commingle.shared.release.matrix import decode_matrix
from commingle.shared.runtime.bodies import Body, read_body
from commingle.shared.runtime.errors import TooLargeError, TruncatedError
from commingle.shared.runtime.problem import install_problems
from tests.golden import world
from tests.world.consortium import BY_HAND, consortium_of
from tests.world.coordinator import Hub, key_of, problem
from tests.world.local_api import operator_app
from tests.world.transport import InProcess, pool_of_threads

TOO_MUCH = b" " * ((8 << 20) + 1)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[list[httpx.Client]]:
    """All three, called by somebody who may do everything."""
    hub = Hub(f"sqlite:///{tmp_path / 'coordinator.sqlite'}", tmp_path)
    hub.enrolled("clinic")
    with consortium_of(tmp_path, "clinic", "insurer", policy=BY_HAND).agent("clinic") as agent:
        apps = [
            hub.app,
            operator_app(agent),
            learner_app(
                ReleaseSource(ReleaseClient("http://hub", transport=InProcess(hub.app))), pool=pool_of_threads()
            ),
        ]
        clients = [httpx.Client(transport=InProcess(app), base_url="http://any") for app in apps]
        clients[0].auth = hub.auth(key_of("clinic"))
        yield clients
    hub.close()


def operations(http: httpx.Client) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every operation, with names in the path that exist."""
    for path, methods in http.get("/openapi.json").json()["paths"].items():
        for method, described in methods.items():
            names = {
                "party": "clinic",
                "sender": "clinic",
                "name": "main",
                "upload": "one",
                "number": 1,
                "file": "matrix",
            }
            yield method, path.format(release="0" * 64, regression="0" * 64, **names), described


def test_every_json_body_beyond_its_limit_is_refused(services: list[httpx.Client]) -> None:
    refused = 0
    for http in services:
        for method, path, described in operations(http):
            if "application/json" in described.get("requestBody", {}).get("content", {}):
                assert problem(http.request(method, path, content=TOO_MUCH))[0] == 413, path
                refused += 1
    assert refused >= 10


def test_every_count_and_wait_in_a_query_has_an_upper_bound(services: list[httpx.Client]) -> None:
    bounded = 0
    for http in services:
        for method, path, described in operations(http):
            for parameter in described.get("parameters", []):
                if parameter["name"] in {"limit", "wait_seconds"}:
                    assert problem(http.request(method, path, params={parameter["name"]: 201})) == (422, "request")
                    bounded += 1
    assert bounded >= 4


def slow_request(pieces: int) -> Request:
    """A body that starts to come and then does not go on."""
    sent = 0

    async def receive() -> dict[str, object]:
        nonlocal sent
        sent += 1
        await asyncio.sleep(0)
        if sent > pieces:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": b"x", "more_body": True}

    return Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)


def test_coordinator_does_not_wait_for_ever_for_a_body() -> None:
    async def read() -> None:
        body = Body(slow_request(3), patience_seconds=0.05)
        with pytest.raises(TruncatedError, match="in time"):
            _ = [piece async for piece in body.pieces(1 << 10)]
        await body.drain()

    asyncio.run(asyncio.wait_for(read(), 60))


def test_coordinator_drains_no_more_than_it_must_of_a_body_that_never_ends() -> None:
    async def read() -> None:
        body = Body(slow_request(1 << 30), patience_seconds=1)
        with pytest.raises(TooLargeError):
            _ = [piece async for piece in body.pieces(2)]
        with pytest.raises(TruncatedError, match="in time"):
            await body.drain()

    asyncio.run(asyncio.wait_for(read(), 60))


@pytest.mark.slow
@pytest.mark.parametrize(
    "taken",
    [lambda request: read_body(request, 1 << 20), Authenticator(cast("Coordinator", None)).unsigned_body],
    ids=["agent or learner", "coordinator"],
)
def test_body_in_pieces_of_two_bytes_takes_little_more_memory_than_its_length(
    taken: Callable[[Request], Awaitable[bytes]],
) -> None:
    pieces = 100_000

    async def read() -> int:
        sent = 0

        async def receive() -> dict[str, object]:
            nonlocal sent
            sent += 1
            if sent % 100 == 0:
                await asyncio.sleep(0)
            return {"type": "http.request", "body": bytes([65, sent & 0xFF]), "more_body": sent < pieces}

        request = Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)
        tracemalloc.start()
        try:
            assert len(await taken(request)) == 2 * pieces
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert asyncio.run(read()) < 10 * 2 * pieces


def test_learner_does_not_wait_for_ever_for_a_body() -> None:
    app = FastAPI()
    install_problems(app, STATUSES)

    @app.post("/")
    async def take(request: Request) -> int:
        return len(await read_body(request, 1 << 10, patience_seconds=0.05))

    async def answers() -> list[int]:
        statuses = list[int]()

        async def send(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])  # type: ignore[arg-type]

        request = slow_request(2)
        scope = {**request.scope, "query_string": b"", "headers": [(b"content-type", b"application/json")]}
        await app(scope, request._receive, send)  # type: ignore[arg-type]
        return statuses

    assert asyncio.run(asyncio.wait_for(answers(), 60)) == [408]


def test_row_group_that_claims_billions_of_rows_is_refused_before_it_is_read() -> None:
    release = world.release("rmgm", world.load("drawn"))
    _, matrix, _ = release.files
    rows, offset = b"\x16\x20", b"\x26\x08\x16"  # thrift: num_rows = 16, file_offset = 4, and a number of bytes
    assert matrix.count(rows + offset) == 1
    claimed = matrix.replace(rows + offset, b"\x16\xe0\xd9\xf7\xea")
    with pytest.raises(VerificationError, match="another shape"):
        decode_matrix(release.spec.document, claimed)
