from collections.abc import Callable

import httpx
import pytest

from shared.runtime.errors import NonsenseError, RemoteError, RemoteProblemError, UnreachableError
from shared.runtime.remote import call, json_of

Handler = Callable[[httpx.Request], httpx.Response]

PROBLEM = {"type": "urn:commingle:problem:not-published", "detail": "still collecting", "remedy": "Wait."}


def client(handler: Handler) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(handler), base_url="http://coordinator")


def answering(status: int, **content: object) -> httpx.Client:
    return client(lambda _: httpx.Response(status, **content))  # type: ignore[arg-type] # httpx's own keywords


def failing(error: Exception) -> httpx.Client:
    def handler(_: httpx.Request) -> httpx.Response:
        raise error

    return client(handler)


def test_success_is_handed_through_with_everything_that_was_sent() -> None:
    def echo(request: httpx.Request) -> httpx.Response:
        said = f"{request.method} {request.url} {request.headers['x']} {request.content!r}"
        return httpx.Response(201, text=said + str(request.extensions["timeout"]["read"]))

    response = call(client(echo), "PUT", "/v1", content=b"\0", headers={"x": "y"}, params={"a": 1}, timeout_seconds=7)
    assert response.text == "PUT http://coordinator/v1?a=1 y b'\\x00'7"


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError("refused"),
        httpx.ConnectTimeout("late"),
        httpx.ReadTimeout("late"),
        httpx.WriteError("broken"),
        httpx.RemoteProtocolError("cut"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_transport_failure_is_unreachable(error: Exception) -> None:
    with pytest.raises(UnreachableError, match="http://coordinator"):
        call(failing(error), "GET", "/")


@pytest.mark.parametrize("status", [502, 503, 504])
def test_gateway_answer_without_a_problem_is_unreachable(status: int) -> None:
    with pytest.raises(UnreachableError, match=str(status)):
        call(answering(status, text="<html>away</html>"), "GET", "/")


def test_busy_service_with_a_problem_is_its_own_word() -> None:
    answer = answering(503, json=PROBLEM, headers={"content-type": "application/problem+json"})
    with pytest.raises(RemoteProblemError, match="still collecting"):
        call(answer, "GET", "/")


@pytest.mark.parametrize("status", [400, 403, 404, 409, 413, 422, 500])
def test_problem_document_keeps_its_words_remedy_status_and_type(status: int) -> None:
    with pytest.raises(RemoteProblemError) as refused:
        call(answering(status, json=PROBLEM), "GET", "/")
    assert str(refused.value) == "still collecting"
    assert refused.value.remedy == "Wait."
    assert refused.value.status == status
    assert refused.value.problem == "not-published"


@pytest.mark.parametrize(
    "problem", [{"detail": "x"}, {"detail": None, "type": None, "remedy": 5}, {"detail": [], "type": 7}]
)
def test_odd_problem_document_still_becomes_our_error(problem: dict[str, object]) -> None:
    with pytest.raises(RemoteProblemError):
        call(answering(400, json=problem), "GET", "/")


@pytest.mark.parametrize(
    "content", [{"text": "<html>"}, {"content": b"\xff\xfe"}, {"json": []}, {"json": {"error": 1}}, {"json": None}, {}]
)
@pytest.mark.parametrize("status", [301, 304, 400, 404, 500])
def test_answer_without_a_problem_document_is_nonsense(status: int, content: dict[str, object]) -> None:
    with pytest.raises(NonsenseError, match=str(status)):
        call(answering(status, **content), "GET", "/")


@pytest.mark.parametrize("bad", [httpx.Client(base_url=""), httpx.Client(base_url="ftp://host")], ids=["none", "ftp"])
def test_address_without_http_is_nonsense(bad: httpx.Client) -> None:
    with bad, pytest.raises(NonsenseError, match="not a valid address"):
        call(bad, "GET", "/")


def test_path_that_is_none_is_nonsense() -> None:
    with pytest.raises(NonsenseError, match="not a valid address"):
        call(answering(200), "GET", "/\0")


@pytest.mark.parametrize("problem", [{}, {"type": None}, {"type": ""}, {"type": "urn:commingle:problem:"}])
def test_problem_without_our_type_still_has_a_code(problem: dict[str, object]) -> None:
    with pytest.raises(RemoteProblemError) as refused:
        call(answering(400, json={"detail": "x", **problem}), "GET", "/")
    assert refused.value.problem in ("unknown", "None")


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe\xfd", b"{"])
def test_success_without_json_is_nonsense(body: bytes) -> None:
    with pytest.raises(NonsenseError, match="JSON"):
        json_of(call(answering(200, content=body), "GET", "/"))


def test_json_is_handed_through() -> None:
    assert json_of(call(answering(200, json={"a": [1]}), "GET", "/")) == {"a": [1]}


def test_answer_that_cannot_be_decompressed_is_our_error() -> None:
    junk = httpx.ByteStream(b"junk")
    with pytest.raises(RemoteError):
        call(answering(200, headers={"content-encoding": "gzip"}, stream=junk), "GET", "/")


@pytest.mark.parametrize("status", [200, 400])
def test_deeply_nested_answer_is_our_error(status: int) -> None:
    with pytest.raises(RemoteError):
        json_of(call(answering(status, content=b"[" * 200_000), "GET", "/"))
