"""Every fault is answered with a problem document, and every request has a name."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import httpx
import pytest
import structlog
from fastapi import FastAPI, HTTPException

from commingle.shared import __version__
from commingle.shared.errors import BlockError, CommingleError, ProtocolError, SignatureError
from commingle.shared.runtime.problem import PROBLEM_JSON, install_problems
from commingle.shared.runtime.remote import PROBLEM_TYPE, connect

FAULTS: dict[str, tuple[Exception, int, str, str]] = {
    "ours": (ProtocolError("does not follow", remedy="Follow."), 422, "protocol", "does not follow"),
    "derived": (BlockError("bad block", remedy="Send another."), 422, "block", "bad block"),
    "mapped": (SignatureError("bad signature", remedy="Sign."), 403, "signature", "bad signature"),
    "unmapped": (CommingleError("something", remedy="Something else."), 500, "fault", "something"),
    "http": (HTTPException(418, "teapot", headers={"x-tea": "green"}), 418, "http", "teapot"),
    "unexpected": (RuntimeError("patient 4711"), 500, "fault", "an unexpected fault"),
    "odd": (HTTPException(499, "gone away"), 499, "http", "gone away"),
}


def app() -> FastAPI:
    made = FastAPI()
    install_problems(made, {ProtocolError: 422, SignatureError: 403})

    @made.get("/fault/{name}")
    def fault(name: str) -> None:
        raise FAULTS[name][0]

    @made.get("/context")
    def context() -> dict[str, object]:
        return structlog.contextvars.get_contextvars()

    @made.get("/number/{number}")
    def number(number: int) -> int:
        return number

    return made


def ask(path: str, headers: Mapping[str, str] = MappingProxyType({})) -> httpx.Response:
    async def once() -> httpx.Response:
        transport = httpx.ASGITransport(app(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(once())


def get(path: str) -> tuple[int, dict[str, Any]]:
    response = ask(path)
    assert response.headers["content-type"] == PROBLEM_JSON
    body: dict[str, Any] = response.json()
    assert body["status"] == response.status_code
    assert set(body) == {"type", "title", "status", "detail", "remedy"}
    return response.status_code, body


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_becomes_a_problem_document(name: str) -> None:
    _, status, code, detail = FAULTS[name]
    answered, body = get(f"/fault/{name}")
    assert (answered, body["type"], body["detail"]) == (status, PROBLEM_TYPE + code, detail)
    assert body["remedy"]


def test_invalid_request_names_the_field_and_not_the_value() -> None:
    status, body = get("/number/secret")
    assert status == 422
    assert "path.number" in body["detail"]
    assert "secret" not in body["detail"]


def test_unknown_path_is_a_problem_document_and_headers_of_an_http_fault_are_kept() -> None:
    assert get("/nowhere")[0] == 404
    assert ask("/fault/http").headers["x-tea"] == "green"


def test_version_of_a_caller_is_noted_and_nothing_else_that_calls() -> None:
    assert ask("/context", {"User-Agent": "commingle/1.2.3"}).json()["caller"] == "commingle/1.2.3"
    for other in ("curl/8", "commingle/1 (x)", "commingle/" + "1" * 40):
        assert "caller" not in ask("/context", {"User-Agent": other}).json()
    with connect("http://127.0.0.1:1") as http:
        assert http.headers["user-agent"] == f"commingle/{__version__}"


def test_given_name_is_taken_over_in_logs_and_answer() -> None:
    answer = ask("/context", {"X-Request-Id": "abc-1"})
    assert (answer.headers["x-request-id"], answer.json()["request_id"]) == ("abc-1", "abc-1")


@pytest.mark.parametrize("given", ["", "two words", "x" * 65, "a\tb", "{}"])
def test_harmful_or_missing_name_is_replaced(given: str) -> None:
    answer = ask("/context", {"X-Request-Id": given} if given else {})
    name = answer.headers["x-request-id"]
    assert len(name) == 16
    assert answer.json()["request_id"] == name
