import gzip
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from ssl import SSLCertVerificationError
from threading import Event, Thread, active_count
from time import monotonic, sleep
from typing import Any

import httpx
import pytest

from commingle.shared.runtime import patience, remote
from commingle.shared.runtime.errors import NonsenseError, RemoteError, RemoteProblemError, UnreachableError
from commingle.shared.runtime.patience import Watch
from commingle.shared.runtime.remote import LARGEST_ANSWER_BYTES, call, check, download, json_of, listen, pages

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


def expired(code: int) -> Exception:
    refused = SSLCertVerificationError("as of OpenSSL")
    refused.verify_code, refused.verify_message = code, "certificate has expired"
    return refused


@pytest.mark.parametrize(
    ("cause", "said", "remedy"),
    [
        (socket.gaierror(-3, "Temporary failure in name resolution"), "its name cannot be looked up", "DNS"),
        (ConnectionRefusedError(111, "Connection refused"), "nothing listens there", "its port"),
        (expired(10), "is out of date (certificate has expired)", "NTP"),
        (expired(9), "is out of date", "NTP"),
        (expired(18), "is not trusted", "--ca-file"),
    ],
    ids=["no DNS", "refused", "expired", "not yet valid", "self-signed"],
)
def test_what_an_operator_can_mend_is_told_by_its_cause(cause: Exception, said: str, remedy: str) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("failed") from cause

    with pytest.raises(UnreachableError) as failed:
        call(client(fail), "GET", "/v1")
    assert said in str(failed.value)
    assert remedy in failed.value.remedy


def test_failure_names_the_address_as_it_was_given() -> None:
    def nobody(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    client = httpx.Client(transport=httpx.MockTransport(nobody), base_url="http://desk.example/hooks")
    with pytest.raises(UnreachableError, match=r"no answer from http://desk.example/hooks \("):
        call(client, "POST", "http://desk.example/hooks")


def test_refused_connection_may_be_that_of_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    with pytest.raises(UnreachableError, match="nothing listens there, or at HTTPS_PROXY"):
        call(failing(failed_by(ConnectionRefusedError())), "GET", "/v1")


def failed_by(cause: Exception) -> Exception:
    failed = httpx.ConnectError("failed")
    failed.__cause__ = cause
    return failed


@pytest.mark.parametrize("status", [502, 503, 504])
def test_gateway_answer_without_a_problem_is_unreachable(status: int) -> None:
    with pytest.raises(UnreachableError, match=str(status)):
        call(answering(status, text="<html>away</html>"), "GET", "/")


def test_busy_service_with_a_problem_is_its_own_word() -> None:
    answer = answering(503, json=PROBLEM, headers={"content-type": "application/problem+json"})
    with pytest.raises(RemoteProblemError, match="still collecting"):
        call(answer, "GET", "/")


@pytest.mark.parametrize("status", [400, 403, 404, 409, 413, 422, 500])
def test_problem_document_keeps_its_words_in_quotation_marks_and_status_and_type(status: int) -> None:
    client = answering(status, json=PROBLEM)
    with pytest.raises(RemoteProblemError) as refused:
        call(client, "GET", "/")
    assert str(refused.value) == f"{client.base_url} refused (not-published). It says: “still collecting”"
    assert refused.value.remedy == "Follow its state; every member must approve and upload first."
    assert refused.value.status == status
    assert refused.value.problem == "not-published"


def test_own_agent_is_believed_in_its_words_and_remedy() -> None:
    with pytest.raises(RemoteProblemError, match=r"^still collecting$") as refused:
        check(httpx.Response(409, json=PROBLEM), "the agent", own=True)
    assert refused.value.remedy == "Wait."


@pytest.mark.parametrize(
    "content", [{"text": "<html>"}, {"content": b"\xff\xfe"}, {"json": []}, {"json": {"error": 1}}, {"json": None}, {}]
)
@pytest.mark.parametrize("status", [301, 304, 400, 404, 500])
def test_answer_without_a_problem_document_is_nonsense(status: int, content: dict[str, object]) -> None:
    with pytest.raises(NonsenseError, match=str(status)):
        call(answering(status, **content), "GET", "/")


def test_answer_without_a_problem_document_is_quoted_if_it_names_an_error_as_oauth_does() -> None:
    with pytest.raises(NonsenseError, match="It says: “invalid_client”"):
        call(answering(401, json={"error": "invalid_client"}), "GET", "/")


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        (httpx.Client(base_url=""), "/"),
        (httpx.Client(base_url="ftp://host"), "/"),
        (httpx.Client(base_url="http://a..b"), "/"),
        (answering(200), "/\0"),
    ],
    ids=["none", "ftp", "name", "path"],
)
def test_address_that_is_none_is_nonsense(bad: httpx.Client, path: str) -> None:
    with bad, pytest.raises(NonsenseError, match="not a valid address"):
        call(bad, "GET", path)


