"""HTTP calls to another Commingle process, their failures as our errors. No answer is read without limits."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from time import monotonic
from typing import Protocol, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from shared.protocol.documents import explain
from shared.runtime.errors import NonsenseError, RemoteProblemError, UnreachableError
from shared.runtime.patience import HeadWatch

Kind = TypeVar("Kind", bound=BaseModel)

PROBLEM_TYPE = "urn:commingle:problem:"
LARGEST_ANSWER_BYTES = 64 << 20  # a release of 64 parties with every document at its longest is below 40 MiB
MOST_PAGES = 1000
_LONGEST_CURSOR = 1000
_PATIENCE_SECONDS = 60.0
_SLOWEST = 64 << 10  # bytes per second an answer has to keep up, beyond the patience
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
    largest_bytes: int = LARGEST_ANSWER_BYTES,
    patience_seconds: float = _PATIENCE_SECONDS,
) -> httpx.Response:
    """Send a request and return its successful response.

    `timeout_seconds` bounds each wait for the network, instead of the client's own. The head of an answer may take
    `patience_seconds` beyond that in all. No more than `largest_bytes` of its body are read, in `patience_seconds` and
    a second more for every 64 KiB that came.

    Raises:
        UnreachableError: no connection, no answer in time, or a gateway says the service is away.
        RemoteProblemError: the service refused, with its own words and remedy.
        NonsenseError: an answer that is neither success nor a problem document, or is too large.
    """
    where = str(client.base_url)
    timeout = httpx.USE_CLIENT_DEFAULT if timeout_seconds is None else timeout_seconds
    # what is not compressed cannot grow when it is unpacked
    asked = {"Accept-Encoding": "identity", **(headers or {})}
    wait = client.timeout.read if timeout_seconds is None else timeout_seconds
    watch = {"trace": HeadWatch(client, seconds=(wait or 0.0) + patience_seconds)}
    with (
        reaching(where),
        client.stream(
            method, path, content=content, headers=asked, params=params, timeout=timeout, extensions=watch
        ) as answer,
    ):
        body = _body(answer, where, largest_bytes=largest_bytes, patience_seconds=patience_seconds)
        response = httpx.Response(answer.status_code, headers=answer.headers, content=body, request=answer.request)
    return check(response, where)


class Paged(Protocol):
    """One page of a list; `next` is the cursor of the page that follows."""

    @property
    def next(self) -> str | None: ...


Page = TypeVar("Page", bound=Paged)


def pages(where: str, ask: Callable[[str | None], Page], *, most: int = MOST_PAGES) -> Iterator[Page]:
    """Every page of a list, the first asked for with None; ends whatever the other side answers.

    Raises:
        NonsenseError: more than `most` pages, or a cursor that came before or is too long to be one.
    """
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(most):
        page = ask(cursor)
        yield page
        cursor = page.next
        if cursor is None:
            return
        if cursor in seen or len(cursor) > _LONGEST_CURSOR:
            break
        seen.add(cursor)
    raise NonsenseError(f"{where} gives pages without end", remedy="Report this to its operator.")


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


def _body(answer: httpx.Response, where: str, *, largest_bytes: int, patience_seconds: float) -> bytes:
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise NonsenseError(
            f"{where} answered with compressed data, which was not asked for",
            remedy="Keep the proxy in front of the service from compressing its answers.",
        )
    body, begun = bytearray(), monotonic()
    for piece in answer.iter_bytes():
        if len(body) + len(piece) > largest_bytes:
            raise NonsenseError(
                f"{where} answers with more than the {largest_bytes} bytes an honest answer has here",
                remedy="Check what answers at this address; report it to its operator.",
            )
        body += piece
        if monotonic() - begun > patience_seconds + len(body) / _SLOWEST:
            raise UnreachableError(
                f"{where} answers too slowly: {len(body)} bytes in {monotonic() - begun:.0f} seconds",
                remedy="Check the network; the call is safe to repeat.",
            )
    return bytes(body)


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
