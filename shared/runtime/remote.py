"""HTTP calls to another Commingle process, their failures as our errors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from shared.protocol.documents import explain
from shared.runtime.errors import NonsenseError, RemoteProblemError, UnreachableError

Kind = TypeVar("Kind", bound=BaseModel)

PROBLEM_TYPE = "urn:commingle:problem:"
_BUSY = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})


def call(
    client: httpx.Client,
    method: str,
    path: str,
    *,
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    params: Mapping[str, str | int] | None = None,
    timeout_seconds: float | None = None,
) -> httpx.Response:
    """Send a request and return its successful response.

    Raises:
        UnreachableError: no connection, no answer in time, or a gateway says the service is away.
        RemoteProblemError: the service refused, with its own words and remedy.
        NonsenseError: an answer that is neither success nor a problem document.
    """
    where = str(client.base_url)
    timeout = httpx.USE_CLIENT_DEFAULT if timeout_seconds is None else timeout_seconds
    with reaching(where):
        response = client.request(method, path, content=content, headers=headers, params=params, timeout=timeout)
    return check(response, where)


@contextmanager
def reaching(where: str) -> Iterator[None]:
    """Turn httpx's failures to reach `where` into UnreachableError and NonsenseError."""
    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise NonsenseError(f"{where} is not a valid address", remedy="Give a URL such as http://host:8000.") from None
    except httpx.DecodingError:
        raise NonsenseError(
            f"{where} answered with broken data", remedy="Check what answers at this address."
        ) from None
    except httpx.TransportError as error:
        raise UnreachableError(
            f"no answer from {where} ({type(error).__name__})",
            remedy="Check the address and the network; the call is safe to repeat.",
        ) from None


def check(response: httpx.Response, where: str) -> httpx.Response:
    """The response itself if it is a success. Raises as `call` does."""
    if response.is_success:
        return response
    if response.status_code in _BUSY and "problem+json" not in response.headers.get("content-type", ""):
        raise UnreachableError(f"{where} is away (HTTP {response.status_code})", remedy="Try again later.")
    raise _problem_of(response, where)


def json_of(response: httpx.Response) -> object:
    """The response's JSON. Raises NonsenseError where it is none."""
    try:
        value: object = response.json()
    except (ValueError, RecursionError):
        raise NonsenseError(
            f"{response.url} did not answer with JSON", remedy="Check that the address is a Commingle service."
        ) from None
    return value


def model_of(kind: type[Kind], response: httpx.Response) -> Kind:
    """The response's JSON as its model. Raises NonsenseError where it is something else."""
    try:
        return kind.model_validate_json(response.content)
    except ValidationError as error:
        raise NonsenseError(
            f"{response.url} answered with something else than expected: {explain(error)}",
            remedy="Check that the address is a Commingle coordinator of this version.",
        ) from None


def _problem_of(response: httpx.Response, where: str) -> Exception:
    try:
        document = response.json()
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or "detail" not in document:
        return NonsenseError(
            f"{where} answered HTTP {response.status_code} without a problem document",
            remedy="Check that the address is a Commingle service and that no proxy answers in its place.",
        )
    return RemoteProblemError(
        str(document["detail"]),
        remedy=str(document.get("remedy", "See the service's documentation.")),
        status=response.status_code,
        problem=str(document.get("type", "")).removeprefix(PROBLEM_TYPE) or "unknown",
    )
