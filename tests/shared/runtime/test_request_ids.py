import asyncio

import httpx
import pytest
import structlog
from fastapi import FastAPI

from commingle.shared import __version__
from commingle.shared.runtime.problem import install_problems
from commingle.shared.runtime.remote import connect


def ask(headers: dict[str, str]) -> httpx.Response:
    app = FastAPI()
    install_problems(app, {})

    @app.get("/")
    def root() -> dict[str, object]:
        return structlog.contextvars.get_contextvars()

    async def call() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            return await client.get("/", headers=headers)

    return asyncio.run(call())


def test_version_of_a_caller_is_noted_and_nothing_else_that_calls() -> None:
    assert ask({"User-Agent": "commingle/1.2.3"}).json()["caller"] == "commingle/1.2.3"
    for other in ("curl/8", "commingle/1 (x)", "commingle/" + "1" * 40):
        assert "caller" not in ask({"User-Agent": other}).json()
    with connect("http://127.0.0.1:1") as http:
        assert http.headers["user-agent"] == f"commingle/{__version__}"


def test_given_name_is_taken_over_in_logs_and_answer() -> None:
    answer = ask({"X-Request-Id": "abc-1"})
    assert (answer.headers["x-request-id"], answer.json()["request_id"]) == ("abc-1", "abc-1")


@pytest.mark.parametrize("given", ["", "two words", "x" * 65, "a\tb", "{}"])
def test_harmful_or_missing_name_is_replaced(given: str) -> None:
    answer = ask({"X-Request-Id": given} if given else {})
    name = answer.headers["x-request-id"]
    assert len(name) == 16
    assert answer.json()["request_id"] == name
