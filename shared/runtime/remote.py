"""HTTP calls to another Commingle process: failures become our errors, and nothing is sent or read without limits."""

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from socket import gaierror
from ssl import SSLCertVerificationError
from time import monotonic
from typing import BinaryIO, Protocol, TypeAlias, TypedDict, TypeVar, Unpack
from urllib.request import getproxies

import httpx
import structlog
from pydantic import BaseModel, ValidationError

from commingle.shared import __version__
from commingle.shared.documents.model import explain
from commingle.shared.runtime.errors import (
    NonsenseError,
    RemoteProblemError,
    SettingsError,
    UnreachableError,
    remedy_for,
)
from commingle.shared.runtime.patience import Watch
from commingle.shared.runtime.tls import is_this_machine, trust, trust_nobody
from commingle.shared.text import quoted

Kind = TypeVar("Kind", bound=BaseModel)
Failure = TypeVar("Failure", bound=Exception)
Params: TypeAlias = Mapping[str, str | int | Sequence[str]]

EVENTS = "text/event-stream"
PROBLEM_TYPE = "urn:commingle:problem:"
_OUT_OF_TIME = frozenset({9, 10})  # OpenSSL: not yet valid, has expired
_CODE = re.compile(r"[a-z][a-z-]{0,40}")
LARGEST_ANSWER_BYTES = 64 << 20  # a release of 64 parties with every document at its longest is below 40 MiB
MOST_PAGES = 1000
_LONGEST_CURSOR = 1000
PATIENCE_SECONDS = 60.0
_CONNECTING_SECONDS = 5.0  # without an answer by then the service is away, and we try again
_SLOWEST = 64 << 10  # bytes per second that have to be taken and answered, beyond the patience
_BUSY = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})


def connect(
    url: str,
    *,
    ca_file: Path | None = None,  # PEM certificates of authorities to trust besides the system's
    allow_http: bool = False,  # also speak plain http to another machine, where everybody in between reads along
    timeout_seconds: float = PATIENCE_SECONDS,  # for each read, and for connecting if that is less than its own limit
    transport: httpx.BaseTransport | None = None,  # carries requests; the caller then answers for who reads along
    auth: httpx.Auth | None = None,
    headers: Mapping[str, str] | None = None,
) -> httpx.Client:
    """A client of another Commingle process at this address. It follows no redirect.

    Raises SettingsError: plain http to another machine, or certificates that cannot be read; httpx.InvalidURL: not an
    address, which `reaching` makes a NonsenseError.
    """
    at = httpx.URL(url)
    here = not at.host or is_this_machine(at.host)  # without a host it is no address, and `reaching` says so
    if at.scheme == "http" and not (here or allow_http or transport is not None):
        raise SettingsError(
            f"{url} would be reached over plain http, which anybody in between can read and withhold",
            remedy="Give an https:// address. If you control the whole network in between, allow it: --allow-http, "
            'COMMINGLE_ALLOW_HTTP=1, allow_http=True, or "allow_http": true beside the URL in the file '
            "consortia/NAME/coordinator.json of a member's home.",
        )
    return httpx.Client(
        base_url=at,
        timeout=_timeout(timeout_seconds),
        transport=transport,
        verify=trust(ca_file) if ca_file is not None or at.scheme != "http" else trust_nobody(),
        auth=auth,
        headers={"User-Agent": f"commingle/{__version__}", **(headers or {})},
        follow_redirects=False,
        trust_env=not (here and at.scheme == "http"),  # no proxy stands between a machine and itself
    )


def _timeout(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=min(seconds, _CONNECTING_SECONDS))


def _address(client: httpx.Client) -> str:
    """As it was given: httpx ends the address that a client begins with by a slash."""
    return str(client.base_url).removesuffix("/")


class Asked(TypedDict, total=False):
    """The content of a request and its limits, as `call` explains them."""

    content: bytes | BinaryIO | None
    headers: Mapping[str, str] | None
    params: Params | None
    timeout_seconds: float | None
    largest_bytes: int
    patience_seconds: float


def call(client: httpx.Client, method: str, path: str, *, own: bool = False, **asked: Unpack[Asked]) -> httpx.Response:
    """Send a request and return its successful response.

    `timeout_seconds` bounds each wait for the network, instead of the client's own. The head of an answer may take
    `patience_seconds` longer than that in all. At most `largest_bytes` of its body are read. Sending and reading may
    each take `patience_seconds`, and a second more for every 64 KiB; if a body stops within a piece, we wait as for one
    of `largest_bytes`. For `own` see `check`.

    Raises UnreachableError: no connection, no answer in time, or a gateway says the service is away;
    RemoteProblemError: the service refused; we quote its words, and say ourselves what to do; NonsenseError: an answer
    that is neither success nor a problem document, or is too large.
    """
    with _asking(client, method, path, **asked) as answer:
        return check(answer.whole(), _address(client), own=own)


