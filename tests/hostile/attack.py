"""Schemathesis against an application in this process, with the names of real things in its paths."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import schemathesis
from fastapi import FastAPI
from hypothesis import strategies
from schemathesis import Case, GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.errors import InvalidSchema
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.result import Ok

from commingle.shared.release.matrix import ARROW_STREAM
from commingle.shared.runtime.request_signing import RequestSigner
from tests.world.coordinator import Hub

Endpoint = tuple[str, str]
"""Method and path."""

_CONFIG = {
    "seed": 1,
    "request-timeout": 120,  # by default 10 s, which a worker that starts on a busy machine may take
    "checks": {
        # documents are signed: what fits the schema is still refused where no known key is under it
        "positive_data_acceptance": {"enabled": False},
        # who is let in is asked by `test_authorisation`; here requests are signed behind its back
        "ignored_auth": {"enabled": False},
        "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "502", "503"]},
    },
}
_SETTINGS = hypothesis.settings(
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.generate],
)
_PROBLEM = {"type", "title", "status", "detail", "remedy"}


@schemathesis.serializer(ARROW_STREAM, "text/csv", "application/x-ndjson")
def _rows(_: object, value: object) -> bytes:
    data = getattr(value, "data", value)
    return data if isinstance(data, bytes) else repr(data).encode()


def attack(
    app: FastAPI,
    *,
    known: Sequence[Mapping[str, str]],
    headers: Mapping[str, str] | None = None,
    signer: RequestSigner | None = None,
    examples: int = 8,
) -> dict[Endpoint, set[int]]:
    """Send every operation what fits its OpenAPI document and what does not, and hold the answers against it.

    Args:
        app: called without its lifespan, so nothing runs in the background.
        known: path parameters that lead somewhere; now and then others are made up.
        headers: sent with every request.
        examples: valid ones, and as many invalid ones, of every operation.
        signer: signs every request when it is complete, so that what lies behind the first door is attacked too.

    Returns:
        The statuses of each operation. Raises whatever does not hold.
    """

    async def without_lifespan(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise RuntimeError("none here")
        if signer is not None:
            scope, receive = await _signed(scope, receive, signer)
        await app(scope, receive, send)

    # a signature that it leaves out is there all the same
    config = _CONFIG | ({} if signer is None else {"generation": {"with-security-parameters": False}})
    document = schemathesis.openapi.from_asgi(
        "/openapi.json", without_lifespan, config=SchemathesisConfig.from_dict(config)
    )
    settings = hypothesis.settings(_SETTINGS, max_examples=examples)
    statuses: dict[Endpoint, set[int]] = {}

    def one(case: Case[Any]) -> None:
        response = case.call_and_validate(headers=dict(headers or {}))
        statuses.setdefault((case.method, case.path), set()).add(response.status_code)
        if response.status_code >= 400:
            assert response.headers["content-type"] == ["application/problem+json"]
            assert response.json().keys() == _PROBLEM

    for found in document.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        fitting = [{n: v for n, v in names.items() if f"{{{n}}}" in operation.path} or None for names in (*known, {})]
        for mode in [GenerationMode.POSITIVE] if _fits_always(operation) else GenerationMode:
            cases = [operation.as_strategy(generation_mode=mode, path_parameters=names) for names in fitting]
            sent = settings(hypothesis.given(strategies.one_of(cases))(one))
            try:
                sent()
            except InvalidSchema:  # now and then its wrong cases begin with a list of what there is none of
                assert mode is GenerationMode.NEGATIVE
                hypothesis.seed(1)(sent)()
    return statuses


def _fits_always(operation: Any) -> bool:
    # so nothing of a request can be wrong; a search for what is gives up after 459 attempts
    return not operation.body and all(map(_any_text, operation.iter_parameters()))


def _any_text(parameter: Any) -> bool:
    schema = parameter.definition["schema"]
    kinds = schema.get("anyOf", [schema])
    free = all(kind["type"] in {"string", "null"} and kind.keys() <= {"type", "title", "description"} for kind in kinds)
    # outside the path a required parameter may be left out, which is wrong
    return free and (parameter.location is ParameterLocation.PATH or not parameter.is_required)


async def _signed(scope: Any, receive: Any, signer: RequestSigner) -> tuple[Any, Any]:
    messages = [await receive()]
    while messages[-1].get("more_body"):
        messages.append(await receive())
    body = b"".join(message.get("body", b"") for message in messages)
    query = "?" + scope["query_string"].decode() if scope["query_string"] else ""
    url = f"http://any{scope['raw_path'].decode()}{query}"
    request = httpx.Request(scope["method"], url, headers=scope["headers"], content=body)
    signer.sign(request)

    async def again() -> Any:
        return messages.pop(0) if messages else await receive()

    added = ("content-digest", "signature", "signature-input")
    kept = [(name, value) for name, value in scope["headers"] if name.decode("latin-1") not in added]
    new = [(name.encode(), request.headers[name].encode()) for name in added if name in request.headers]
    return {**scope, "headers": [*kept, *new]}, again


def endpoints(app: FastAPI) -> set[Endpoint]:
    return {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}


@contextmanager
def hub_with_releases(home: Path) -> Iterator[tuple[Hub, list[str]]]:
    """A coordinator with two members, and the ids of a published, an approved and a proposed release."""
    hub = Hub(f"sqlite:///{home / 'coordinator.sqlite'}", home)
    try:
        parties = hub.enrolled("clinic"), hub.enrolled("registry")
        published = hub.complete(parties)
        hub.publisher.run_once()
        assert hub.state(published) == "published"
        releases = published, hub.approved(parties, mechanism="dgm"), hub.proposed(parties, k=20)
        yield hub, [release.id for release in releases]
    finally:
        hub.close()