@pytest.mark.parametrize("words", [{"detail": "x"}, {"detail": None, "remedy": 5}, {"detail": []}])
@pytest.mark.parametrize("kind", [{}, {"type": None}, {"type": ""}, {"type": 7}, {"type": "urn:commingle:problem:"}])
def test_odd_problem_document_still_becomes_our_error_with_a_code(
    words: dict[str, object], kind: dict[str, object]
) -> None:
    with pytest.raises(RemoteProblemError) as refused:
        call(answering(400, json={**words, **kind}), "GET", "/")
    assert refused.value.problem == "unknown"


@pytest.mark.parametrize("kind", [{}, {"type": "about:blank"}, {"type": 7}])
def test_404_without_a_code_of_ours_is_of_another_kind_of_service(kind: dict[str, object]) -> None:
    with pytest.raises(NonsenseError, match="without a problem document"):
        call(answering(404, json={"detail": "Not Found", **kind}), "GET", "/")


def test_success_has_its_json_or_is_nonsense() -> None:
    assert json_of(call(answering(200, json={"a": [1]}), "GET", "/")) == {"a": [1]}
    for body in (b"", b"<html>", b"\xff\xfe\xfd", b"{"):
        with pytest.raises(NonsenseError, match="JSON"):
            json_of(call(answering(200, content=body), "GET", "/"))


def test_answer_that_cannot_be_decompressed_is_our_error() -> None:
    junk = httpx.ByteStream(b"junk")
    with pytest.raises(RemoteError):
        call(answering(200, headers={"content-encoding": "gzip"}, stream=junk), "GET", "/")


@pytest.mark.parametrize("status", [200, 400])
def test_deeply_nested_answer_is_our_error(status: int) -> None:
    with pytest.raises(RemoteError):
        json_of(call(answering(status, content=b"[" * 200_000), "GET", "/"))


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Sent:
    """How much a server got rid of before its caller hung up."""

    size: int = 0


@contextmanager
def server(
    talk: Callable[[socket.socket, Event], None], transport: httpx.BaseTransport | None = None, **options: int
) -> Iterator[httpx.Client]:
    """A real server that does this with its first connection, until the event."""
    ended = Event()

    def run(listener: socket.socket) -> None:
        with listener.accept()[0] as connection, suppress(OSError):
            talk(connection, ended)

    with socket.socket() as listener:
        for name, value in options.items():
            listener.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = Thread(target=run, args=(listener,))
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", transport=transport) as http:
                yield http
        finally:
            ended.set()
            thread.join(20)


@contextmanager
def hostile(
    piece: bytes, *, pause_seconds: float = 0.0, head: bytes = HEAD, chunked: bool = True
) -> Iterator[tuple[httpx.Client, Sent]]:
    """A server whose answer goes on with this piece for as long as anybody reads it."""
    sent = Sent()

    def answer(connection: socket.socket, ended: Event) -> None:
        connection.recv(1 << 16)
        connection.sendall(head)
        while not ended.wait(pause_seconds):
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            sent.size += len(piece)

    with server(answer) as http:
        yield http, sent


def get(http: httpx.Client, *, largest_bytes: int = LARGEST_ANSWER_BYTES) -> object:
    return call(http, "GET", "/", largest_bytes=largest_bytes)


def get_in_pieces(http: httpx.Client, *, largest_bytes: int = 1 << 30) -> object:
    return list(download(http, "/", largest_bytes=largest_bytes))


@pytest.mark.parametrize("read", [get, get_in_pieces])
def test_answer_without_end_is_dropped_at_its_limit(read: Callable[..., object]) -> None:
    with hostile(bytes(1 << 16)) as (http, sent), pytest.raises(NonsenseError, match="more than the 1048576 bytes"):
        read(http, largest_bytes=1 << 20)
    assert sent.size < 64 << 20  # what was on its way in buffers, and not what would have filled the memory


