import asyncio

import httpx
import pytest
import structlog
from fastapi import FastAPI

from commingle.shared.runtime.problem import install_problems


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


def test_given_name_is_taken_over_in_logs_and_answer() -> None:
    answer = ask({"X-Request-Id": "abc-1"})
    assert (answer.headers["x-request-id"], answer.json()["request_id"]) == ("abc-1", "abc-1")


@pytest.mark.parametrize("given", ["", "two words", "x" * 65, "a\tb", "{}"])
def test_harmful_or_missing_name_is_replaced(given: str) -> None:
    answer = ask({"X-Request-Id": given} if given else {})
    name = answer.headers["x-request-id"]
    assert len(name) == 16
    assert answer.json()["request_id"] == name