def download(
    client: httpx.Client,
    path: str,
    *,
    largest_bytes: int,
    params: Params | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Generator[bytes, None, None]:
    """The body of a GET, piece by piece, if it is too large for memory. Limits and errors are those of `call`."""
    with _asking(
        client, "GET", path, params=params, largest_bytes=largest_bytes, patience_seconds=patience_seconds
    ) as answer:
        if not answer.head.is_success:
            answer.largest_bytes = LARGEST_ANSWER_BYTES
            check(answer.whole(), _address(client))
        yield from answer.pieces()


def listen(
    client: httpx.Client,
    path: str,
    *,
    params: Params | None = None,
    timeout_seconds: float,
    streamed: bool = True,
) -> Generator[bytes, None, None]:
    """The data of each server-sent event of a GET; an answer of another kind counts as one event.

    Each begins within `timeout_seconds` of the one before. `call` gives the limits of each, and the errors; a stream
    without any event is an UnreachableError. If not `streamed`, another kind is asked for.
    """
    where, headers = _address(client), {"Accept": EVENTS if streamed else "application/json"}
    asked = Asked(params=params, headers=headers, timeout_seconds=timeout_seconds)
    with _asking(client, "GET", path, **asked) as answer:
        if not answer.head.headers.get("content-type", "").startswith(EVENTS):
            yield check(answer.whole(), where).content
            return
        events = answer.events()
        if (first := next(events, None)) is None:
            raise UnreachableError(f"{where} ended without an answer", remedy="Try again later.")
        yield first
        yield from events


class Paged(Protocol):
    """One page of a list; `next` is the cursor of the page that follows."""

    @property
    def next(self) -> str | None: ...


Page = TypeVar("Page", bound=Paged)


def pages(where: str, ask: Callable[[str | None], Page], *, most: int = MOST_PAGES) -> Iterator[Page]:
    """Every page of a list; the first is asked for with None. It ends, whatever the other side answers.

    Raises NonsenseError: more than `most` pages, or a cursor that came before or is too long to be one.
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
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError):  # the last of a host's name
        raise NonsenseError(f"{where} is not a valid address", remedy="Give a URL such as http://host:8000.") from None
    except httpx.DecodingError:
        raise NonsenseError(
            f"{where} answered with broken data", remedy="Check what answers at this address."
        ) from None
    except httpx.TransportError as error:
        refused = _cause(error, SSLCertVerificationError)
        if refused is not None and refused.verify_code in _OUT_OF_TIME:
            raise UnreachableError(
                f"the certificate of {where} is out of date ({refused.verify_message})",
                remedy="Its operator renews it; if it is renewed, this machine's clock is wrong: set it by NTP.",
            ) from None
        if refused is not None:
            raise UnreachableError(
                f"the certificate of {where} is not trusted ({refused.verify_message})",
                remedy="Where it is the server's own or a private authority's, get that certificate from the operator "
                "as a PEM file and name it: --ca-file FILE, or ca_file=FILE in Python.",
            ) from None
        if _cause(error, gaierror) is not None:
            raise UnreachableError(
                f"no answer from {where}: its name cannot be looked up",
                remedy="Check the name, and this machine's DNS; the call is safe to repeat.",
            ) from None
        if _cause(error, ConnectionRefusedError) is not None:
            raise UnreachableError(
                f"no answer from {where}: nothing listens there{', or at HTTPS_PROXY' if getproxies() else ''}",
                remedy="Check the address and its port, and that the service runs; the call is safe to repeat.",
            ) from None
        raise UnreachableError(
            f"no answer from {where} ({type(error).__name__})",
            remedy="Check the address and the network; the call is safe to repeat.",
        ) from None


def _cause(error: BaseException | None, kind: type[Failure]) -> Failure | None:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def check(response: httpx.Response, where: str, *, own: bool = False) -> httpx.Response:
    """The response itself if it is a success. Raises as `call` does.

    `own` means that this party's own agent answers: its words and remedy are passed on as they are.
    """
    if response.is_success:
        return response
    if response.status_code in _BUSY and "problem+json" not in response.headers.get("content-type", ""):
        raise UnreachableError(f"{where} is unavailable (HTTP {response.status_code})", remedy="Try again later.")
    raise _problem_of(response, where, own=own)


def json_of(response: httpx.Response) -> object:
    """The response's JSON. Raises NonsenseError: it has none."""
    try:
        value: object = response.json()
    except (ValueError, RecursionError):
        raise NonsenseError(
            f"{response.url} did not answer with JSON", remedy="Check that the address is a Commingle service."
        ) from None
    return value


def model_of(kind: type[Kind], response: httpx.Response) -> Kind:
    """The response's JSON as its model. Raises NonsenseError: it is something else."""
    return model_in(kind, response.content, str(response.url))


def model_in(kind: type[Kind], answer: bytes, where: str) -> Kind:
    """The JSON that somebody at `where` answered, as its model. Raises NonsenseError: it is something else."""
    try:
        return kind.model_validate_json(answer)
    except ValidationError as error:
        raise NonsenseError(
            f"{where} answered with something else than expected: {explain(error)}",
            remedy="Check that the address is a Commingle service of this version.",
        ) from None


@contextmanager
def _asking(client: httpx.Client, method: str, path: str, **asked: Unpack[Asked]) -> Iterator["_Answer"]:
    """The head of an answer, its body still to be read. Raises UnreachableError and NonsenseError, for the body too."""
    seconds, patience_seconds = asked.get("timeout_seconds"), asked.get("patience_seconds", PATIENCE_SECONDS)
    largest_bytes = asked.get("largest_bytes", LARGEST_ANSWER_BYTES)
    timeout = client.timeout if seconds is None else _timeout(seconds)
    # uncompressed data cannot grow
    headers = {"Accept-Encoding": "identity", **_request_id(), **(asked.get("headers") or {})}
    content, params = asked.get("content"), asked.get("params")
    with reaching(_address(client)):
        request = client.build_request(method, path, content=content, headers=headers, params=params, timeout=timeout)
        size = int(request.headers.get("Content-Length", 0))
        watch = Watch(
            client,
            sending_seconds=patience_seconds + size / _SLOWEST,
            answering_seconds=patience_seconds + (timeout.read or 0.0),
            reading_seconds=patience_seconds + largest_bytes / _SLOWEST,
        )
        request.extensions["trace"] = watch
        try:
            with closing(client.send(request, stream=True)) as head:
                yield _Answer(head, largest_bytes, patience_seconds)
        finally:
            watch.stop()


def _request_id() -> dict[str, str]:
    name = structlog.contextvars.get_contextvars().get("request_id")
    return {"X-Request-Id": name} if name else {}


@dataclass(slots=True)
class _Answer:
    """An answer that is read within its size and its time: how much of one message has come, and since when."""

    head: httpx.Response
    largest_bytes: int
    patience_seconds: float
    size: int = 0
    begun: float = field(default_factory=monotonic)

    def whole(self) -> httpx.Response:
        body, head = b"".join(self.pieces()), self.head
        return httpx.Response(head.status_code, headers=head.headers, content=body, request=head.request)

    def pieces(self) -> Iterator[bytes]:
        self._restart()
        for piece in self._as_sent():
            self._add(piece)
            yield piece

    def events(self) -> Iterator[bytes]:
        """The data of each server-sent event that has come to its end and has some."""
        came = bytearray()
        for piece in self._as_sent():
            if not came:
                self._restart()
            self._add(piece)
            searched = max(len(came) - 1, 0)
            came += piece
            while (end := came.find(b"\n\n", searched)) >= 0:
                lines = bytes(came[:end]).split(b"\n")
                del came[: end + 2]
                searched = 0
                self._restart()
                if data := b"\n".join(line[6:] for line in lines if line.startswith(b"data: ")):
                    yield data

    def _as_sent(self) -> Iterator[bytes]:
        """The body, uncompressed: a compressed one could grow to any size. Raises NonsenseError."""
        if self.head.headers.get("content-encoding", "identity") != "identity":
            raise NonsenseError(
                f"{self.head.request.url} answered with compressed data, which was not asked for",
                remedy="Keep the proxy in front of the service from compressing its answers.",
            )
        return self.head.iter_bytes()

    def _restart(self) -> None:
        self.size, self.begun = 0, monotonic()

    def _add(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self.largest_bytes:
            raise NonsenseError(
                f"{self.head.request.url} answers with more than the {self.largest_bytes} bytes an honest answer has "
                "here",
                remedy="Check what answers at this address; report it to its operator.",
            )
        if monotonic() - self.begun > self.patience_seconds + self.size / _SLOWEST:
            raise UnreachableError(
                f"{self.head.request.url} answers too slowly: {self.size} bytes in {monotonic() - self.begun:.0f} "
                "seconds",
                remedy="Check the network; the call is safe to repeat.",
            )


def _problem_of(response: httpx.Response, where: str, *, own: bool) -> Exception:
    try:
        document = response.json()
    except (ValueError, RecursionError):
        document = None
    kind = str(document.get("type", "")) if isinstance(document, dict) else ""
    nowhere = response.status_code == HTTPStatus.NOT_FOUND and not kind.startswith(PROBLEM_TYPE)  # another service
    if not isinstance(document, dict) or "detail" not in document or nowhere:
        why = document.get("error") if isinstance(document, dict) else None  # RFC 6749, 5.2
        told = f". It says: {quoted(why)}" if isinstance(why, str) else ""
        return NonsenseError(
            f"{where} answered HTTP {response.status_code} without a problem document{told}",
            remedy="Check that the address is a Commingle service and that no proxy answers in its place.",
        )
    said, code = str(document["detail"]), kind.removeprefix(PROBLEM_TYPE)
    problem = code if _CODE.fullmatch(code) else "unknown"
    return RemoteProblemError(
        said if own else f"{where} refused ({problem}). It says: {quoted(said)}",
        remedy=str(document.get("remedy")) if own and "remedy" in document else remedy_for(problem),
        status=response.status_code,
        problem=problem,
    )