@pytest.mark.parametrize("read", [get, get_in_pieces])
def test_answer_that_drips_ends_with_the_patience(read: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte by byte, twenty seconds after one another by the clock of who reads it."""
    with hostile(b"x", pause_seconds=0.01) as (http, sent):
        monkeypatch.setattr(remote, "monotonic", lambda: monotonic() + 20 * sent.size)
        with pytest.raises(UnreachableError, match="too slowly"):
            read(http)
    assert 2 < sent.size < 1000


@pytest.mark.parametrize(
    ("drips", "timeout_seconds"),
    [
        (hostile(b"0", pause_seconds=0.01, chunked=False), 5),  # the size of a chunk, digit by digit
        (hostile(b"x", pause_seconds=0.01, head=b"HTTP/1.1 200 OK\r\nX-Long: ", chunked=False), 0.1),
    ],
    ids=["pieces of the body", "head"],
)
def test_what_never_comes_to_an_end_ends_with_the_patience(drips: Any, timeout_seconds: float) -> None:
    with drips as (http, sent), pytest.raises(UnreachableError, match="no answer from"):
        call(http, "GET", "/", timeout_seconds=timeout_seconds, largest_bytes=1 << 10, patience_seconds=0.3)
    assert sent.size < 5000


def test_download_comes_in_pieces_and_its_refusal_as_ours() -> None:
    handed = httpx.Client(
        transport=httpx.MockTransport(lambda _: httpx.Response(200, content=iter([b"a", b"bc"]))), base_url="http://hub"
    )
    assert list(download(handed, "/", largest_bytes=3)) == [b"a", b"bc"]
    with pytest.raises(RemoteProblemError, match="still collecting"):
        list(download(answering(409, json=PROBLEM), "/", largest_bytes=3))


def take_bit_by_bit(connection: socket.socket, ended: Event) -> None:
    """A request a few bytes at a time, without an answer."""
    while not ended.wait(0.1) and connection.recv(64):
        pass


@pytest.mark.parametrize("as_file", [False, True])
def test_request_that_is_taken_bit_by_bit_ends_with_the_patience(as_file: bool) -> None:
    body, begun = bytes(1 << 16), monotonic()
    little = httpx.HTTPTransport(socket_options=[(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)])
    with server(take_bit_by_bit, little, SO_RCVBUF=4096) as http, pytest.raises(UnreachableError):
        call(http, "PUT", "/", content=BytesIO(body) if as_file else body, timeout_seconds=30, patience_seconds=0.2)
    assert 1.2 <= monotonic() - begun < 60  # a second for 64 KiB; at the server's pace it would be a hundred


class Broken(BytesIO):
    """A file on a disk that has just failed."""

    def read(self, _: int | None = -1, /) -> bytes:
        raise OSError("disk")


def test_file_that_cannot_be_read_leaves_nobody_behind_who_cuts_the_next_request() -> None:
    def answer(listener: socket.socket) -> None:
        broken, _ = listener.accept()
        connection, _ = listener.accept()
        with broken, connection:
            sleep(0.5)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=answer, args=(listener,))
        thread.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}") as http:
            with pytest.raises(OSError, match="disk"):
                call(http, "PUT", "/", content=Broken(b"x"), timeout_seconds=0.1, patience_seconds=0.1)
            assert call(http, "GET", "/").content == b"ok"
        thread.join(20)


def test_kept_connection_is_cut_as_a_new_one_is() -> None:
    def answer(connection: socket.socket, ended: Event) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        connection.recv(1 << 16)
        while not ended.wait(0.01):
            connection.sendall(b"H")

    with server(answer) as http:
        assert call(http, "GET", "/").content == b"ok"
        with pytest.raises(UnreachableError):
            call(http, "GET", "/", timeout_seconds=0.1, patience_seconds=0.3)


def test_answer_of_exactly_the_limit_is_taken_and_one_byte_more_or_a_larger_refusal_is_not() -> None:
    assert call(answering(200, content=bytes(100)), "GET", "/", largest_bytes=100).content == bytes(100)
    for answer, most in ((answering(200, content=bytes(100)), 99), (answering(400, json=PROBLEM), 10)):
        with pytest.raises(NonsenseError, match=f"more than the {most} bytes"):
            call(answer, "GET", "/", largest_bytes=most)


def test_nothing_compressed_is_asked_for_or_unpacked() -> None:
    asked: list[str] = []

    def bomb(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["accept-encoding"])
        return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=Unread())

    with pytest.raises(NonsenseError, match="compressed"):
        call(client(bomb), "GET", "/")
    assert asked == ["identity"]


class Unread(httpx.SyncByteStream):
    """A body that nobody may touch."""

    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError("the body was read")


@dataclass
class OnePage:
    next: str | None


def test_pages_end_where_the_list_does() -> None:
    asked: list[str | None] = []

    def ask(cursor: str | None) -> OnePage:
        asked.append(cursor)
        return OnePage({None: "a", "a": "b"}.get(cursor))

    assert len(list(pages("there", ask))) == 3
    assert asked == [None, "a", "b"]


@pytest.mark.parametrize(
    ("following", "most"),
    [(lambda _: "again", 2), (lambda n: "ab"[n % 2], 3), (str, 7), (lambda _: "x" * 1001, 1)],
    ids=["same", "circle", "always new", "long"],
)
def test_hostile_pages_end_with_our_error(following: Callable[[int], str], most: int) -> None:
    asked: list[str | None] = []

    def ask(cursor: str | None) -> OnePage:
        asked.append(cursor)
        return OnePage(following(len(asked)))

    with pytest.raises(NonsenseError, match="without end"):
        list(pages("there", ask, most=7))
    assert len(asked) == most


def events(*pieces: bytes) -> Iterator[bytes]:
    """What is heard of a stream that comes in these pieces."""
    headers = {"Content-Type": "text/event-stream; charset=utf-8"}
    hub = client(lambda _: httpx.Response(200, content=iter(pieces), headers=headers))
    return listen(hub, "/", timeout_seconds=1)


@pytest.mark.parametrize("cut", range(1, 40))
def test_events_are_heard_however_their_stream_is_cut(cut: int) -> None:
    whole = b": waiting\n\nevent: a\ndata: one\n\ndata: two\ndata: lines\n\nid: 7\n\ndata: not ended"
    assert list(events(whole[:cut], whole[cut:])) == [b"one", b"two\nlines"]


def test_stream_without_an_event_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match="ended without an answer"):
        next(events(b": waiting\n\n"))


def test_event_larger_than_any_answer_is_nonsense_and_a_long_stream_of_small_ones_is_not() -> None:
    large = b"x" * (LARGEST_ANSWER_BYTES // 4)
    assert sum(1 for _ in events(*[b"data: " + large + b"\n\n"] * 8)) == 8
    with pytest.raises(NonsenseError, match="more than"):
        next(events(b"data: ", *[large] * 5))


def test_compressed_stream_is_nonsense_before_it_is_unpacked() -> None:
    headers = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
    hub = client(lambda _: httpx.Response(200, content=iter([gzip.compress(b"data: one\n\n")]), headers=headers))
    with pytest.raises(NonsenseError, match="compressed"):
        next(listen(hub, "/", timeout_seconds=1))


def test_answer_of_another_kind_is_heard_as_one_and_a_refusal_is_a_problem() -> None:
    assert list(listen(answering(200, json={"a": 1}), "/", timeout_seconds=1)) == [b'{"a":1}']
    with pytest.raises(RemoteProblemError):
        next(listen(answering(409, json=PROBLEM), "/", timeout_seconds=1))


STARTED = "http11.send_request_headers.started"


class Noting(Watch):
    """Notes that its time was over."""

    def __init__(self, client: httpx.Client, seconds: float) -> None:
        super().__init__(client, sending_seconds=seconds, answering_seconds=seconds, reading_seconds=seconds)
        self.over = Event()

    def cut(self) -> None:
        self.over.set()


def test_one_thread_watches_over_all_requests_and_cuts_each_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = monotonic()
    monkeypatch.setattr(patience, "monotonic", lambda: now)
    with httpx.Client() as client:
        first = Noting(client, 30.0)
        first(STARTED, {})
        threads = active_count()
        others = [Noting(client, seconds) for seconds in (0.3, 0.1, 0.05)]
        for watch in others:
            watch(STARTED, {})
        others[-1].stop()
        assert active_count() == threads
        now += 0.2
        assert others[1].over.wait(60)
        assert not others[0].over.is_set()
        now += 0.2
        assert others[0].over.wait(60)
        assert not others[2].over.is_set()
        assert not first.over.is_set()
        first.stop()
